"""The rows of process events on SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from lash.backend.seal import seal_event
from lash.base.ids import new_id
from lash.errors import CorruptData
from lash.model.lease import LeaseFence
from lash.model.process.event import Appended, ProcessEvent, WakeRecord, WakeState
from lash.model.process.process import ProcessRecord
from lash.plan.process.append import AppendFacts, AppendRequest, AppendResult
from lash.plan.process.change import ChangeCursor, ChangeRow, EventTailRow, FeedState
from lash.plan.process.event import EventRow, InsertEvent, ReplayEvent, SequenceRow, encode_projection
from lash.plan.process.process import decode_process, record_after
from lash.plan.process.wake import LostWakeRow, WakeRow, decode_wake, wake_batch, wake_record
from lash.plan.queue.queue import decode_enqueued
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.process.change import read_end, read_feed
from lash.sqlite.rows.process.process import find_process, process_lease_row
from lash.sqlite.rows.queue.queue import insert_batch
from lash.sqlite.rows.work import change_work
from lash.sqlkit.rows import Number

_LONG_READ: Final = 200
"""A read about more processes than this runs in a thread: it would block the event loop for too long."""


class SQLiteEventRows:
    """The logs of one SQLite storage; the contract is `lash.stores.process.event.EventRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, request: AppendRequest) -> AppendResult:
        def body(transaction: Transaction) -> AppendResult:
            row = find_process(transaction, request.process_id)
            return append_to(transaction, row.process_key, decode_process(row), request)

        return await self._database.write_briefly(body)

    async def nth_of_type(self, process_id: str, event_type: str, skip: int) -> EventRow | None:
        def body(reader: Reader) -> EventRow | None:
            key = find_process(reader, process_id).process_key
            return reader.one(EventRow, "event_nth_of_type", process_key=key, event_type=event_type, skip=skip)

        return self._database.read(body)

    async def after(self, process_id: str, sequence: int, event_type: str | None, limit: int) -> list[EventRow]:
        def body(reader: Reader) -> list[EventRow]:
            key = find_process(reader, process_id).process_key
            if event_type is None:
                return reader.all(EventRow, "event_after", process_key=key, sequence=sequence, limit=limit)
            return reader.all(
                EventRow, "event_after_of_type", process_key=key, event_type=event_type, sequence=sequence, limit=limit
            )

        return self._database.read(body)

    async def recent(self, process_id: str, limit: int) -> list[EventRow]:
        def body(reader: Reader) -> list[EventRow]:
            key = find_process(reader, process_id).process_key
            return reader.all(EventRow, "event_recent", process_key=key, limit=limit)

        return self._database.read(body)

    async def count_through(self, process_id: str, event_type: str, sequence: int) -> int:
        def body(reader: Reader) -> Number | None:
            key = find_process(reader, process_id).process_key
            return reader.one(Number, "event_count_through", process_key=key, event_type=event_type, sequence=sequence)

        counted = self._database.read(body)
        return 0 if counted is None else counted.number

    async def last_sequences(self, process_ids: Collection[str]) -> list[SequenceRow]:
        wanted = json_array(process_ids)

        def body(reader: Reader) -> list[SequenceRow]:
            return reader.all(SequenceRow, "event_last_sequences", process_ids=wanted)

        is_long = len(process_ids) > _LONG_READ
        return await self._database.read_in_thread(body) if is_long else self._database.read(body)

    async def open_wakes(self, process_id: str, sequence: int) -> list[WakeRow]:
        def body(reader: Reader) -> list[WakeRow]:
            key = find_process(reader, process_id).process_key
            return reader.all(WakeRow, "event_open_wakes", process_key=key, sequence=sequence)

        return self._database.read(body)

    async def acknowledge_wake(self, process_id: str, sequence: int) -> bool:
        def body(transaction: Transaction) -> bool:
            key = find_process(transaction, process_id).process_key
            return transaction.run("event_acknowledge_wake", process_key=key, sequence=sequence) > 0

        return await self._database.write(body)

    async def undeliverable_wakes(self, limit: int, after: tuple[str, int]) -> list[LostWakeRow]:
        process_id, sequence = after
        return self._database.read(
            lambda reader: reader.all(
                LostWakeRow, "event_undeliverable_wakes", process_id=process_id, sequence=sequence, limit=limit
            )
        )

    async def tail(self, after: ChangeCursor, limit: int) -> tuple[Sequence[EventTailRow], FeedState]:
        def body(reader: Reader) -> tuple[Sequence[EventTailRow], FeedState]:
            rows = reader.all(EventTailRow, "event_tail", after=after.seq, limit=limit)
            return rows, read_feed(reader, after)

        return await self._database.read_in_thread(body)

    async def changes(self, after: ChangeCursor, limit: int) -> tuple[Sequence[ChangeRow], FeedState]:
        def body(reader: Reader) -> tuple[Sequence[ChangeRow], FeedState]:
            rows = reader.all(ChangeRow, "process_changes_after", after=after.seq, limit=limit)
            return rows, read_feed(reader, after)

        return self._database.read(body)

    async def feed_end(self) -> ChangeCursor:
        return self._database.read(read_end)


def append_to(
    transaction: Transaction, process_key: int, record: ProcessRecord, request: AppendRequest, *, is_new: bool = False
) -> AppendResult:
    """Append an event to a process that was read in this transaction.

    The event of the start is in the row of the process if this transaction registered it.
    """
    key, conditions = request.draft.replay_key, request.conditions
    decision = request.decide(
        AppendFacts(
            process_key=process_key,
            record=record,
            lease=process_lease_row(transaction, process_key) if conditions.need_lease(record) else None,
            known=None
            if key is None
            else transaction.one(EventRow, "event_known", process_key=process_key, replay_key=key),
            now_ms=transaction.now_ms,
        )
    )
    if isinstance(decision, InsertEvent):
        projection = _write(transaction, process_key, decision, is_new=is_new)
        appended = Appended(event=decision.event, wake=_deliver(transaction, process_key, decision.event))
        record = record_after(record, projection, transaction.now_ms)
    else:
        appended = _replayed(transaction, process_key, decision)
    if conditions.ends and conditions.fence is not None:
        release_process(transaction, process_key, conditions.fence)
    return AppendResult(appended=appended, record=record)


def release_process(transaction: Transaction, process_key: int, fence: LeaseFence) -> bool:
    """Free the lease of a process if the fence still holds it, and return whether it did."""
    released = transaction.run(
        "process_lease_release",
        process_key=process_key,
        owner_id=fence.owner_id,
        incarnation_id=fence.incarnation_id,
        token=fence.token,
        fencing=fence.fencing,
    )
    return released > 0


def _replayed(transaction: Transaction, process_key: int, decision: ReplayEvent) -> Appended:
    event = decision.event
    row = transaction.one(WakeRow, "event_wake", process_key=process_key, sequence=event.sequence)
    wake = None if row is None else decode_wake(row, event.process_id)
    return Appended(event=event, replayed=True, wake=wake)


def _write(transaction: Transaction, process_key: int, decision: InsertEvent, *, is_new: bool) -> str:
    """Write an event and its effect on its process, and return the projection as it is stored."""
    event, status = decision.event, decision.projection.status
    projection = encode_projection(decision.projection)
    sealed = seal_event(transaction.seals, decision, projection)
    place = {"process_key": process_key, "sequence": event.sequence, "now_ms": transaction.now_ms}
    body = {"replay_key": event.replay_key, "payload_hash": decision.payload_hash, "payload": sealed.payload}
    others = {"status": status.value, "event_type": event.event_type, "wake": sealed.wake}
    if is_new:
        projected = transaction.run("process_start", **place, **body, projection=sealed.projection)
    elif decision.work.ends:
        projected = transaction.run("process_end", **place, **body, **others, projection=sealed.projection)
    else:
        transaction.run("event_insert", **place, **body, **others)
        projected = transaction.run(
            "process_project",
            **place,
            projection=sealed.projection,
            status=status.value,
            waiting=int(decision.projection.wait is not None),
        )
    if projected != 1:
        raise CorruptData(f"the log of process {event.process_id!r} changed inside a transaction")
    change_work(transaction, process_key, decision.work)
    return projection


def _deliver(transaction: Transaction, process_key: int, event: ProcessEvent) -> WakeRecord | None:
    """Put the wake of an event into the queue of its session, and record the result."""
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
    return wake_record(event, state, batch_id)


def _enqueue(transaction: Transaction, event: ProcessEvent, session_id: str) -> tuple[WakeState, str | None]:
    session = transaction.one(Number, "event_target_session", session_id=session_id)
    if session is None:
        return WakeState.UNDELIVERABLE, None
    batch = wake_batch(event, session_id)
    enqueued = decode_enqueued(batch, insert_batch(transaction, session.number, batch, new_id()))
    return (WakeState.QUEUED if enqueued.created else WakeState.MERGED), enqueued.batch_id
