"""Events of ADK as nodes of a session, and back."""

from __future__ import annotations

from google.adk.events.event import Event

from lash.adapters.adk.texts import json_text, storable
from lash.adapters.formats import adk_events
from lash.model.session.node import Node


def node_id_of(event: Event) -> str:
    """Return the id of the node of an event."""
    return adk_events.node_id_of(event.id)


def node_of(event: Event, node_id: str, parent_id: str | None) -> Node:
    """Return the node of an event, with the event as JSON text."""
    return adk_events.node_of(
        json_text(event),
        storable(_text(event)),
        author=event.author,
        seconds=event.timestamp,
        node_id=node_id,
        parent_id=parent_id,
    )


def event_of(node: Node) -> Event | None:
    """Return the event of a node; None for a node that is not an event."""
    encoded = adk_events.json_of(node)
    return None if encoded is None else Event.model_validate_json(encoded)


def is_stored_as(event: Event, node: Node) -> bool:
    """Return whether a node is this event."""
    return adk_events.json_of(node) == json_text(event)


def _text(event: Event) -> str:
    parts = event.content.parts if event.content is not None else None
    return "\n".join(part.text for part in parts or () if part.text and not part.thought)
