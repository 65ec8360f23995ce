"""Triggers: standing requests to start a process whenever something happens, and what became of them."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from lash.model.process.event import EventType
from lash.model.process.process import EngineInput, HostOriginator, Identity, Recovery, SessionOriginator
from lash.model.value import JSON, Count, JSONObject, Positive, Value

TriggerOwner: TypeAlias = HostOriginator | SessionOriginator
"""Who wants to know. A session is meant by its id; the frame is kept and tells nobody apart."""


class _Binding(Value, frozen=True, kw_only=True, tag_field="type"):
    """Where an input of the process comes from; the ``type`` key tells which."""


class WholeEvent(_Binding, frozen=True, kw_only=True, tag="event"):
    """The payload of the occurrence."""


class FixedInput(_Binding, frozen=True, kw_only=True, tag="fixed"):
    """Always the same value."""

    value: JSON


class EventPointer(_Binding, frozen=True, kw_only=True, tag="pointer"):
    """The value at a JSON pointer (RFC 6901) into the payload, which must be there; a null counts."""

    path: str


InputBinding: TypeAlias = WholeEvent | FixedInput | EventPointer


class TriggerDraft(Value, frozen=True, kw_only=True):
    """The definition of a subscription: what to watch, and what to start.

    ``source`` describes the source and is not looked at; occurrences match by type and key, each equal to the letter.
    The target's payload is an object; what the template yields is put under its key ``args``. ``label`` and
    ``identity.label`` mean the same: giving one of them is enough, giving two different ones is refused. What is stored
    has the identity whole, with the label in it.
    """

    owner: TriggerOwner
    key: str
    source_type: str
    source_key: str
    target: EngineInput
    environment_ref: str
    source: JSON = None
    payload_schema: JSONObject = msgspec.field(default_factory=dict)
    identity: Identity | None = None
    label: str | None = None
    event_types: tuple[EventType, ...] = ()
    input_template: dict[str, InputBinding] = msgspec.field(default_factory=dict)
    wake_session_id: str | None = None
    recovery: Recovery = Recovery.RERUNNABLE


class TriggerSubscription(Value, frozen=True, kw_only=True):
    """A subscription as it stands. Its id belongs to one life: what is deleted and registered again gets another."""

    subscription_id: str
    definition: TriggerDraft
    fingerprint: str
    revision: Positive
    enabled: bool
    created_at_ms: int
    updated_at_ms: int

    @property
    def owner(self) -> TriggerOwner:
        return self.definition.owner

    @property
    def key(self) -> str:
        return self.definition.key


class RegisteredTrigger(Value, frozen=True, kw_only=True):
    """The answer to a registration."""

    subscription: TriggerSubscription
    created: bool


class DeletedTrigger(Value, frozen=True, kw_only=True):
    """The answer to a deletion: whose life ended, and the revision above which the next one starts."""

    subscription_id: str
    revision: Positive


class TriggerFilter(Value, frozen=True, kw_only=True):
    """Which subscriptions a list shows. What is not named does not matter.

    ``session_id`` is short for a session as the owner. ``definition`` is that of the identity.
    """

    owner: TriggerOwner | None = None
    session_id: str | None = None
    key: str | None = None
    source_type: str | None = None
    source_key: str | None = None
    definition: JSON | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | None = None


EVERY_TRIGGER: Final = TriggerFilter()
"""The filter that names nothing."""


class TriggerPage(Value, frozen=True, kw_only=True):
    """Some subscriptions, the newest first, and the cursor with which to ask for the next ones.

    ``damaged`` has the ids of those on this page that cannot be read: asking for one of them says why.
    """

    subscriptions: tuple[TriggerSubscription, ...]
    damaged: tuple[str, ...] = ()
    next_cursor: str | None = None


class OccurrenceRequest(Value, frozen=True, kw_only=True):
    """Something that happened. The idempotency key tells it apart from all else that happened at its source."""

    source_type: str
    source_key: str
    idempotency_key: str
    payload: JSON = None
    source: JSON = None


class Occurrence(Value, frozen=True, kw_only=True):
    """Something that happened, as it was first recorded."""

    occurrence_id: str
    source_type: str
    source_key: str
    idempotency_key: str
    payload: JSON = None
    source: JSON = None
    occurred_at_ms: int


class DeliveryState(enum.StrEnum):
    """What became of a delivery."""

    STARTED = "started"
    """Its process is registered."""
    REJECTED = "rejected"
    """There is no process; the reason says why."""


class TriggerDelivery(Value, frozen=True, kw_only=True):
    """What one occurrence meant to one subscription.

    ``process_id`` is also told of a rejected delivery: it is the process that a retry would start.
    """

    subscription_id: str
    owner_session_id: str | None = None
    key: str
    process_id: str
    state: DeliveryState
    reason: str | None = None
    attempts: Count = 1


class EmitReport(Value, frozen=True, kw_only=True):
    """All deliveries of an occurrence, in the order in which the subscriptions were made."""

    occurrence_id: str
    deliveries: tuple[TriggerDelivery, ...] = ()

    @property
    def started_process_ids(self) -> tuple[str, ...]:
        """The processes that were started."""
        return tuple(each.process_id for each in self.deliveries if each.state is DeliveryState.STARTED)


class PrunedOccurrences(Value, frozen=True, kw_only=True):
    """What a pruning removed."""

    occurrence_ids: tuple[str, ...] = ()
    more: bool = False
