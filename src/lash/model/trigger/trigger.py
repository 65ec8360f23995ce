"""Triggers: subscriptions that start a process for every matching occurrence, and their deliveries."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from lash.model.process.event import EventType
from lash.model.process.process import EngineInput, HostOriginator, ProcessIdentity, Recovery, SessionOriginator
from lash.model.value import JSON, Count, JSONObject, Positive, Value

TriggerOwner: TypeAlias = HostOriginator | SessionOriginator
"""The owner of a subscription. A session is identified by its id; its frame is stored but not compared."""


class _Binding(Value, frozen=True, kw_only=True, tag_field="type"):
    """The origin of an input of the process; the ``type`` key names the kind."""


class WholeEvent(_Binding, frozen=True, kw_only=True, tag="event"):
    """The payload of the occurrence."""


class FixedInput(_Binding, frozen=True, kw_only=True, tag="fixed"):
    """A constant."""

    value: JSON


class EventPointer(_Binding, frozen=True, kw_only=True, tag="pointer"):
    """The value at a JSON pointer (RFC 6901) into the payload; it must exist, and may be null."""

    path: str


InputBinding: TypeAlias = WholeEvent | FixedInput | EventPointer


class TriggerDraft(Value, frozen=True, kw_only=True):
    """The definition of a subscription: the source it watches and the process it starts.

    Occurrences match if source type and source key are equal. ``source`` only describes the source. The payload of the
    target is an object; the inputs from the template are put under its key ``args``. ``label`` and ``identity.label``
    mean the same: one of them is enough, and two different ones are refused. The stored definition has the label in
    its identity.
    """

    owner: TriggerOwner
    key: str
    source_type: str
    source_key: str
    target: EngineInput
    environment_ref: str
    source: JSON = None
    payload_schema: JSONObject = msgspec.field(default_factory=dict)
    identity: ProcessIdentity | None = None
    label: str | None = None
    event_types: tuple[EventType, ...] = ()
    input_template: dict[str, InputBinding] = msgspec.field(default_factory=dict)
    wake_session_id: str | None = None
    recovery: Recovery = Recovery.RERUNNABLE


class TriggerSubscription(Value, frozen=True, kw_only=True):
    """A subscription in its current state. Deleting and registering it again gives it another id."""

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
    """The answer to a deletion: the id, and the revision above which a new subscription of the name starts."""

    subscription_id: str
    revision: Positive


class TriggerFilter(Value, frozen=True, kw_only=True):
    """Which subscriptions a list shows; fields without a value do not filter.

    ``session_id`` is short for a session as the owner. ``definition`` is the definition of the identity.
    """

    owner: TriggerOwner | None = None
    session_id: str | None = None
    key: str | None = None
    source_type: str | None = None
    source_key: str | None = None
    definition: JSON | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | None = None


EVERY_TRIGGER: Final = TriggerFilter()
"""The filter that shows every subscription."""


class TriggerPage(Value, frozen=True, kw_only=True):
    """One page of subscriptions, newest first; ``next_cursor`` asks for the next page.

    ``damaged`` lists the ids of unreadable subscriptions on this page; getting one of them raises the reason.
    """

    subscriptions: tuple[TriggerSubscription, ...]
    damaged: tuple[str, ...] = ()
    next_cursor: str | None = None


class OccurrenceRequest(Value, frozen=True, kw_only=True):
    """An occurrence to emit. The idempotency key identifies it among all occurrences of its source."""

    source_type: str
    source_key: str
    idempotency_key: str
    payload: JSON = None
    source: JSON = None


class Occurrence(Value, frozen=True, kw_only=True):
    """An occurrence as it was first recorded."""

    occurrence_id: str
    source_type: str
    source_key: str
    idempotency_key: str
    payload: JSON = None
    source: JSON = None
    occurred_at_ms: int


class DeliveryState(enum.StrEnum):
    """The state of a delivery."""

    STARTED = "started"
    """Its process is registered."""
    REJECTED = "rejected"
    """No process was started; ``reason`` has the cause."""


class TriggerDelivery(Value, frozen=True, kw_only=True):
    """The delivery of one occurrence to one subscription.

    A rejected delivery has a ``process_id`` too: the process that a retry would start.
    """

    subscription_id: str
    owner_session_id: str | None = None
    key: str
    process_id: str
    state: DeliveryState
    reason: str | None = None
    attempts: Count = 1


class EmitReport(Value, frozen=True, kw_only=True):
    """All deliveries of an occurrence, in the order in which the subscriptions were created."""

    occurrence_id: str
    deliveries: tuple[TriggerDelivery, ...] = ()

    @property
    def started_process_ids(self) -> tuple[str, ...]:
        """The processes that were started."""
        return tuple(each.process_id for each in self.deliveries if each.state is DeliveryState.STARTED)


class PrunedOccurrences(Value, frozen=True, kw_only=True):
    """The occurrences that a call removed; ``more`` is true if another call may remove more."""

    occurrence_ids: tuple[str, ...] = ()
    more: bool = False
