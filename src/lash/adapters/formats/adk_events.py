"""Events of ADK, as JSON text in the nodes of a session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from lash.adapters.names import short
from lash.base.shapes import read_json
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node, PluginEntry

PLUGIN_TYPE: Final = "adk.event"
_ID_LENGTH: Final = 200
"""Room for the suffix of an event whose id another event of the session has."""
_MESSAGE_LENGTH: Final = 1_000_000
"""A message has its text twice, as text and in the event; a commit has at most 64 MiB."""


def node_id_of(event_id: str) -> str:
    """Return the id of the node of an event."""
    return short(event_id, _ID_LENGTH)


def node_of(encoded: str, text: str, *, author: str, seconds: float, node_id: str, parent_id: str | None) -> Node:
    """Return the node of an event.

    JSON text survives what JSON values of lash do not: integers beyond 64 bits, and deep nesting. An event with text is
    a message too, so that people can read the session, unless the text is too long to be read by people.
    """
    entry: MessageEntry | PluginEntry
    if 0 < len(text) <= _MESSAGE_LENGTH:
        role = Role.USER if author == "user" else Role.ASSISTANT
        entry = MessageEntry(message=Message.of_text(node_id, role, text), native=encoded)
    else:
        entry = PluginEntry(plugin_type=PLUGIN_TYPE, body=encoded)
    return Node(node_id=node_id, parent_node_id=parent_id, timestamp=_time(seconds), entry=entry)


def json_of(node: Node) -> str | None:
    """Return the event of a node as JSON text; None for a node that is not an event."""
    entry = node.entry
    if isinstance(entry, MessageEntry):
        return entry.native if isinstance(entry.native, str) else None
    if isinstance(entry, PluginEntry) and entry.plugin_type == PLUGIN_TYPE:
        return entry.body if isinstance(entry.body, str) else None
    return None


class _Entry(msgspec.Struct):
    """What is read of the entry of a node: the event of a message, or of an entry of this adapter."""

    native: Any = None
    body: Any = None
    plugin_type: str | None = None


class _Node(msgspec.Struct):
    entry: _Entry


def raw_json_of(body: bytes) -> str | None:
    """Return the same as `json_of` for the stored form of a node, of which only the event is decoded."""
    entry = read_json(body, _Node).entry
    found = entry.body if entry.plugin_type == PLUGIN_TYPE else entry.native
    return found if isinstance(found, str) else None


def _time(seconds: float) -> datetime:
    """Return the time of a node; the event itself has the exact seconds."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.now(UTC)
