"""Rules of wakes: which wake an event causes, and how it is delivered."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from lash.base.codec import canonical, content_hash, decode
from lash.errors import CorruptData, InvalidInput
from lash.model.causal import ProcessEventCause
from lash.model.process.event import (
    EventDraft,
    ProcessEvent,
    Wake,
    WakeRecord,
    WakeSpec,
    WakeState,
)
from lash.model.queue import BatchDraft, Delivery, ProcessWake, Slot
from lash.plan.queue.queue import EncodedBatch, encode_batch
from lash.plan.sealed import WAKE
from lash.plan.trigger.selector import as_text, is_truthy, select_for


class WakeRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored wake and its state."""

    sequence: int
    event_type: str
    wake: Annotated[str, WAKE]
    state: str
    batch_id: str | None


class LostWakeRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored wake of any process."""

    process_id: str
    sequence: int
    event_type: str
    wake: Annotated[str, WAKE]
    state: str
    batch_id: str | None


class EventPosition(NamedTuple):
    """The position of an event: the process, which life of it, and the number in its log."""

    process_id: str
    life: int
    sequence: int


def woken_session(record: WakeRecord | None) -> str | None:
    """Return the session that has work now because of a wake; None if the wake was not queued."""
    return record.wake.target_session_id if record is not None and record.state is WakeState.QUEUED else None


def make_wake(
    spec: WakeSpec | None, draft: EventDraft, position: EventPosition, default_target: str | None
) -> Wake | None:
    """Return the wake of an event at this position; None if its type has none, or its condition does not hold."""
    process_id = position.process_id
    if spec is None or (spec.when is not None and not is_truthy(select_for(process_id, spec.when, draft.payload))):
        return None
    target = draft.wake_session_id if draft.wake_session_id is not None else default_target
    if spec.dedupe_key is None:
        key = f"{process_id}:{position.sequence}"
        identity = canonical([target, key, position.life])
    else:
        key = as_text(select_for(process_id, spec.dedupe_key, draft.payload))
        identity = canonical([target, key])
    return Wake(
        wake_id="wake:" + content_hash(b"lash.wake.v1\0" + identity),
        target_session_id=target,
        input=as_text(select_for(process_id, spec.input, draft.payload)),
        dedupe_key=key,
    )


def wake_record(event: ProcessEvent, state: WakeState | None, batch_id: str | None) -> WakeRecord | None:
    """Return the wake of an event with its state; None if the event has none."""
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


def decode_wake(row: WakeRow, process_id: str) -> WakeRecord:
    """Return the wake of a row, or raise CorruptData."""
    what = f"the wake of event {row.sequence} of process {process_id!r}"
    try:
        state = WakeState(row.state)
    except ValueError as error:
        raise CorruptData(f"{what} cannot be read: {error}") from None
    return WakeRecord(
        process_id=process_id,
        sequence=row.sequence,
        event_type=row.event_type,
        wake=decode(row.wake, Wake, what),
        state=state,
        batch_id=row.batch_id,
    )


def decode_lost_wake(row: LostWakeRow) -> WakeRecord:
    """Return the wake of a row, or raise CorruptData."""
    return decode_wake(WakeRow(row.sequence, row.event_type, row.wake, row.state, row.batch_id), row.process_id)


def wake_batch(event: ProcessEvent, session_id: str) -> EncodedBatch:
    """Return the queued work that delivers the wake of an event.

    The wake's id is its source key. All wakes of one id count as the same content: the first one replaces the others.
    """
    wake = event.wake
    if wake is None:
        raise InvalidInput(f"event {event.sequence} of process {event.process_id!r} has no wake")
    payload = ProcessWake(
        wake_id=wake.wake_id,
        process_id=event.process_id,
        sequence=event.sequence,
        event_type=event.event_type,
        input=wake.input,
        caused_by=ProcessEventCause(process_id=event.process_id, sequence=event.sequence),
    )
    draft = BatchDraft(
        session_id=session_id,
        payloads=(payload,),
        source_key=wake.wake_id,
        delivery=Delivery.EARLIEST_SAFE_BOUNDARY,
        slot=Slot.EXCLUSIVE,
    )
    return msgspec.structs.replace(encode_batch(draft), content_hash=content_hash(wake.wake_id.encode()))
