"""Builders of valid values for tests of triggers."""

from __future__ import annotations

from typing import Final, TypedDict, Unpack

from lash.model.process.event import EventType
from lash.model.process.process import (
    AgentScope,
    EngineInput,
    HostOriginator,
    ProcessIdentity,
    Recovery,
    SessionOriginator,
)
from lash.model.trigger.trigger import (
    InputBinding,
    OccurrenceRequest,
    TriggerDelivery,
    TriggerDraft,
    TriggerOwner,
    TriggerSubscription,
)
from lash.model.value import JSON, JSONObject
from lash.stores.storage import Storage

BUTTON: Final = "ui.button.pressed"
"""The type of the source that most tests watch."""
BLUE: Final = "blue"
"""Its key."""
HOST: Final = HostOriginator()


class DraftFields(TypedDict, total=False):
    """The optional fields of a definition."""

    owner: TriggerOwner
    source_type: str
    source_key: str
    source: JSON
    target: EngineInput
    environment_ref: str
    payload_schema: JSONObject
    identity: ProcessIdentity | None
    label: str | None
    event_types: tuple[EventType, ...]
    input_template: dict[str, InputBinding]
    wake_session_id: str | None
    recovery: Recovery


def trigger(key: str = "k", **fields: Unpack[DraftFields]) -> TriggerDraft:
    """Return the definition of a subscription of the host to the blue button."""
    fields.setdefault("owner", HOST)
    fields.setdefault("source_type", BUTTON)
    fields.setdefault("source_key", BLUE)
    fields.setdefault("target", EngineInput(kind="work", payload={"module": "m"}))
    fields.setdefault("environment_ref", "environment")
    return TriggerDraft(key=key, **fields)


def by_session(session_id: str = "s", frame_id: str | None = None) -> SessionOriginator:
    """Return a session as an owner."""
    return SessionOriginator(scope=AgentScope(session_id=session_id, agent_frame_id=frame_id))


def pressed(key: str = "1", payload: JSON = None, *, source_key: str = BLUE, source: JSON = None) -> OccurrenceRequest:
    """Return an occurrence of a pressed button."""
    return OccurrenceRequest(
        source_type=BUTTON, source_key=source_key, idempotency_key=key, payload=payload, source=source
    )


async def subscribed(storage: Storage, *keys: str, **fields: Unpack[DraftFields]) -> list[TriggerSubscription]:
    """Create subscriptions (``k`` by default) and return them."""
    return [(await storage.triggers.register(trigger(key, **fields))).subscription for key in keys or ("k",)]


async def found(storage: Storage, key: str = "k", owner: TriggerOwner = HOST) -> TriggerSubscription:
    """Return a subscription that must exist."""
    subscription = await storage.triggers.get(owner, key)
    assert subscription is not None, key
    return subscription


def the(deliveries: tuple[TriggerDelivery, ...]) -> TriggerDelivery:
    """Return the only delivery."""
    assert len(deliveries) == 1, deliveries
    return deliveries[0]
