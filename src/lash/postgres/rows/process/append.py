"""Appends on PostgreSQL: plan on facts, write in one guarded statement, plan again when a fact was stale."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.base.ids import new_id
from lash.base.limits import check_identifier
from lash.errors import Conflict, InvalidInput, StoreUnavailable
from lash.model.lease import LeaseFence, ResourceKind
from lash.model.process.event import Appended, EventDraft, ProcessEvent, WakeRecord, WakeState
from lash.model.process.process import ProcessRecord
from lash.plan.lease import check_fence, require_fence
from lash.plan.process.event import AppendDecision, EventRow, InsertEvent, check_draft, encode_projection, plan_append
from lash.plan.process.lease import require_abandonable
from lash.plan.process.process import ProcessRow, decode_process, missing_process, row_after
from lash.plan.process.wake import wake_batch
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.process.rows import AppendAnswer, EventFacts
from lash.sqlkit.rows import Flag, Number

_FREE_PLANS: Final = 3
"""How often an append is planned without a lock, before it waits for its turn on the server."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What must hold for an append beside the rules of the log."""

    fence: LeaseFence | None = None
    """The lease must be live under this fence."""
    ends: bool = False
    """The append frees the lease; one that ended before is left to the plan, so that its end may be repeated."""
    abandons: bool = False
    """Somebody must have asked for the end, and no lease may be live."""


NO_TERMS: Final = Terms()


def fenced(fence: LeaseFence | None) -> Terms:
    """Return the terms of somebody who runs the process, or of anybody else."""
    return NO_TERMS if fence is None else Terms(fence=check_fence("fence", fence, ResourceKind.PROCESS))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What an append came to, and the process as it then stands."""

    appended: Appended
    row: ProcessRow

    @property
    def record(self) -> ProcessRecord:
        return decode_process(self.row)


async def run_append(
    database: Database, seen: ProcessCache, process_id: str, draft: EventDraft, terms: Terms = NO_TERMS
) -> Result:
    """Append one event or raise why not. One round trip if the process was seen before and nothing is in the way."""
    check_identifier("process_id", process_id)
    check_draft(draft)
    async with seen.append_lock(process_id):
        result = await _append_freely(database, seen, process_id, draft, terms)
        if result is None:
            result = await _append_under_lock(database, seen, process_id, draft, terms)
        # Only what was committed: a row that came to nothing could later be taken for another of the same number.
        seen.remember(result.row)
        return result


async def load_facts(database: Database, seen: ProcessCache, process_id: str, replay_key: str | None) -> EventFacts:
    """Return what a plan must know about an append, or raise ProcessNotFound or ProcessPruned."""
    facts = await database.read_one(EventFacts, "event_facts", process_id, replay_key)
    if facts is None:
        raise await missing_record(database, seen, process_id)
    seen.remember(facts.process)
    return facts


def plan_insert(record: ProcessRecord, process_key: int, draft: EventDraft) -> InsertEvent:
    """Decide about an append of an event that is not in the log; when it happens is the server's to say."""
    decision = _plan(record, process_key, draft, None)
    assert isinstance(decision, InsertEvent)
    return decision


async def missing_record(database: Database, seen: ProcessCache, process_id: str) -> Exception:
    """Return the error for a process that has no row."""
    seen.forget(process_id)
    pruned = await database.read_one(Flag, "process_is_pruned", process_id)
    return missing_process(process_id, pruned=pruned is not None and pruned.value)


async def _append_freely(
    database: Database, seen: ProcessCache, process_id: str, draft: EventDraft, terms: Terms
) -> Result | None:
    """Append without a lock; None if others were faster each time."""
    result = await _append_as_seen(database, seen, process_id, draft, terms)
    for _ in range(_FREE_PLANS):
        if result is not None:
            return result
        facts = await load_facts(database, seen, process_id, draft.replay_key)
        result = await _append(database, facts, draft, terms)
    return result


async def _append_as_seen(
    database: Database, seen: ProcessCache, process_id: str, draft: EventDraft, terms: Terms
) -> Result | None:
    """Append on what this storage knows of the process; None if it knows nothing, or too little to be sure."""
    row = seen.get(process_id)
    if row is None or terms.abandons:
        return None
    try:
        decision = plan_insert(decode_process(row), row.process_key, draft)
    except (Conflict, InvalidInput):
        # The event may be in the log already, or the process another one by now: the facts decide.
        return None
    return await _write(database, row, decision, terms)


async def _append(source: Database | Transaction, facts: EventFacts, draft: EventDraft, terms: Terms) -> Result | None:
    """Append on what is stored; None if it changed meanwhile."""
    record, process_key = decode_process(facts.process), facts.process.process_key
    _require(facts, record, terms)
    if facts.known is None:
        return await _write(source, facts.process, plan_insert(record, process_key, draft), terms)
    event = _plan(record, process_key, draft, facts.known.event).event
    wake = _wake_record(event, facts.known.state, facts.known.batch_id)
    return Result(appended=Appended(event=event, replayed=True, wake=wake), row=facts.process)


async def _append_under_lock(
    database: Database, seen: ProcessCache, process_id: str, draft: EventDraft, terms: Terms
) -> Result:
    """Append while nobody else can, for a process to which so many append that planning freely never wins."""
    async with database.transaction() as transaction:
        facts = None
        if await transaction.one(Number, "event_lock", process_id) is not None:
            facts = await transaction.one(EventFacts, "event_facts", process_id, draft.replay_key)
        result = None if facts is None else await _append(transaction, facts, draft, terms)
    if facts is None:
        raise await missing_record(database, seen, process_id)
    if result is None:
        raise StoreUnavailable(f"process {process_id!r} changed while an event was being appended")
    return result


def _plan(record: ProcessRecord, process_key: int, draft: EventDraft, known: EventRow | None) -> AppendDecision:
    return plan_append(
        record.registration,
        record.projection,
        draft,
        life=process_key,
        last_sequence=record.last_sequence,
        wake_session_id=record.wake_session_id,
        known=known,
        now_ms=record.updated_at_ms,
    )


def _require(facts: EventFacts, record: ProcessRecord, terms: Terms) -> None:
    """Raise LeaseLost or Conflict unless the terms hold."""
    if terms.fence is not None and not (terms.ends and record.is_terminal):
        require_fence(facts.lease, terms.fence, facts.now_ms)
    if terms.abandons:
        require_abandonable(record, facts.lease, facts.now_ms)


async def _write(source: Database | Transaction, row: ProcessRow, decision: InsertEvent, terms: Terms) -> Result | None:
    """Write what was decided; None if the guard did not let it pass."""
    projection = encode_projection(decision.projection)
    arguments = _arguments(row, decision, projection, terms)
    if isinstance(source, Transaction):
        answer = await source.one(AppendAnswer, "event_append", *arguments)
    else:
        # Under a replay key a repeat is harmless: the guard refuses it, and the plan then finds the event.
        repeatable = decision.event.replay_key is not None
        answer = await source.write_one(AppendAnswer, "event_append", *arguments, repeatable=repeatable)
    if answer is None:
        return None
    event = msgspec.structs.replace(decision.event, occurred_at_ms=answer.now_ms)
    appended = Appended(event=event, wake=_wake_record(event, answer.state, answer.batch_id))
    return Result(appended=appended, row=row_after(row, projection, answer.now_ms))


def _arguments(row: ProcessRow, decision: InsertEvent, projection: str, terms: Terms) -> list[object]:
    """Return the arguments of ``event_append`` in their order."""
    event, fence = decision.event, terms.fence
    return [
        *(row.process_key, row.last_sequence, row.wake_session_id),
        *(event.event_type, event.replay_key, decision.payload_hash, decision.payload, decision.wake),
        *(projection, decision.projection.status.value, decision.projection.wait is not None),
        *_wake_arguments(event),
        *((None,) * 4 if fence is None else (fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)),
        *(terms.abandons, decision.work.wakes, decision.work.ends, decision.work.wakes_parent),
    ]


def _wake_arguments(event: ProcessEvent) -> tuple[str | None, ...]:
    """Return the target and the batch of the event's wake; nothing where there is nobody to wake."""
    if event.wake is None or event.wake.target_session_id is None:
        return (None,) * 8
    batch = wake_batch(event, event.wake.target_session_id)
    return (
        *(event.wake.target_session_id, batch.draft.source_key, new_id(), batch.content_hash),
        *(batch.lane, batch.draft.delivery.value, batch.draft.slot.value, batch.payloads),
    )


def _wake_record(event: ProcessEvent, state: WakeState | None, batch_id: str | None) -> WakeRecord | None:
    if event.wake is None or state is None:
        return None
    return WakeRecord(
        process_id=event.process_id,
        sequence=event.sequence,
        event_type=event.event_type,
        wake=event.wake,
        state=state,
        batch_id=batch_id,
    )
