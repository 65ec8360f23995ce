"""Events of ADK as nodes of a session, and back."""

from __future__ import annotations

from collections.abc import Iterable

from google.adk.events.event import Event

from lash.adapters.adk.texts import json_text, storable
from lash.adapters.formats import adk_events
from lash.model.session.node import Node, RawNode


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


def raw_events(nodes: Iterable[RawNode]) -> list[bytes]:
    """Return the JSON of the events of nodes; a node that is not an event has none."""
    return [(adk_events.raw_json_of(node.body) or "").encode() for node in nodes]


def decoded(raw: Iterable[bytes]) -> list[Event]:
    """Return new objects for events in JSON."""
    return [Event.model_validate_json(each) for each in raw if each]


def raw_event(node: Node) -> bytes:
    """Return the JSON of the event of a node."""
    return (adk_events.json_of(node) or "").encode()


def is_stored_as(event: Event, node: Node) -> bool:
    """Return whether a node is this event."""
    return adk_events.json_of(node) == json_text(event)


def _text(event: Event) -> str:
    parts = event.content.parts if event.content is not None else None
    return "\n".join(part.text for part in parts or () if part.text and not part.thought)
