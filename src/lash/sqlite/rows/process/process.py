"""Processes on SQLite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from lash.base.limits import MAX_INTEGER, check_identifier, check_integer, check_text
from lash.model.lease import LeaseFence, ResourceKind
from lash.model.process.event import EventDraft
from lash.model.process.process import (
    Abandonment,
    ChangeKind,
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
from lash.plan.lease import check_fence
from lash.plan.process.change import decode_change_cursor
from lash.plan.process.event import check_draft, encode_projection
from lash.plan.process.event_draft import (
    abandon_request_draft,
    abandonment_draft,
    cancel_draft,
    external_ref_draft,
    resumed_draft,
    unleased_end_draft,
    waiting_draft,
)
from lash.plan.process.lease import require_abandonable
from lash.plan.process.process import (
    EncodedRegistration,
    ProcessRow,
    PrunableRow,
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
from lash.sqlite.engine.database import Database, SQLiteValue, Transaction
from lash.sqlite.rows.process.event import append_fenced, append_to, find_process, note_change, process_lease_row
from lash.sqlkit.rows import Number
from lash.stores.hints import Hints

T = TypeVar("T")

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


class SQLiteProcessStore:
    """The processes of one SQLite storage; the contract is `lash.stores.process.process.ProcessStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def register(self, registration: Registration) -> Registered:
        encoded = encode_registration(registration)

        def body(transaction: Transaction) -> Registered:
            row, created = register(transaction, encoded)
            return Registered(record=same_registration(encoded, row), created=created)

        return await self._write(body)

    async def get(self, process_id: str) -> ProcessRecord | None:
        check_identifier("process_id", process_id)
        row = self._database.read(lambda reader: reader.one(ProcessRow, "process_row", process_id=process_id))
        return None if row is None else decode_process(row)

    async def list(
        self, wanted: ProcessFilter = ProcessFilter(), *, limit: int = 100, cursor: str | None = None
    ) -> ProcessPage:
        check_filter(wanted)
        size = check_limit(limit)
        query = _PAGES[leading_filter(wanted)]
        parameters = _page_parameters(wanted, before=decode_process_cursor(cursor), limit=size + 1)
        rows = await self._database.read_in_thread(lambda reader: reader.all(ProcessRow, query, **parameters))
        return decode_process_page(rows, size)

    async def runnable(self, *, limit: int = 100, after: str | None = None) -> tuple[ProcessRecord, ...]:
        size = check_limit(limit)
        behind = "" if after is None else check_identifier("after", after)
        rows = self._database.read(
            lambda reader: reader.all(ProcessRow, "process_runnable", after=behind, limit=size, now_ms=reader.now_ms)
        )
        return tuple(decode_process(row) for row in rows)

    async def complete(self, process_id: str, outcome: Outcome) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, unleased_end_draft(process_id, outcome))

    async def abandon(self, process_id: str, outcome: Abandonment) -> ProcessRecord:
        check_identifier("process_id", process_id)
        draft = check_draft(abandonment_draft(process_id, outcome))

        def body(transaction: Transaction) -> ProcessRecord:
            row = find_process(transaction, process_id)
            lease = process_lease_row(transaction, row.process_key)
            record = decode_process(row)
            require_abandonable(record, lease, transaction.now_ms)
            return append_to(transaction, row.process_key, record, draft)[1]

        return await self._write(body)

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
        return await self._append(process_id, waiting_draft(process_id, wait), fence)

    async def clear_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        check_identifier("process_id", process_id)
        return await self._append(process_id, resumed_draft(process_id, wait), fence)

    async def prune(self, *, ended_before_ms: int, through_cursor: str | None, limit: int = 100) -> PrunedProcesses:
        check_integer("ended_before_ms", ended_before_ms)
        size = check_limit(limit)
        through = MAX_INTEGER if through_cursor is None else decode_change_cursor(through_cursor).seq

        def body(transaction: Transaction) -> PrunedProcesses:
            rows = transaction.all(
                PrunableRow,
                "process_prunable",
                ended_before_ms=ended_before_ms,
                through=through,
                limit=size + 1,
            )
            for row in rows[:size]:
                _prune(transaction, row)
            _forget_changes(transaction, 0 if through_cursor is None else through)
            pruned = tuple(row.process_id for row in rows[:size])
            return PrunedProcesses(pruned_process_ids=pruned, more=len(rows) > size)

        pruning = await self._database.write(body)
        self._hints.notify()
        return pruning

    async def prune_changes(self, *, before_ms: int, limit: int = 1_000) -> int:
        check_integer("before_ms", before_ms)
        size = check_limit(limit)

        def body(transaction: Transaction) -> int:
            last = transaction.one(Number, "process_changes_before", before_ms=before_ms, limit=size)
            return 0 if last is None else _forget_changes(transaction, last.number)

        return await self._database.write(body)

    async def _append(self, process_id: str, draft: EventDraft, fence: LeaseFence | None = None) -> ProcessRecord:
        check_draft(draft)
        if fence is not None:
            check_fence("fence", fence, ResourceKind.PROCESS)

        def body(transaction: Transaction) -> ProcessRecord:
            return append_fenced(transaction, process_id, draft, fence)[1]

        return await self._write(body)

    async def _write(self, body: Callable[[Transaction], T]) -> T:
        """Write what touches one process, and tell those who wait for it."""
        value = await self._database.write_briefly(body)
        self._hints.notify()
        return value


def register(transaction: Transaction, encoded: EncodedRegistration) -> tuple[ProcessRow, bool]:
    """Register a process unless its id is taken; return the row that is then there, and whether it is a new one."""
    registration = encoded.registration
    process_id = registration.process_id
    created = transaction.run(
        "process_insert",
        process_id=process_id,
        registration_hash=encoded.registration_hash,
        registration=encoded.body,
        recovery=registration.recovery.value,
        kind=encoded.kind,
        label=encoded.label,
        definition_hash=encoded.definition_hash,
        originator_session_id=encoded.originator_session_id,
        parent_process_id=encoded.parent_process_id,
        wake_session_id=registration.wake_session_id,
        environment_ref=registration.environment_ref,
        projection=encode_projection(Projection()),
        now_ms=transaction.now_ms,
    )
    if created:
        transaction.run(
            "process_insert_lease", process_id=process_id, runnable=int(encoded.runnable), now_ms=transaction.now_ms
        )
        transaction.run("process_forget_tombstone", process_id=process_id)
        note_change(transaction, process_id, ChangeKind.REGISTERED, status="running")
    return find_process(transaction, process_id), created > 0


def _forget_changes(transaction: Transaction, through: int) -> int:
    """Remove the changes up to a place in the feed, note how far, and return how many there were."""
    forgotten = transaction.run("process_prune_changes", through=through)
    transaction.run("activity_raise_change_floor", through=through)
    return forgotten


def _prune(transaction: Transaction, row: PrunableRow) -> None:
    transaction.run("process_delete", process_key=row.process_key)
    transaction.run(
        "process_bury",
        process_id=row.process_id,
        status=row.status,
        fencing=row.fencing,
        now_ms=transaction.now_ms,
    )
    note_change(transaction, row.process_id, ChangeKind.PRUNED, status=row.status)


def _page_parameters(wanted: ProcessFilter, *, before: int | None, limit: int) -> dict[str, SQLiteValue]:
    """Return the parameters of a page; the leading filter of each query is one of them."""
    return {
        "definition_hash": wanted_definition(wanted),
        "wake_session_id": wanted.wake_session_id,
        "originator_session_id": wanted.originator_session_id,
        "label": wanted.label,
        "kind": wanted.kind,
        "waiting": None if wanted.waiting is None else int(wanted.waiting),
        "status": None if wanted.status is None else wanted.status.value,
        "created_after_ms": wanted.created_after_ms,
        "created_before_ms": wanted.created_before_ms,
        "before": before,
        "limit": limit,
    }
