"""Rules of process events: whether one may be appended, its effect, and the fold of a log into a state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier
from lash.base.shapes import convert
from lash.errors import EventConflict, InvalidInput, ProcessTerminal
from lash.model.lease import LeaseOwner
from lash.model.process.continuation import Continuation
from lash.model.process.event import (
    ABANDON_REQUESTED,
    ABANDONED,
    ANY_SIGNAL,
    ATTEMPT_FAILED,
    CANCEL_REQUESTED,
    CANCELLED,
    COMPLETED,
    CONTINUED,
    EXTERNAL_REF_SET,
    FAILED,
    RESUMED,
    SIGNAL_PREFIX,
    STARTED,
    WAITING,
    EventDraft,
    EventSemantics,
    EventType,
    Pointer,
    ProcessEvent,
    TerminalSpec,
    TerminalState,
    Wake,
)
from lash.model.process.process import (
    TERMINAL_STATUS,
    Abandonment,
    Cancellation,
    ExternalRef,
    Failure,
    Outcome,
    ProcessStatus,
    Projection,
    Registration,
    SignalWait,
    Success,
)
from lash.model.value import JSON, Value
from lash.plan.process.schema import check_payload
from lash.plan.process.wake import EventPosition, make_wake
from lash.plan.sealed import EVENT, WAKE
from lash.plan.trigger.selector import as_text, select_for
from lash.plan.work import WorkChange, plan_work

T = TypeVar("T")

_OUTCOME: Final = Pointer(path="/outcome")

CORE_EVENT_TYPES: Final = (
    *(EventType(name=name) for name in (CANCEL_REQUESTED, ABANDON_REQUESTED, STARTED, EXTERNAL_REF_SET)),
    *(EventType(name=name) for name in (WAITING, RESUMED, ATTEMPT_FAILED, CONTINUED)),
    *(
        EventType(name=name, semantics=EventSemantics(terminal=TerminalSpec(state=state, await_output=_OUTCOME)))
        for name, state in (
            (COMPLETED, TerminalState.COMPLETED),
            (FAILED, TerminalState.FAILED),
            (CANCELLED, TerminalState.CANCELLED),
            (ABANDONED, TerminalState.ABANDONED),
        )
    ),
)
"""The types that every process has. A registration cannot declare their names."""

MAX_PAYLOAD_LENGTH: Final = 1_048_576
"""The most characters that the payload of one event may have, encoded; larger values belong in artifacts."""

CORE_NAMES: Final = frozenset(event_type.name for event_type in CORE_EVENT_TYPES)
STATE_OF: Final[Mapping[type, TerminalState]] = {
    Success: TerminalState.COMPLETED,
    Failure: TerminalState.FAILED,
    Cancellation: TerminalState.CANCELLED,
    Abandonment: TerminalState.ABANDONED,
}


class EventRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored event."""

    sequence: int
    event_type: str
    replay_key: str | None
    payload_hash: str
    payload: Annotated[str, EVENT]
    wake: Annotated[str | None, WAKE]
    occurred_at_ms: int


class SequenceRow(msgspec.Struct, frozen=True, array_like=True):
    """The number of the last event in the log of a process."""

    process_id: str
    last_sequence: int


class _Payload(Value, frozen=True, kw_only=True):
    payload: JSON


class OutcomeBox(Value, frozen=True, kw_only=True):
    outcome: Outcome


class InsertEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Write this event under the next number; ``projection`` is the state after it."""

    event: ProcessEvent
    payload: str
    payload_hash: str
    wake: str | None
    projection: Projection
    work: WorkChange


class ReplayEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The log has the event already; write nothing."""

    event: ProcessEvent


AppendDecision: TypeAlias = InsertEvent | ReplayEvent


def check_draft(draft: object) -> EventDraft:
    """Return the draft, or raise InvalidInput unless its fields are valid and its payload is JSON."""
    if not isinstance(draft, EventDraft):
        raise InvalidInput(f"expected an EventDraft, got {type(draft).__name__}")
    check_identifier("event_type", draft.event_type)
    for what, text in (("replay_key", draft.replay_key), ("wake_session_id", draft.wake_session_id)):
        if text is not None:
            check_identifier(what, text)
    encode(_Payload(payload=draft.payload), _Payload, "payload")
    return draft


def payload_hash(event_type: str, payload: JSON) -> str:
    """Return the hash of an event's type and payload."""
    return content_hash(b"lash.event.v1\0" + canonical([event_type, payload]))


def plan_append(
    registration: Registration,
    projection: Projection,
    draft: EventDraft,
    *,
    life: int,
    last_sequence: int,
    wake_session_id: str | None,
    known: EventRow | None,
    now_ms: int,
) -> AppendDecision:
    """Decide about an append. The checks come in this order: replay, declaration, key, payload, terminal.

    ``known`` is the stored event of the draft's replay key. ``wake_session_id`` is the default target of wakes.
    ``life`` distinguishes this process from an earlier, pruned one of the same id: their wakes differ.
    """
    process_id, own_hash = registration.process_id, payload_hash(draft.event_type, draft.payload)
    if known is not None:
        if known.payload_hash != own_hash:
            raise EventConflict(process_id, draft.replay_key or "")
        return ReplayEvent(event=decode_event(known, process_id))
    declared = declared_type(registration, draft.event_type)
    if (declared.semantics.terminal or draft.event_type == CANCEL_REQUESTED) and draft.replay_key is None:
        raise InvalidInput(f"process {process_id!r}: event {draft.event_type!r} requires a replay key")
    check_payload(f"process {process_id!r}: payload of {draft.event_type!r}", declared.payload_schema, draft.payload)
    body = encode(_Payload(payload=draft.payload), _Payload, "payload")
    if len(body) > MAX_PAYLOAD_LENGTH:
        raise InvalidInput(
            f"process {process_id!r}: the payload of {draft.event_type!r} has {len(body):,} characters; at most "
            f"{MAX_PAYLOAD_LENGTH:,} are allowed: store large content as an artifact or attachment"
        )
    position = EventPosition(process_id, life, last_sequence + 1)
    event = ProcessEvent(
        process_id=process_id,
        sequence=position.sequence,
        event_type=draft.event_type,
        payload=draft.payload,
        replay_key=draft.replay_key,
        wake=make_wake(declared.semantics.wake, draft, position, wake_session_id),
        occurred_at_ms=now_ms,
    )
    after = fold(registration, projection, event)
    return InsertEvent(
        event=event,
        payload=body,
        payload_hash=own_hash,
        wake=None if event.wake is None else encode(event.wake, Wake, "wake"),
        projection=after,
        work=plan_work(registration, projection, event.event_type, after),
    )


def declared_type(registration: Registration, name: str) -> EventType:
    """Return the type of this name that the process declared, or raise InvalidInput."""
    for event_type in (*CORE_EVENT_TYPES, *registration.event_types):
        if event_type.name == name:
            return event_type
    if name.startswith(SIGNAL_PREFIX):
        for event_type in registration.event_types:
            if event_type.name == ANY_SIGNAL:
                return event_type
    raise InvalidInput(f"process {registration.process_id!r} has undeclared event type {name!r}")


def fold(registration: Registration, projection: Projection, event: ProcessEvent) -> Projection:
    """Return the state after one more event, or raise ProcessTerminal."""
    terminal = declared_type(registration, event.event_type).semantics.terminal
    if terminal is not None:
        if projection.status is not ProcessStatus.RUNNING:
            raise ProcessTerminal(registration.process_id, projection.status.value)
        outcome = _terminal_outcome(registration.process_id, terminal, event.payload)
        status = TERMINAL_STATUS[terminal.state]
        return msgspec.structs.replace(projection, status=status, outcome=outcome, wait=None)
    if projection.status is not ProcessStatus.RUNNING and event.event_type in (WAITING, STARTED, CONTINUED):
        raise ProcessTerminal(registration.process_id, projection.status.value)
    return _fold_core(projection, event)


def refold(registration: Registration, events: Iterable[ProcessEvent]) -> Projection:
    """Return the state after all events of a log."""
    projection = Projection()
    for event in events:
        projection = fold(registration, projection, event)
    return projection


def decode_event(row: EventRow, process_id: str) -> ProcessEvent:
    """Return the event of a row, or raise CorruptData."""
    what = f"event {row.sequence} of process {process_id!r}"
    return ProcessEvent(
        process_id=process_id,
        sequence=row.sequence,
        event_type=row.event_type,
        payload=decode(row.payload, _Payload, what).payload,
        replay_key=row.replay_key,
        wake=None if row.wake is None else decode(row.wake, Wake, what),
        occurred_at_ms=row.occurred_at_ms,
    )


def encode_projection(projection: Projection) -> str:
    return encode(projection, Projection, "projection")


def _fold_core(projection: Projection, event: ProcessEvent) -> Projection:
    payload = event.payload if isinstance(event.payload, dict) else {}
    change = msgspec.structs.replace
    match event.event_type:
        case "process.waiting":
            return change(projection, wait=_read(event, payload.get("wait"), SignalWait))
        case "process.resumed":
            return change(projection, wait=None)
        case "process.external_ref_set":
            return change(projection, external_ref=_read(event, payload, ExternalRef))
        case "process.started":
            return change(projection, started_by=_read(event, payload.get("owner"), LeaseOwner))
        case "process.cancel_requested":
            reason = payload.get("reason")
            return change(projection, cancel_requested=True, cancel_reason=None if reason is None else as_text(reason))
        case "process.continued":
            return _continued(projection, event)
        case "process.abandon_requested":
            return change(projection, abandon_requested=True)
        case _:
            return projection


def _continued(projection: Projection, event: ProcessEvent) -> Projection:
    """Return the state at the begin of the next run; runs are numbered without gaps."""
    run = _read(event, event.payload, Continuation).run
    if run != projection.run + 1:
        raise InvalidInput(f"process {event.process_id!r}: expected run {projection.run + 1} to follow, got {run}")
    return msgspec.structs.replace(projection, run=run, continued_at=event.sequence, wait=None)


def _read(event: ProcessEvent, value: object, shape: type[T]) -> T:
    """Return a part of a core event's payload as its type; any caller may have written the payload."""
    try:
        return convert(value, shape)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"process {event.process_id!r}: payload of {event.event_type!r}: {error}") from None


def _terminal_outcome(process_id: str, terminal: TerminalSpec, payload: JSON) -> Outcome:
    """Return the outcome for waiters: the selected value if it is an outcome, else one made from it."""
    value = payload if terminal.await_output is None else select_for(process_id, terminal.await_output, payload)
    try:
        outcome = convert({"outcome": value}, OutcomeBox).outcome
    except msgspec.ValidationError:
        return _made_outcome(terminal.state, value)
    if STATE_OF[type(outcome)] is not terminal.state:
        raise InvalidInput(
            f"process {process_id!r}: an event that means {terminal.state.value} carries a {type(outcome).__name__}"
        )
    return outcome


def _made_outcome(state: TerminalState, value: JSON) -> Outcome:
    match state:
        case TerminalState.COMPLETED:
            return Success(value=value)
        case TerminalState.FAILED:
            return Failure(code="process_failed", message=as_text(value), raw=value)
        case TerminalState.CANCELLED:
            return Cancellation(message=as_text(value), raw=value)
    return Abandonment(message=as_text(value))
