"""Events of ADK as nodes of a session, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from google.adk.events.event import Event

from lash.adapters.adk.texts import json_text, storable
from lash.adapters.names import short
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node, PluginEntry

PLUGIN_TYPE: Final = "adk.event"
_ID_LENGTH: Final = 200
"""Room for the suffix of an event whose id another event of the session has."""


def node_id_of(event: Event) -> str:
    """Return the id of the node of an event."""
    return short(event.id, _ID_LENGTH)


def node_of(event: Event, node_id: str, parent_id: str | None) -> Node:
    """Return the node of an event, with the event as JSON text.

    A text survives what JSON values of lash do not: integers beyond 64 bits, and deep nesting. An event with text is a
    message too, so that people can read the session.
    """
    encoded, text = json_text(event), storable(_text(event))
    entry: MessageEntry | PluginEntry
    if text:
        role = Role.USER if event.author == "user" else Role.ASSISTANT
        entry = MessageEntry(message=Message.of_text(node_id, role, text), native=encoded)
    else:
        entry = PluginEntry(plugin_type=PLUGIN_TYPE, body=encoded)
    return Node(node_id=node_id, parent_node_id=parent_id, timestamp=_time(event.timestamp), entry=entry)


def json_of(node: Node) -> str | None:
    """Return the event of a node as JSON text; None for a node that is not an event."""
    entry = node.entry
    if isinstance(entry, MessageEntry):
        return entry.native if isinstance(entry.native, str) else None
    if isinstance(entry, PluginEntry) and entry.plugin_type == PLUGIN_TYPE:
        return entry.body if isinstance(entry.body, str) else None
    return None


def event_of(node: Node) -> Event | None:
    """Return the event of a node; None for a node that is not an event."""
    encoded = json_of(node)
    return None if encoded is None else Event.model_validate_json(encoded)


def is_stored_as(event: Event, node: Node) -> bool:
    """Return whether a node is this event."""
    return json_of(node) == json_text(event)


def _text(event: Event) -> str:
    parts = event.content.parts if event.content is not None else None
    return "\n".join(part.text for part in parts or () if part.text and not part.thought)


def _time(seconds: float) -> datetime:
    """Return the time of a node; the event itself has the exact seconds."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.now(UTC)
