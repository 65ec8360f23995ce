"""What an appended event means, whether it may be appended, and what a log adds up to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from lash.codec import canonical, content_hash, decode, encode
from lash.errors import CorruptData, EventConflict, InvalidInput, ProcessTerminal
from lash.limits import MAX_IDENTIFIER_LENGTH, check_identifier, check_text
from lash.model.causal import ProcessEventCause
from lash.model.event import (
    ABANDON_REQUESTED,
    ABANDONED,
    CANCEL_REQUESTED,
    CANCELLED,
    COMPLETED,
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
    Selector,
    TerminalSpec,
    TerminalState,
    Wake,
    WakeRecord,
    WakeSpec,
    WakeState,
)
from lash.model.lease import LeaseOwner
from lash.model.process import (
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
from lash.model.queue import BatchDraft, Delivery, ProcessWake, Slot
from lash.model.value import JSON, JSONObject, Value
from lash.plan.queue import EncodedBatch, encode_batch
from lash.plan.schema import check_payload
from lash.plan.selector import as_text, is_truthy, select

T = TypeVar("T")

_OUTCOME: Final = Pointer(path="/outcome")
_SIGNAL_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")

CORE_EVENT_TYPES: Final = (
    *(EventType(name=name) for name in (CANCEL_REQUESTED, ABANDON_REQUESTED, STARTED, EXTERNAL_REF_SET)),
    *(EventType(name=name) for name in (WAITING, RESUMED)),
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
"""The types that every process has. Their names cannot be declared otherwise."""

CORE_NAMES: Final = frozenset(event_type.name for event_type in CORE_EVENT_TYPES)
_STATE_OF: Final[Mapping[type, TerminalState]] = {
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
    payload: str
    wake: str | None
    occurred_at_ms: int


class SequenceRow(msgspec.Struct, frozen=True, array_like=True):
    """How far the log of a process has come."""

    process_id: str
    last_sequence: int


class WakeRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored wake and what became of it."""

    sequence: int
    event_type: str
    wake: str
    state: str
    batch_id: str | None


class LostWakeRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored wake of any process."""

    process_id: str
    sequence: int
    event_type: str
    wake: str
    state: str
    batch_id: str | None


class _Payload(Value, frozen=True, kw_only=True):
    payload: JSON


class _Outcome(Value, frozen=True, kw_only=True):
    outcome: Outcome


class _Place(NamedTuple):
    """Where an event stands: in which life of which process, and at which number."""

    process_id: str
    life: int
    sequence: int


class InsertEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Write this event under the next number; the record then stands as ``projection``."""

    event: ProcessEvent
    payload: str
    payload_hash: str
    wake: str | None
    projection: Projection


class ReplayEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The event is in the log already; write nothing."""

    event: ProcessEvent


AppendDecision: TypeAlias = InsertEvent | ReplayEvent


def check_draft(draft: object) -> EventDraft:
    """Return the draft if its fields are of the right kind and its payload is JSON."""
    if not isinstance(draft, EventDraft):
        raise InvalidInput(f"an EventDraft is needed, not {type(draft).__name__}")
    check_identifier("event_type", draft.event_type)
    for what, text in (("replay_key", draft.replay_key), ("wake_session_id", draft.wake_session_id)):
        if text is not None:
            check_identifier(what, text)
    encode(_Payload(payload=draft.payload), _Payload, "payload")
    return draft


def payload_hash(event_type: str, payload: JSON) -> str:
    """Return the identity of an event's content: its type and its payload."""
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

    ``known`` is the stored event of the draft's replay key. ``wake_session_id`` is whom the record wakes by default.
    ``life`` tells this process from an earlier one of the same id that was pruned: their wakes are not the same.
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
    event = ProcessEvent(
        process_id=process_id,
        sequence=last_sequence + 1,
        event_type=draft.event_type,
        payload=draft.payload,
        replay_key=draft.replay_key,
        wake=_wake(declared.semantics.wake, draft, _Place(process_id, life, last_sequence + 1), wake_session_id),
        occurred_at_ms=now_ms,
    )
    return InsertEvent(
        event=event,
        payload=encode(_Payload(payload=draft.payload), _Payload, "payload"),
        payload_hash=own_hash,
        wake=None if event.wake is None else encode(event.wake, Wake, "wake"),
        projection=fold(registration, projection, event),
    )


def declared_type(registration: Registration, name: str) -> EventType:
    """Return the type of this name that the process declared, or raise InvalidInput."""
    for event_type in (*CORE_EVENT_TYPES, *registration.event_types):
        if event_type.name == name:
            return event_type
    raise InvalidInput(f"process {registration.process_id!r} has undeclared event type {name!r}")


def fold(registration: Registration, projection: Projection, event: ProcessEvent) -> Projection:
    """Return what the process stands at after one more event, or raise ProcessTerminal."""
    terminal = declared_type(registration, event.event_type).semantics.terminal
    if terminal is not None:
        if projection.status is not ProcessStatus.RUNNING:
            raise ProcessTerminal(registration.process_id, projection.status.value)
        outcome = _terminal_outcome(registration.process_id, terminal, event.payload)
        status = TERMINAL_STATUS[terminal.state]
        return msgspec.structs.replace(projection, status=status, outcome=outcome, wait=None)
    if projection.status is not ProcessStatus.RUNNING and event.event_type in (WAITING, STARTED):
        raise ProcessTerminal(registration.process_id, projection.status.value)
    return _fold_core(projection, event)


def refold(registration: Registration, events: Iterable[ProcessEvent]) -> Projection:
    """Return what a whole log adds up to."""
    projection = Projection()
    for event in events:
        projection = fold(registration, projection, event)
    return projection


def decode_event(row: EventRow, process_id: str) -> ProcessEvent:
    """Return the event that the row means."""
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


def decode_wake(row: WakeRow, process_id: str) -> WakeRecord:
    """Return the wake that the row means."""
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
    """Return the wake that the row means."""
    return decode_wake(WakeRow(row.sequence, row.event_type, row.wake, row.state, row.batch_id), row.process_id)


def wake_batch(event: ProcessEvent, session_id: str) -> EncodedBatch:
    """Return the queued work that delivers the wake of an event.

    The wake's id is its source key, and all wakes of one id count as the same content: the first stands for all.
    """
    wake = event.wake
    if wake is None:
        raise InvalidInput(f"event {event.sequence} of process {event.process_id!r} wakes nobody")
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


def encode_projection(projection: Projection) -> str:
    return encode(projection, Projection, "projection")


def completion_draft(process_id: str, outcome: Outcome) -> EventDraft:
    """Return the event that ends a process with this outcome; completing twice alike is one completion."""
    if type(outcome) not in _STATE_OF:
        raise InvalidInput(f"an outcome is Success, Failure, Cancellation or Abandonment, not {outcome!r:.80}")
    event_type = f"process.{_STATE_OF[type(outcome)].value}"
    encode(_Outcome(outcome=outcome), _Outcome, "outcome")
    payload: JSONObject = {"outcome": msgspec.to_builtins(outcome)}
    key = _replay_key(f"process:{process_id}:terminal:{event_type}")
    return EventDraft(event_type=event_type, payload=payload, replay_key=key)


def abandonment_draft(process_id: str, outcome: Abandonment) -> EventDraft:
    """Return the event with which a process is given up; no other outcome comes this way."""
    if not isinstance(outcome, Abandonment):
        raise InvalidInput(f"process {process_id!r}: an Abandonment is needed, not {type(outcome).__name__}")
    return completion_draft(process_id, outcome)


def cancel_draft(process_id: str, reason: str) -> EventDraft:
    """Return the event that asks a process to stop; one for each reason."""
    payload: JSONObject = {"reason": check_text("reason", reason)}
    key = _replay_key(f"process:{process_id}:cancel:{payload_hash(CANCEL_REQUESTED, payload)}")
    return EventDraft(event_type=CANCEL_REQUESTED, payload=payload, replay_key=key)


def signal_draft(process_id: str, name: str, signal_id: str, payload: JSON) -> EventDraft:
    """Return the event of a signal; the same signal id is one signal."""
    check_signal_name(name)
    check_identifier("signal_id", signal_id)
    event_type = SIGNAL_PREFIX + name
    key = _replay_key(f"process:{process_id}:{event_type}:{signal_id}")
    return EventDraft(event_type=event_type, payload=payload, replay_key=key)


def waiting_draft(process_id: str, wait: SignalWait) -> EventDraft:
    """Return the event with which a process parks until a signal."""
    _check_wait(wait)
    payload: JSONObject = {"wait": msgspec.to_builtins(wait)}
    key = _replay_key(f"process:{process_id}:waiting:{SIGNAL_PREFIX}{wait.name}:{wait.ordinal}")
    return EventDraft(event_type=WAITING, payload=payload, replay_key=key)


def resumed_draft(process_id: str, wait: SignalWait) -> EventDraft:
    """Return the event with which a process goes on after a signal."""
    _check_wait(wait)
    payload: JSONObject = {"name": wait.name, "ordinal": wait.ordinal}
    key = _replay_key(f"process:{process_id}:resumed:{SIGNAL_PREFIX}{wait.name}:{wait.ordinal}")
    return EventDraft(event_type=RESUMED, payload=payload, replay_key=key)


def external_ref_draft(reference: ExternalRef) -> EventDraft:
    """Return the event that says where else a process can be found."""
    encode(reference, ExternalRef, "external_ref")
    return EventDraft(event_type=EXTERNAL_REF_SET, payload=msgspec.to_builtins(reference))


def abandon_request_draft(process_id: str, reason: str) -> EventDraft:
    """Return the event with which an operator gives a process up, once its lease has lapsed."""
    payload: JSONObject = {"reason": check_text("reason", reason)}
    key = _replay_key(f"process:{process_id}:abandon:{payload_hash(ABANDON_REQUESTED, payload)}")
    return EventDraft(event_type=ABANDON_REQUESTED, payload=payload, replay_key=key)


def started_draft(process_id: str, owner: LeaseOwner) -> EventDraft:
    """Return the event that a worker began to run the process."""
    key = content_hash(canonical(["started", process_id, owner]))
    return EventDraft(event_type=STARTED, payload={"owner": msgspec.to_builtins(owner)}, replay_key=key)


def check_signal_name(name: object) -> str:
    """Return the name if it is one that a signal may have."""
    if not isinstance(name, str) or not name or not set(name) <= _SIGNAL_CHARACTERS:
        raise InvalidInput(f"a signal's name is made of ASCII letters, digits, _ and -, not {name!r:.80}")
    return name


def _check_wait(wait: SignalWait) -> None:
    encode(wait, SignalWait, "wait")
    check_signal_name(wait.name)


def _replay_key(text: str) -> str:
    """Return the key itself, or what stands for it where ids of full length make it too long for a key."""
    return text if len(text) <= MAX_IDENTIFIER_LENGTH else "sha256:" + content_hash(text.encode())


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
        case "process.abandon_requested":
            return change(projection, abandon_requested=True)
        case _:
            return projection


def _read(event: ProcessEvent, value: object, shape: type[T]) -> T:
    """Return a part of a core event's payload, which anybody may have written, as what it must be."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"process {event.process_id!r}: payload of {event.event_type!r}: {error}") from None


def _terminal_outcome(process_id: str, terminal: TerminalSpec, payload: JSON) -> Outcome:
    """Return what those who wait get: the outcome itself if the selection is one, else made from its value."""
    value = payload if terminal.await_output is None else _select(process_id, terminal.await_output, payload)
    try:
        outcome = msgspec.convert({"outcome": value}, _Outcome).outcome
    except msgspec.ValidationError:
        return _made_outcome(terminal.state, value)
    if _STATE_OF[type(outcome)] is not terminal.state:
        raise InvalidInput(
            f"process {process_id!r}: an event that means {terminal.state.value} carries a {type(outcome).__name__}"
        )
    return outcome


def _select(process_id: str, selector: Selector, payload: JSON) -> JSON:
    try:
        return select(selector, payload)
    except InvalidInput as error:
        raise InvalidInput(f"process {process_id!r}: {error}") from None


def _made_outcome(state: TerminalState, value: JSON) -> Outcome:
    match state:
        case TerminalState.COMPLETED:
            return Success(value=value)
        case TerminalState.FAILED:
            return Failure(code="process_failed", message=as_text(value), raw=value)
        case TerminalState.CANCELLED:
            return Cancellation(message=as_text(value), raw=value)
    return Abandonment(message=as_text(value))


def _wake(spec: WakeSpec | None, draft: EventDraft, place: _Place, default_target: str | None) -> Wake | None:
    process_id = place.process_id
    if spec is None or (spec.when is not None and not is_truthy(_select(process_id, spec.when, draft.payload))):
        return None
    target = draft.wake_session_id if draft.wake_session_id is not None else default_target
    if spec.dedupe_key is None:
        key = f"{process_id}:{place.sequence}"
        identity = canonical([target, key, place.life])
    else:
        key = as_text(_select(process_id, spec.dedupe_key, draft.payload))
        identity = canonical([target, key])
    return Wake(
        wake_id="wake:" + content_hash(b"lash.wake.v1\0" + identity),
        target_session_id=target,
        input=as_text(_select(process_id, spec.input, draft.payload)),
        dedupe_key=key,
    )
