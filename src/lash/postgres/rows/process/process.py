"""Processes on PostgreSQL."""

from __future__ import annotations

from typing import Final

from lash.base.limits import check_identifier, check_integer
from lash.errors import StoreUnavailable
from lash.model.lease import LeaseFence
from lash.model.process.event import EventDraft
from lash.model.process.process import (
    Abandonment,
    ExternalRef,
    Outcome,
    ProcessFilter,
    ProcessPage,
    ProcessRecord,
    Projection,
    PrunedProcesses,
    Registered,
    Registration,
    SignalWait,
)
from lash.plan.process.change import decode_change_cursor
from lash.plan.process.event import encode_projection
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
    EncodedRegistration,
    ProcessRow,
    check_filter,
    decode_process,
    decode_process_cursor,
    decode_process_page,
    encode_registration,
    leading_filter,
    same_registration,
    wanted_definition,
)
from lash.plan.session.session import check_limit
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.append import NO_TERMS, Terms, fenced, run_append
from lash.postgres.rows.process.rows import PruneAnswer
from lash.sqlkit.rows import Number
from lash.stores.hints import Hints

_MAX_PLANS: Final = 10
_MAX_CHANGES: Final = 10_000
"""How much of the feed one pruning removes at most."""
_PAGES: Final = {
    "all": "process_page_all",
    "definition": "process_page_definition",
    "wake": "process_page_wake",
    "originator": "process_page_originator",
    "label": "process_page_label",
    "kind": "process_page_kind",
    "waiting": "process_page_waiting",
    "status": "process_page_status",
}
"""The query that reads a list by the index of its leading filter."""


class PostgresProcessStore:
    """The processes of one PostgreSQL storage; the contract is `lash.stores.process.process.ProcessStore`."""

    def __init__(self, database: Database, seen: ProcessCache, hints: Hints) -> None:
        self._database = database
        self._seen = seen
        self._hints = hints

    async def register(self, registration: Registration) -> Registered:
        registered = await register(self._database, self._seen, encode_registration(registration))
        if registered.created:
            self._hints.notify()
        return registered

    async def get(self, process_id: str) -> ProcessRecord | None:
        check_identifier("process_id", process_id)
        row = await _row(self._database, self._seen, process_id)
        return None if row is None else decode_process(row)

    async def list(
        self, wanted: ProcessFilter = ProcessFilter(), *, limit: int = 100, cursor: str | None = None
    ) -> ProcessPage:
        check_filter(wanted)
        size = check_limit(limit)
        rows = await self._database.read_all(
            ProcessRow,
            _PAGES[leading_filter(wanted)],
            *(decode_process_cursor(cursor), size + 1),
            *(wanted_definition(wanted), wanted.wake_session_id, wanted.originator_session_id),
            *(wanted.label, wanted.kind, wanted.waiting, None if wanted.status is None else wanted.status.value),
            *(wanted.created_after_ms, wanted.created_before_ms),
        )
        return decode_process_page(rows, size)

    async def runnable(self, *, limit: int = 100, after: str | None = None) -> tuple[ProcessRecord, ...]:
        size = check_limit(limit)
        behind = "" if after is None else check_identifier("after", after)
        rows = await self._database.read_all(ProcessRow, "process_runnable", size, behind)
        # Whoever asks is about to claim them, which then need not ask again.
        for row in rows:
            self._seen.remember(row)
        return tuple(decode_process(row) for row in rows)

    async def complete(self, process_id: str, outcome: Outcome) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, unleased_end_draft(process_id, outcome))

    async def abandon(self, process_id: str, outcome: Abandonment) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, abandonment_draft(process_id, outcome), Terms(abandons=True))

    async def request_cancel(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, cancel_draft(process_id, reason))

    async def request_abandon(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, abandon_request_draft(process_id, reason))

    async def set_external_ref(self, process_id: str, reference: ExternalRef) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, external_ref_draft(reference))

    async def set_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, waiting_draft(process_id, wait), fenced(fence))

    async def clear_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, resumed_draft(process_id, wait), fenced(fence))

    async def prune(self, *, ended_before_ms: int, through_cursor: str | None, limit: int = 100) -> PrunedProcesses:
        check_integer("ended_before_ms", ended_before_ms)
        size = check_limit(limit)
        through = decode_change_cursor(through_cursor)
        place = (None, None) if through_cursor is None else (str(through.transaction_id), through.seq)
        # Not repeated after a lost connection: the report would leave out what the first try removed.
        answer = await self._database.write_one(
            PruneAnswer, "process_prune", ended_before_ms, *place, size, repeatable=False
        )
        pruned = () if answer is None else tuple(answer.process_ids)
        for process_id in pruned:
            self._seen.forget(process_id)
        self._hints.notify()
        more = await self._prune_changes(str(through.transaction_id), through.seq)
        return PrunedProcesses(pruned_process_ids=pruned, more=more or (answer is not None and answer.more))

    async def prune_changes(self, *, before_ms: int, limit: int = 1_000) -> int:
        check_integer("before_ms", before_ms)
        # Not repeated after a lost connection: a repeat would count nothing.
        forgotten = await self._database.write_one(
            Number, "process_changes_before", before_ms, check_limit(limit), repeatable=False
        )
        return 0 if forgotten is None else forgotten.number

    async def _prune_changes(self, transaction_id: str, seq: int) -> bool:
        """Remove changes up to a place, and return whether there may be more of them."""
        removed = await self._database.write_one(
            Number, "process_prune_changes", transaction_id, seq, _MAX_CHANGES, repeatable=True
        )
        return removed is not None and removed.number == _MAX_CHANGES

    async def _append(self, process_id: str, draft: EventDraft, terms: Terms = NO_TERMS) -> ProcessRecord:
        result = await run_append(self._database, self._seen, process_id, draft, terms)
        self._hints.notify()
        return result.record


async def register(database: Database, seen: ProcessCache, encoded: EncodedRegistration) -> Registered:
    """Register a process, or return the stored record of an equal registration; nobody is told of it."""
    process_id = encoded.registration.process_id
    arguments = registration_arguments(encoded, encode_projection(Projection()), 0)
    for _ in range(_MAX_PLANS):
        row = await database.write_one(ProcessRow, "process_register", *arguments, encoded.runnable, repeatable=True)
        if row is not None:
            seen.remember(row)
            return Registered(record=decode_process(row), created=True)
        row = await _row(database, seen, process_id)
        if row is not None:
            return Registered(record=same_registration(encoded, row), created=False)
    raise StoreUnavailable(f"process {process_id!r} was pruned {_MAX_PLANS} times while it was being registered")


def registration_arguments(encoded: EncodedRegistration, projection: str, last_sequence: int) -> tuple[object, ...]:
    """Return what the statements that register a process take of it, in their order."""
    registration = encoded.registration
    return (
        *(registration.process_id, encoded.registration_hash, encoded.body, registration.recovery.value),
        *(encoded.kind, encoded.label, encoded.definition_hash, encoded.originator_session_id),
        *(registration.wake_session_id, registration.environment_ref, encoded.parent_process_id),
        *(projection, last_sequence),
    )


async def _row(database: Database, seen: ProcessCache, process_id: str) -> ProcessRow | None:
    row = await database.read_one(ProcessRow, "process_row", process_id)
    if row is None:
        seen.forget(process_id)
    else:
        seen.remember(row)
    return row
