"""Items of OpenAI's Agents SDK as nodes of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from lash.adapters.names import short
from lash.base.ids import new_id
from lash.model.session.message import Message, Role
from lash.model.session.node import Entry, MessageEntry, Node, PluginEntry

Item: TypeAlias = dict[str, Any]
FRAMEWORK: Final = "openai-agents"
LABELS: Final = {"framework": FRAMEWORK}
PLUGIN_TYPE: Final = "openai-agents.item"
_SESSION_PREFIX: Final = "openai-agents:"
_PLAIN_ROLES: Final = ("user", "assistant", "system")
"""The roles that a message has too, under the same names."""
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "developer": Role.SYSTEM}


def lash_id(session_id: str) -> str:
    """Return the id of the lash session of a session of the SDK."""
    return _SESSION_PREFIX + short(session_id, 200)


def nodes_of(items: Iterable[Item]) -> list[Node]:
    """Return new nodes for items."""
    now = datetime.now(UTC)
    return [Node(node_id=new_id(), timestamp=now, entry=_text_entry_of(item) or entry_of(item)) for item in items]


def entry_of(item: Item) -> Entry:
    """Return the entry of an item. A message is stored with its text, so that people can read the session."""
    text, role = _text(item.get("content")), _ROLES.get(str(item.get("role")))
    if role is None or text is None:
        return PluginEntry(plugin_type=PLUGIN_TYPE, body=item)
    return MessageEntry(message=Message.of_text(new_id(), role, text), native=item)


def _text_entry_of(item: Item) -> Entry | None:
    """Return the entry of an item that is a role and a text, which are in its message already; None for any other."""
    if tuple(item) != ("role", "content"):
        return None
    role, text = item["role"], item["content"]
    if type(role) is not str or type(text) is not str or role not in _PLAIN_ROLES:
        return None
    return MessageEntry(message=Message.of_text(new_id(), _ROLES[role], text))


def _text(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return "\n".join(parts) if parts else None
