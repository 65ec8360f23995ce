"""Items of the SDK as nodes of a session, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from lash.base.ids import new_id
from lash.model.session.message import Message, Role
from lash.model.session.node import Entry, MessageEntry, Node, PluginEntry, RawNode

Item: TypeAlias = dict[str, Any]
PLUGIN_TYPE: Final = "openai-agents.item"
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "developer": Role.SYSTEM}


class _Body(msgspec.Struct):
    """What is read of the entry of a node: the item of a message, or of a plugin's entry."""

    native: Any = None
    body: Any = None


class _Node(msgspec.Struct):
    entry: _Body


_decode: Final = msgspec.json.Decoder(_Node).decode


def nodes_of(items: Iterable[Item]) -> list[Node]:
    """Return new nodes for items. A message is stored with its text, so that people can read the session."""
    now = datetime.now(UTC)
    return [Node(node_id=new_id(), timestamp=now, entry=_entry(item)) for item in items]


def below(parent_id: str | None, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes as a path that follows a node."""
    chained: list[Node] = []
    for node in nodes:
        chained.append(msgspec.structs.replace(node, parent_node_id=parent_id))
        parent_id = node.node_id
    return tuple(chained)


def item_of(node: RawNode) -> Item:
    """Return the item of a node, as it was added."""
    entry = _decode(node.body).entry
    item: Item = entry.body if entry.native is None else entry.native
    return item


def _entry(item: Item) -> Entry:
    text, role = _text(item.get("content")), _ROLES.get(str(item.get("role")))
    if role is None or text is None:
        return PluginEntry(plugin_type=PLUGIN_TYPE, body=item)
    return MessageEntry(message=Message.of_text(new_id(), role, text), native=item)


def _text(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return "\n".join(parts) if parts else None
