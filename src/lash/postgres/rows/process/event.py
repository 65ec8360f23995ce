"""The rows of process events on PostgreSQL.

An append is decided on cached facts, written in one guarded statement, and decided again if a fact was stale.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from lash.backend.seal import SealedEvent, seal_event
from lash.base.ids import new_id
from lash.base.seal import Seals
from lash.errors import Conflict, InvalidInput, StoreUnavailable
from lash.model.lease import LeaseFence
from lash.model.process.event import Appended, ProcessEvent, WakeState
from lash.model.process.process import ProcessRecord
from lash.plan.lease import LeaseRow
from lash.plan.process.append import AppendConditions, AppendFacts, AppendRequest, AppendResult
from lash.plan.process.change import ChangeCursor, ChangeRow, EventTailRow, FeedState
from lash.plan.process.event import EventRow, InsertEvent, SequenceRow, encode_projection
from lash.plan.process.process import ProcessRow, decode_process, record_after, row_after
from lash.plan.process.wake import LostWakeRow, WakeRow, wake_batch, wake_record
from lash.plan.sealed import BATCH
from lash.postgres.arguments import fence_proof
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.process_batches import Arguments, ProcessBatches
from lash.postgres.rows.lease import fence_arguments
from lash.postgres.rows.process.change import ChangeFeed
from lash.postgres.rows.process.process import missing_record
from lash.sqlkit.rows import Flag, Number

_FREE_PLANS: Final = 3
"""How often an append is decided without a lock before it takes one; more only helps if many append at once."""


class _KnownEvent(msgspec.Struct, frozen=True, array_like=True):
    """A stored event, and the state of its wake if it has one."""

    event: EventRow
    state: WakeState | None
    batch_id: str | None


class _Facts(msgspec.Struct, frozen=True, array_like=True):
    """The facts of a decision about an append; ``known`` is the event of its replay key."""

    now_ms: int
    process: ProcessRow
    lease: LeaseRow
    known: _KnownEvent | None


class _AppendAnswer(msgspec.Struct, frozen=True, array_like=True):
    """When an event was appended, and the state of its wake if it has one."""

    now_ms: int
    state: WakeState | None
    batch_id: str | None


class _EventsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Some events of a process that exists."""

    process_key: int
    events: list[EventRow]


class _WakesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Some wakes of a process that exists."""

    process_key: int
    wakes: list[WakeRow]


class _WrittenEvent(msgspec.Struct, frozen=True):
    """The answer to an append, and the row of the process after it."""

    result: AppendResult
    row: ProcessRow


class PostgresEventRows:
    """The logs of one PostgreSQL storage; the contract is `lash.stores.process.event.EventRows`."""

    def __init__(self, database: Database, cache: ProcessCache, batches: ProcessBatches, feed: ChangeFeed) -> None:
        self._database = database
        self._cache = cache
        self._batches = batches
        self._feed = feed

    async def append(self, request: AppendRequest) -> AppendResult:
        """Append in one round trip if the process is cached and the guard of the statement passes."""
        fence = request.conditions.fence if request.conditions.ends else None
        if fence is not None:
            ended = await self._end(request, fence)
            if ended is not None:
                return ended
        async with self._cache.append_lock(request.process_id):
            written = await self._append_freely(request)
            if written is None:
                written = await self._append_under_lock(request)
            # Cache only committed rows: a rolled-back one could match a later sequence.
            self._cache.remember(written.row)
        if fence is not None and written.result.appended.replayed:
            # The process ended elsewhere with the same outcome; our lease is still held.
            await release_process(self._database, fence)
        return written.result

    async def nth_of_type(self, process_id: str, event_type: str, skip: int) -> EventRow | None:
        found = await self._events("event_nth_of_type", process_id, event_type, skip)
        return found[0] if found else None

    async def after(self, process_id: str, sequence: int, event_type: str | None, limit: int) -> list[EventRow]:
        if event_type is None:
            return await self._events("event_after", process_id, sequence, limit)
        return await self._events("event_after_of_type", process_id, sequence, limit, event_type)

    async def recent(self, process_id: str, limit: int) -> list[EventRow]:
        return await self._events("event_recent", process_id, limit)

    async def count_through(self, process_id: str, event_type: str, sequence: int) -> int:
        found = await self._database.read_one(Number, "event_count_through", process_id, event_type, sequence)
        if found is None:
            raise await self._missing(process_id)
        return found.number

    async def last_sequences(self, process_ids: Collection[str]) -> list[SequenceRow]:
        return await self._database.read_all(SequenceRow, "event_last_sequences", list(process_ids))

    async def open_wakes(self, process_id: str, sequence: int) -> list[WakeRow]:
        answer = await self._database.read_one(_WakesAnswer, "event_open_wakes", process_id, sequence)
        if answer is None:
            raise await self._missing(process_id)
        return answer.wakes

    async def acknowledge_wake(self, process_id: str, sequence: int) -> bool:
        acknowledged = await self._database.write_one(
            Flag, "event_acknowledge_wake", process_id, sequence, repeatable=False
        )
        if acknowledged is None:
            raise await self._missing(process_id)
        return acknowledged.value

    async def undeliverable_wakes(self, limit: int, after: tuple[str, int]) -> list[LostWakeRow]:
        return await self._database.read_all(LostWakeRow, "event_undeliverable_wakes", *after, limit)

    async def tail(self, after: ChangeCursor, limit: int) -> tuple[Sequence[EventTailRow], FeedState]:
        return await self._feed.tail(after, limit)

    async def changes(self, after: ChangeCursor, limit: int) -> tuple[Sequence[ChangeRow], FeedState]:
        return await self._feed.changes(after, limit)

    async def feed_end(self) -> ChangeCursor:
        return await self._feed.end()

    async def _events(self, query: str, process_id: str, *arguments: object) -> list[EventRow]:
        answer = await self._database.read_one(_EventsAnswer, query, process_id, *arguments)
        if answer is None:
            raise await self._missing(process_id)
        return answer.events

    async def _end(self, request: AppendRequest, fence: LeaseFence) -> AppendResult | None:
        """End a cached process in a statement shared with other callers; None if the facts have to be read."""
        async with self._cache.append_lock(request.process_id):
            row = self._cache.get(request.process_id)
            decided = None if row is None else _decide_unread(row, request)
            if row is None or decided is None:
                return None
            record, decision = decided
            projection = encode_projection(decision.projection)
            sealed = seal_event(self._database.seals, decision, projection)
            answer = await self._batches.end(row.process_key, _end_arguments(row, decision, sealed, fence))
            if answer is None:
                return None
            # Cache only committed rows: a rolled-back one could match a later sequence.
            self._cache.remember(row_after(row, projection, answer.now_ms))
            event = msgspec.structs.replace(decision.event, occurred_at_ms=answer.now_ms)
            after = record_after(record, projection, answer.now_ms)
            return AppendResult(appended=Appended(event=event), record=after)

    async def _append_freely(self, request: AppendRequest) -> _WrittenEvent | None:
        """Append without a lock; None if other writers changed the process each time."""
        row = self._cache.get(request.process_id)
        # The lease has to be read before a process is abandoned.
        decided = None if row is None or request.conditions.abandons else _decide_unread(row, request)
        written = None
        if row is not None and decided is not None:
            written = await _write(self._database, row, *decided, request.conditions)
        for _ in range(_FREE_PLANS):
            if written is not None:
                return written
            facts = await self._database.read_one(_Facts, "event_facts", request.process_id, request.draft.replay_key)
            if facts is None:
                raise await self._missing(request.process_id)
            self._cache.remember(facts.process)
            written = await _append(self._database, facts, request)
        return written

    async def _append_under_lock(self, request: AppendRequest) -> _WrittenEvent:
        """Append under a row lock, for a process with so many writers that deciding without one never wins."""
        async with self._database.transaction() as transaction:
            facts = None
            if await transaction.one(Number, "event_lock", request.process_id) is not None:
                facts = await transaction.one(_Facts, "event_facts", request.process_id, request.draft.replay_key)
            written = None if facts is None else await _append(transaction, facts, request)
        if facts is None:
            raise await self._missing(request.process_id)
        if written is None:
            raise StoreUnavailable(f"process {request.process_id!r} changed during an append; retry it")
        return written

    async def _missing(self, process_id: str) -> Exception:
        return await missing_record(self._database, self._cache, process_id)


async def release_process(database: Database, fence: LeaseFence) -> bool:
    """Free the lease of a process if the fence still holds it, and return whether it did."""
    arguments = fence_arguments(fence)
    return await database.write_one(Flag, "process_lease_release", *arguments, repeatable=True) is not None


def _decide_unread(row: ProcessRow, request: AppendRequest) -> tuple[ProcessRecord, InsertEvent] | None:
    """Decide on a cached row; None if the facts have to be read."""
    record = decode_process(row)
    try:
        return record, request.decide_insert(row.process_key, record)
    except (Conflict, InvalidInput):
        # The log may have the event already, or the id may belong to another process by now.
        return None


async def _append(source: Database | Transaction, facts: _Facts, request: AppendRequest) -> _WrittenEvent | None:
    """Append on the stored facts; None if they changed meanwhile."""
    record, known = decode_process(facts.process), facts.known
    decision = request.decide(
        AppendFacts(
            process_key=facts.process.process_key,
            record=record,
            lease=facts.lease,
            known=None if known is None else known.event,
            now_ms=facts.now_ms,
        )
    )
    if isinstance(decision, InsertEvent):
        return await _write(source, facts.process, record, decision, request.conditions)
    wake = None if known is None else wake_record(decision.event, known.state, known.batch_id)
    appended = Appended(event=decision.event, replayed=True, wake=wake)
    return _WrittenEvent(AppendResult(appended=appended, record=record), facts.process)


async def _write(
    source: Database | Transaction,
    row: ProcessRow,
    record: ProcessRecord,
    decision: InsertEvent,
    conditions: AppendConditions,
) -> _WrittenEvent | None:
    """Write the decision; None if the guard refused it."""
    projection = encode_projection(decision.projection)
    arguments = _append_arguments(source.seals, row, decision, projection, conditions)
    if isinstance(source, Transaction):
        answer = await source.one(_AppendAnswer, "event_append", *arguments)
    else:
        # Safe to repeat under a replay key: the guard refuses the repetition, and the plan then finds the event.
        repeatable = decision.event.replay_key is not None
        answer = await source.write_one(_AppendAnswer, "event_append", *arguments, repeatable=repeatable)
    if answer is None:
        return None
    event = msgspec.structs.replace(decision.event, occurred_at_ms=answer.now_ms)
    appended = Appended(event=event, wake=wake_record(event, answer.state, answer.batch_id))
    after = record_after(record, projection, answer.now_ms)
    return _WrittenEvent(AppendResult(appended=appended, record=after), row_after(row, projection, answer.now_ms))


def _append_arguments(
    seals: Seals, row: ProcessRow, decision: InsertEvent, projection: str, conditions: AppendConditions
) -> list[object]:
    """Return the arguments of ``event_append`` in their order."""
    event, fence = decision.event, conditions.fence
    sealed = seal_event(seals, decision, projection)
    return [
        *(row.process_key, row.last_sequence, row.wake_session_id),
        *(event.event_type, event.replay_key, decision.payload_hash, sealed.payload, sealed.wake),
        *(sealed.projection, decision.projection.status.value, decision.projection.wait is not None),
        *_wake_arguments(seals, event),
        *((None,) * 4 if fence is None else fence_proof(fence)),
        *(conditions.abandons, decision.work.wakes, decision.work.ends, decision.work.wakes_parent),
        decision.work.continues,
    ]


def _wake_arguments(seals: Seals, event: ProcessEvent) -> tuple[str | None, ...]:
    """Return the target and the batch of the event's wake; only NULLs if it has no target."""
    if event.wake is None or event.wake.target_session_id is None:
        return (None,) * 8
    batch, batch_id = wake_batch(event, event.wake.target_session_id), new_id()
    payloads = seals.text(BATCH, batch.payloads, batch_id)
    return (
        *(event.wake.target_session_id, batch.draft.source_key, batch_id, batch.content_hash),
        *(batch.lane, batch.draft.delivery.value, batch.draft.slot.value, payloads),
    )


def _end_arguments(row: ProcessRow, decision: InsertEvent, sealed: SealedEvent, fence: LeaseFence) -> Arguments:
    """Return the arguments of ``process_lease_complete`` for one process, in their order."""
    event = decision.event
    return (
        *(row.process_key, row.last_sequence, row.wake_session_id),
        *(event.event_type, event.replay_key, decision.payload_hash, sealed.payload),
        *(sealed.projection, decision.projection.status.value),
        *fence_proof(fence),
        decision.work.wakes_parent,
    )
