"""Process events on SQLite."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lash.base.ids import new_id
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData
from lash.model.lease import LeaseFence, ResourceKind
from lash.model.process.event import SIGNAL_PREFIX, Appended, EventDraft, EventPage, ProcessEvent, WakeRecord, WakeState
from lash.model.process.process import ChangeKind, ChangePage, ProcessRecord
from lash.model.value import JSON
from lash.plan.lease import LeaseRow, check_fence, require_fence
from lash.plan.process.change import ChangeRow, TailRow, decode_change_cursor, decode_changes, decode_tail
from lash.plan.process.event import (
    EventRow,
    InsertEvent,
    ReplayEvent,
    SequenceRow,
    check_draft,
    decode_event,
    encode_projection,
    plan_append,
)
from lash.plan.process.event_draft import check_signal_name, signal_draft
from lash.plan.process.grant import check_process_ids
from lash.plan.process.process import ProcessRow, decode_process, missing_process, record_after
from lash.plan.process.wake import LostWakeRow, WakeRow, decode_lost_wake, decode_wake, wake_batch, woken_session
from lash.plan.queue.queue import decode_enqueued
from lash.plan.session.session import check_limit
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.queue.queue import insert_batch
from lash.sqlite.rows.work import change_work
from lash.sqlkit.rows import Flag, Number
from lash.stores.hints import Hints

_LONG_READ: Final = 200
"""A read about more processes than this takes long enough to hold up the event loop."""


class SQLiteEventStore:
    """The logs of one SQLite storage; the contract is `lash.stores.process.event.EventStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def append(self, process_id: str, draft: EventDraft, *, fence: LeaseFence | None = None) -> Appended:
        check_identifier("process_id", process_id)
        check_draft(draft)
        if fence is not None:
            check_fence("fence", fence, ResourceKind.PROCESS)
        appended = await self._database.write_briefly(
            lambda transaction: append_event(transaction, process_id, draft, fence)
        )
        self._hints.notify(session_id=woken_session(appended.wake))
        return appended

    async def signal(self, process_id: str, name: str, *, signal_id: str, payload: JSON = None) -> Appended:
        check_identifier("process_id", process_id)
        return await self.append(process_id, signal_draft(process_id, name, signal_id, payload))

    async def signal_at(self, process_id: str, name: str, ordinal: int) -> ProcessEvent | None:
        event_type = SIGNAL_PREFIX + check_signal_name(name)
        skip = check_integer("ordinal", ordinal, at_least=1) - 1

        def body(reader: Reader) -> EventRow | None:
            key = find_process(reader, process_id).process_key
            return reader.one(EventRow, "event_nth_of_type", process_key=key, event_type=event_type, skip=skip)

        row = self._database.read(body)
        return None if row is None else decode_event(row, process_id)

    async def after(
        self, process_id: str, sequence: int = 0, *, event_type: str | None = None, limit: int = 1_000
    ) -> tuple[ProcessEvent, ...]:
        check_integer("sequence", sequence, at_least=0)
        size = check_limit(limit)
        if event_type is not None:
            check_identifier("event_type", event_type)

        def body(reader: Reader) -> list[EventRow]:
            key = find_process(reader, process_id).process_key
            if event_type is None:
                return reader.all(EventRow, "event_after", process_key=key, sequence=sequence, limit=size)
            return reader.all(
                EventRow, "event_after_of_type", process_key=key, event_type=event_type, sequence=sequence, limit=size
            )

        return tuple(decode_event(row, process_id) for row in self._database.read(body))

    async def recent(self, process_id: str, count: int) -> tuple[ProcessEvent, ...]:
        size = check_limit(count)

        def body(reader: Reader) -> list[EventRow]:
            key = find_process(reader, process_id).process_key
            return reader.all(EventRow, "event_recent", process_key=key, limit=size)

        return tuple(decode_event(row, process_id) for row in reversed(self._database.read(body)))

    async def count_through(self, process_id: str, event_type: str, sequence: int) -> int:
        check_identifier("event_type", event_type)
        check_integer("sequence", sequence, at_least=0)

        def body(reader: Reader) -> Number | None:
            key = find_process(reader, process_id).process_key
            return reader.one(Number, "event_count_through", process_key=key, event_type=event_type, sequence=sequence)

        counted = self._database.read(body)
        return 0 if counted is None else counted.number

    async def last_sequences(self, process_ids: Collection[str]) -> dict[str, int]:
        wanted = json_array(check_process_ids(process_ids))

        def body(reader: Reader) -> list[SequenceRow]:
            return reader.all(SequenceRow, "event_last_sequences", process_ids=wanted)

        is_long = len(process_ids) > _LONG_READ
        rows = await self._database.read_in_thread(body) if is_long else self._database.read(body)
        return {row.process_id: row.last_sequence for row in rows}

    async def wakes_after(self, process_id: str, sequence: int = 0) -> tuple[WakeRecord, ...]:
        check_integer("sequence", sequence, at_least=0)

        def body(reader: Reader) -> list[WakeRow]:
            key = find_process(reader, process_id).process_key
            return reader.all(WakeRow, "event_open_wakes", process_key=key, sequence=sequence)

        return tuple(decode_wake(row, process_id) for row in self._database.read(body))

    async def acknowledge_wake(self, process_id: str, sequence: int) -> bool:
        check_integer("sequence", sequence, at_least=1)

        def body(transaction: Transaction) -> bool:
            key = find_process(transaction, process_id).process_key
            return transaction.run("event_acknowledge_wake", process_key=key, sequence=sequence) > 0

        return await self._database.write(body)

    async def undeliverable_wakes(self, *, limit: int = 100) -> tuple[WakeRecord, ...]:
        size = check_limit(limit)
        rows = self._database.read(lambda reader: reader.all(LostWakeRow, "event_undeliverable_wakes", limit=size))
        return tuple(decode_lost_wake(row) for row in rows)

    async def tail(self, cursor: str | None = None, *, limit: int = 100) -> EventPage:
        after, size = decode_change_cursor(cursor), check_limit(limit)
        rows = await self._database.read_in_thread(
            lambda reader: reader.all(TailRow, "event_tail", after=after.seq, limit=size)
        )
        return decode_tail(rows, after)

    async def changes(self, cursor: str | None = None, *, limit: int = 100) -> ChangePage:
        after, size = decode_change_cursor(cursor), check_limit(limit)
        rows = self._database.read(
            lambda reader: reader.all(ChangeRow, "process_changes_after", after=after.seq, limit=size)
        )
        return decode_changes(rows, after)


def find_process(reader: Reader, process_id: str) -> ProcessRow:
    """Return the row of a process, or raise ProcessNotFound or ProcessPruned."""
    check_identifier("process_id", process_id)
    row = reader.one(ProcessRow, "process_row", process_id=process_id)
    if row is None:
        pruned = reader.one(Flag, "process_is_pruned", process_id=process_id)
        raise missing_process(process_id, pruned=pruned is not None and pruned.value)
    return row


def append_event(
    transaction: Transaction, process_id: str, draft: EventDraft, fence: LeaseFence | None = None
) -> Appended:
    """Append an event with all that it means, inside any write transaction; with a fence only if it is live."""
    return append_fenced(transaction, process_id, draft, fence)[0]


def append_fenced(
    transaction: Transaction, process_id: str, draft: EventDraft, fence: LeaseFence | None
) -> tuple[Appended, ProcessRecord]:
    """Append an event, with a fence only if it is live, and return the process as it then stands beside it."""
    row = find_process(transaction, process_id)
    if fence is not None:
        require_fence(process_lease_row(transaction, row.process_key), fence, transaction.now_ms)
    return append_to(transaction, row.process_key, decode_process(row), draft)


def append_to(
    transaction: Transaction, process_key: int, record: ProcessRecord, draft: EventDraft
) -> tuple[Appended, ProcessRecord]:
    """Append an event to a process that was read in this transaction, and return it as it then stands beside it."""
    known = None
    if draft.replay_key is not None:
        known = transaction.one(EventRow, "event_known", process_key=process_key, replay_key=draft.replay_key)
    decision = plan_append(
        record.registration,
        record.projection,
        draft,
        life=process_key,
        last_sequence=record.last_sequence,
        wake_session_id=record.wake_session_id,
        known=known,
        now_ms=transaction.now_ms,
    )
    if isinstance(decision, ReplayEvent):
        row = transaction.one(WakeRow, "event_wake", process_key=process_key, sequence=decision.event.sequence)
        wake = None if row is None else decode_wake(row, record.process_id)
        return Appended(event=decision.event, replayed=True, wake=wake), record
    projection = _write(transaction, process_key, decision)
    appended = Appended(event=decision.event, wake=_deliver(transaction, process_key, decision.event))
    return appended, record_after(record, projection, transaction.now_ms)


def process_lease_row(reader: Reader, process_key: int) -> LeaseRow:
    """Return the lease row that every process has."""
    row = reader.one(LeaseRow, "process_lease_row", process_key=process_key)
    if row is None:
        raise CorruptData("a process has no lease row")
    return row


def note_change(transaction: Transaction, process_id: str, kind: ChangeKind, **details: int | str | None) -> None:
    """Add to the feed of changes."""
    transaction.run(
        "process_change",
        process_id=process_id,
        kind=kind.value,
        sequence=details.get("sequence"),
        status=details.get("status"),
        now_ms=transaction.now_ms,
    )


def _write(transaction: Transaction, process_key: int, decision: InsertEvent) -> str:
    """Write an event and what it means for its process, and return the projection as it is stored."""
    event, status = decision.event, decision.projection.status
    projection = encode_projection(decision.projection)
    transaction.run(
        "event_insert",
        process_key=process_key,
        sequence=event.sequence,
        event_type=event.event_type,
        replay_key=event.replay_key,
        payload_hash=decision.payload_hash,
        payload=decision.payload,
        wake=decision.wake,
        now_ms=transaction.now_ms,
    )
    projected = transaction.run(
        "process_project",
        process_key=process_key,
        sequence=event.sequence,
        projection=projection,
        status=status.value,
        waiting=int(decision.projection.wait is not None),
        now_ms=transaction.now_ms,
    )
    if projected != 1:
        raise CorruptData(f"the log of process {event.process_id!r} changed inside a transaction")
    note_change(transaction, event.process_id, ChangeKind.EVENT, sequence=event.sequence, status=status.value)
    change_work(transaction, process_key, decision.work)
    return projection


def _deliver(transaction: Transaction, process_key: int, event: ProcessEvent) -> WakeRecord | None:
    """Put the wake of an event into its session's queue, and note what became of it."""
    if event.wake is None:
        return None
    state, batch_id = WakeState.NO_TARGET, None
    if event.wake.target_session_id is not None:
        state, batch_id = _enqueue(transaction, event, event.wake.target_session_id)
    transaction.run(
        "event_insert_wake",
        process_key=process_key,
        sequence=event.sequence,
        target_session_id=event.wake.target_session_id,
        batch_id=batch_id,
        state=state.value,
    )
    return WakeRecord(
        process_id=event.process_id,
        sequence=event.sequence,
        event_type=event.event_type,
        wake=event.wake,
        state=state,
        batch_id=batch_id,
    )


def _enqueue(transaction: Transaction, event: ProcessEvent, session_id: str) -> tuple[WakeState, str | None]:
    session = transaction.one(Number, "event_target_session", session_id=session_id)
    if session is None:
        return WakeState.UNDELIVERABLE, None
    batch = wake_batch(event, session_id)
    enqueued = decode_enqueued(batch, insert_batch(transaction, session.number, batch, new_id()))
    return (WakeState.QUEUED if enqueued.created else WakeState.MERGED), enqueued.batch_id
