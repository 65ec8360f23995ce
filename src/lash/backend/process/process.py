"""The processes of every backend."""

from __future__ import annotations

from typing import Final

from lash.backend.waiter import SharedProcessWaiter
from lash.base.limits import check_identifier, check_integer, check_limit, check_text
from lash.model.lease import LeaseFence
from lash.model.process.event import EventDraft
from lash.model.process.process import (
    Abandonment,
    ExternalRef,
    Outcome,
    ProcessFilter,
    ProcessPage,
    ProcessRecord,
    ProcessStatus,
    ProcessVersion,
    PrunedProcesses,
    Registered,
    Registration,
    SignalWait,
)
from lash.plan.key_range import key_range
from lash.plan.process.append import UNCONDITIONAL, AppendConditions, append_request
from lash.plan.process.change import decode_change_cursor
from lash.plan.process.event_draft import (
    abandon_request_draft,
    abandonment_draft,
    cancel_draft,
    external_ref_draft,
    resumed_draft,
    unleased_end_draft,
    waiting_draft,
)
from lash.plan.process.process import (
    ProcessPageQuery,
    check_filter,
    decode_process,
    decode_process_cursor,
    decode_process_page,
    decode_versions,
    encode_registration,
    leading_filter,
    same_registration,
    wanted_definition,
)
from lash.plan.work import parent_of
from lash.stores.hints import Hints
from lash.stores.process.event import EventRows
from lash.stores.process.process import ProcessRows

_PAGES: Final = {
    "all": "process_page_all",
    "id": "process_page_id",
    "definition": "process_page_definition",
    "parent": "process_page_parent",
    "wake": "process_page_wake",
    "originator": "process_page_originator",
    "label": "process_page_label",
    "kind": "process_page_kind",
    "waiting": "process_page_waiting",
    "status": "process_page_status",
}
"""The named query of both backends that reads a list by the index of its leading filter."""


class Processes:
    """The processes of one storage; the contract is `lash.stores.process.process.ProcessStore`."""

    def __init__(self, rows: ProcessRows, events: EventRows, hints: Hints) -> None:
        self._rows = rows
        self._events = events
        self._hints = hints
        self.waiter: SharedProcessWaiter | None = None
        """Learns which processes are new; it reads from this store, so it is set later."""

    async def register(self, registration: Registration) -> Registered:
        encoded = encode_registration(registration)
        was_listening = self.waiter is not None and self.waiter.changes.is_listening
        stored = await self._rows.register(encoded)
        if stored.created:
            if self.waiter is not None:
                self.waiter.note_created(registration.process_id, was_listening=was_listening)
            self._hints.notify(process_id=registration.process_id)
        return Registered(record=same_registration(encoded, stored.row), created=stored.created)

    async def get(self, process_id: str) -> ProcessRecord | None:
        row = await self._rows.row(check_identifier("process_id", process_id))
        return None if row is None else decode_process(row)

    async def list(
        self,
        wanted: ProcessFilter = ProcessFilter(),
        *,
        with_state: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ProcessPage:
        fits, size = check_filter(wanted), check_limit(limit)
        page = ProcessPageQuery(
            query=_PAGES[leading_filter(fits)],
            filter=fits,
            with_state=with_state,
            definition_hash=wanted_definition(fits),
            before=decode_process_cursor(cursor),
            limit=size + 1,
        )
        return decode_process_page(await self._rows.page(page), size)

    async def ids(self, prefix: str = "", *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        return tuple(await self._rows.ids(key_range(prefix, after, reverse=False), check_limit(limit)))

    async def runnable(self, *, limit: int = 100, after: str | None = None) -> tuple[ProcessRecord, ...]:
        size = check_limit(limit)
        rows = await self._rows.runnable(size, "" if after is None else check_identifier("after", after))
        return tuple(decode_process(row) for row in rows)

    async def versions(self) -> tuple[ProcessVersion, ...]:
        return decode_versions(await self._rows.versions())

    async def complete(self, process_id: str, outcome: Outcome) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, unleased_end_draft(process_id, outcome))

    async def abandon(self, process_id: str, outcome: Abandonment) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, abandonment_draft(process_id, outcome), AppendConditions(abandons=True))

    async def request_cancel(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, cancel_draft(process_id, check_text("reason", reason)))

    async def request_abandon(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, abandon_request_draft(process_id, check_text("reason", reason)))

    async def set_external_ref(self, process_id: str, reference: ExternalRef) -> ProcessRecord:
        return await self._append(process_id, external_ref_draft(reference))

    async def set_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, waiting_draft(process_id, wait), AppendConditions(fence=fence))

    async def clear_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, resumed_draft(process_id, wait), AppendConditions(fence=fence))

    async def prune(self, *, ended_before_ms: int, through_cursor: str | None, limit: int = 100) -> PrunedProcesses:
        check_integer("ended_before_ms", ended_before_ms)
        through = None if through_cursor is None else decode_change_cursor(through_cursor)
        pruned = await self._rows.prune(ended_before_ms, through, check_limit(limit))
        self._hints.notify()
        return pruned

    async def prune_changes(self, *, before_ms: int, limit: int = 1_000) -> int:
        return await self._rows.prune_changes(check_integer("before_ms", before_ms), check_limit(limit))

    async def _append(
        self, process_id: str, draft: EventDraft, conditions: AppendConditions = UNCONDITIONAL
    ) -> ProcessRecord:
        result = await self._events.append(append_request(process_id, draft, conditions))
        notify_change(self._hints, result.record)
        return result.record


def notify_change(hints: Hints, record: ProcessRecord) -> None:
    """Give the hints about a process that changed; if it has ended, the process that started it may be ready."""
    has_ended = record.status is not ProcessStatus.RUNNING
    hints.notify(process_id=record.process_id, ended=has_ended, work=not has_ended)
    parent_id = parent_of(record.registration)
    if has_ended and parent_id is not None:
        hints.notify(process_id=parent_id)
