"""The events that the operations on a process append."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.base.codec import canonical, content_hash, encode
from lash.base.limits import MAX_IDENTIFIER_LENGTH, check_identifier, check_text
from lash.errors import InvalidInput
from lash.model.lease import LeaseOwner
from lash.model.process.continuation import Continuation
from lash.model.process.event import (
    ABANDON_REQUESTED,
    CANCEL_REQUESTED,
    CONTINUED,
    EXTERNAL_REF_SET,
    RESUMED,
    SIGNAL_PREFIX,
    STARTED,
    WAITING,
    EventDraft,
)
from lash.model.process.process import (
    Abandonment,
    ExternalRef,
    Outcome,
    SignalWait,
)
from lash.model.value import JSON, JSONObject
from lash.plan.process.event import STATE_OF, OutcomeBox, payload_hash

_SIGNAL_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def completion_draft(process_id: str, outcome: Outcome) -> EventDraft:
    """Return the event that ends a process with this outcome; completing twice with the same outcome is idempotent."""
    if type(outcome) not in STATE_OF:
        raise InvalidInput(f"expected Success, Failure, Cancellation or Abandonment as outcome, got {outcome!r:.80}")
    event_type = f"process.{STATE_OF[type(outcome)].value}"
    encode(OutcomeBox(outcome=outcome), OutcomeBox, "outcome")
    payload: JSONObject = {"outcome": msgspec.to_builtins(outcome)}
    key = _replay_key(f"process:{process_id}:terminal:{event_type}")
    return EventDraft(event_type=event_type, payload=payload, replay_key=key)


def unleased_end_draft(process_id: str, outcome: Outcome) -> EventDraft:
    """Return the event that ends a process without a lease; an abandonment has conditions of its own."""
    if isinstance(outcome, Abandonment):
        raise InvalidInput(f"process {process_id!r}: an Abandonment must go through abandon(), not complete()")
    return completion_draft(process_id, outcome)


def abandonment_draft(process_id: str, outcome: Abandonment) -> EventDraft:
    """Return the event that abandons a process; other outcomes are refused."""
    if not isinstance(outcome, Abandonment):
        raise InvalidInput(f"process {process_id!r}: expected an Abandonment, got {type(outcome).__name__}")
    return completion_draft(process_id, outcome)


def cancel_draft(process_id: str, reason: str) -> EventDraft:
    """Return the event that asks a process to stop; there is one per reason."""
    payload: JSONObject = {"reason": check_text("reason", reason)}
    key = _replay_key(f"process:{process_id}:cancel:{payload_hash(CANCEL_REQUESTED, payload)}")
    return EventDraft(event_type=CANCEL_REQUESTED, payload=payload, replay_key=key)


def abandon_request_draft(process_id: str, reason: str) -> EventDraft:
    """Return the event with which an operator asks to abandon a process."""
    payload: JSONObject = {"reason": check_text("reason", reason)}
    key = _replay_key(f"process:{process_id}:abandon:{payload_hash(ABANDON_REQUESTED, payload)}")
    return EventDraft(event_type=ABANDON_REQUESTED, payload=payload, replay_key=key)


def signal_draft(process_id: str, name: str, signal_id: str, payload: JSON) -> EventDraft:
    """Return the event of a signal; the same signal id is one signal."""
    check_signal_name(name)
    check_identifier("signal_id", signal_id)
    event_type = SIGNAL_PREFIX + name
    key = _replay_key(f"process:{process_id}:{event_type}:{signal_id}")
    return EventDraft(event_type=event_type, payload=payload, replay_key=key)


def waiting_draft(process_id: str, wait: SignalWait) -> EventDraft:
    """Return the event that a process waits for a signal."""
    _check_wait(wait)
    payload: JSONObject = {"wait": msgspec.to_builtins(wait)}
    key = _replay_key(f"process:{process_id}:waiting:{SIGNAL_PREFIX}{wait.name}:{wait.ordinal}")
    return EventDraft(event_type=WAITING, payload=payload, replay_key=key)


def resumed_draft(process_id: str, wait: SignalWait) -> EventDraft:
    """Return the event that a process continues after a signal."""
    _check_wait(wait)
    payload: JSONObject = {"name": wait.name, "ordinal": wait.ordinal}
    key = _replay_key(f"process:{process_id}:resumed:{SIGNAL_PREFIX}{wait.name}:{wait.ordinal}")
    return EventDraft(event_type=RESUMED, payload=payload, replay_key=key)


def continuation_draft(process_id: str, continuation: Continuation) -> EventDraft:
    """Return the event that begins the next run of a process; there is one per run."""
    if not isinstance(continuation, Continuation):
        raise InvalidInput(f"process {process_id!r}: expected a Continuation, got {type(continuation).__name__}")
    encode(continuation, Continuation, "continuation")
    payload: JSONObject = msgspec.to_builtins(continuation)
    return EventDraft(event_type=CONTINUED, payload=payload, replay_key=f"continued:{continuation.run}")


def external_ref_draft(reference: ExternalRef) -> EventDraft:
    """Return the event that records the id of a process in another system."""
    encode(reference, ExternalRef, "external_ref")
    return EventDraft(event_type=EXTERNAL_REF_SET, payload=msgspec.to_builtins(reference))


def started_draft(process_id: str, owner: LeaseOwner) -> EventDraft:
    """Return the event that an owner started to run the process."""
    key = content_hash(canonical(["started", process_id, owner]))
    return EventDraft(event_type=STARTED, payload={"owner": msgspec.to_builtins(owner)}, replay_key=key)


def check_signal_name(name: object) -> str:
    """Return the name, or raise InvalidInput if a signal cannot have it."""
    if not isinstance(name, str) or not name or not set(name) <= _SIGNAL_CHARACTERS:
        raise InvalidInput(f"expected a signal name of ASCII letters, digits, _ and -, got {name!r:.80}")
    return name


def _check_wait(wait: SignalWait) -> None:
    encode(wait, SignalWait, "wait")
    check_signal_name(wait.name)


def _replay_key(text: str) -> str:
    """Return the text as a key, or its hash if long ids make it too long for a key."""
    return text if len(text) <= MAX_IDENTIFIER_LENGTH else "sha256:" + content_hash(text.encode())
