"""Items of the SDK as nodes of a session, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from lash.adapters.formats.openai_items import PLUGIN_TYPE, Item, entry_of
from lash.base.ids import new_id
from lash.base.shapes import read_json
from lash.errors import CorruptData
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import Entry, MessageEntry, Node, PluginEntry, RawNode

_SENT_AS: Final = {Role.ASSISTANT: "assistant", Role.SYSTEM: "system"}


class _Body(msgspec.Struct):
    """What is read of the entry of a node: the item of a message, or of a plugin's entry."""

    native: Any = None
    body: Any = None
    plugin_type: str | None = None
    message: msgspec.Raw = msgspec.Raw()


class _Part(msgspec.Struct, gc=False):
    content: str


class _Message(msgspec.Struct, gc=False):
    role: str
    parts: list[_Part]


class _Entry(msgspec.Struct, gc=False):
    """An entry that is one item: that of a message, of a plugin's entry, or the message itself."""

    native: Item | None = None
    body: Item | None = None
    message: _Message | None = None


class _StoredNode(msgspec.Struct, gc=False):
    entry: _Entry


class _Cause(msgspec.Struct):
    turn_id: str | None = None


class _Node(msgspec.Struct):
    entry: _Body
    caused_by: _Cause | None = None


_DECODED_TOGETHER: Final = 64
"""How many nodes one call of the decoder reads: for a single one it takes longer to begin than to decode, and the text
of very many does not fit the processor's cache."""
_NO_ITEM: Final = "expected an item of OpenAI's Agents SDK in each node of its session"
_encode: Final = msgspec.json.Encoder().encode


def below(parent_id: str | None, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes as a path that follows a node."""
    chained: list[Node] = []
    for node in nodes:
        chained.append(msgspec.structs.replace(node, parent_node_id=parent_id))
        parent_id = node.node_id
    return tuple(chained)


def new_bodies(nodes: Iterable[Node]) -> list[bytes] | None:
    """Return new nodes as `items_of` reads them; None if they cannot be JSON, which an append refuses."""
    try:
        return [b'{"entry":{"body":' + _encode(_item(node.entry)) + b"}}" for node in nodes]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def items_of(bodies: Sequence[bytes]) -> list[Item]:
    """Return the items of some nodes as new objects, as they were added; the nodes are given by their JSON.

    Raises CorruptData for a node that holds no item: another program has added it, or it is damaged.
    """
    items: list[Item] = []
    for first in range(0, len(bodies), _DECODED_TOGETHER):
        joined = b"[" + b",".join(bodies[first : first + _DECODED_TOGETHER]) + b"]"
        try:
            nodes = read_json(joined, list[_StoredNode])
        except msgspec.DecodeError as error:
            raise CorruptData(f"{_NO_ITEM}: {error}") from error
        items += [node.entry.native or node.entry.body or _other_item(node.entry) for node in nodes]
    return items


def history_items(path: Sequence[RawNode], *, is_whole: bool = True) -> list[Item]:
    """Return the items of a conversation of turns.

    A turn that has stored items is these items. One without is its messages, as the model of another agent saw them.
    If the path is only the end of the conversation, the first turn in it may be incomplete and is left out.
    """
    turns: list[tuple[str | None, list[_Body]]] = []
    for raw in path:
        node = read_json(raw.body, _Node)
        turn_id = None if node.caused_by is None else node.caused_by.turn_id
        if not turns or turn_id is None or turns[-1][0] != turn_id:
            turns.append((turn_id, []))
        turns[-1][1].append(node.entry)
    return [item for _, entries in turns if is_whole or entries is not turns[0][1] for item in _items_of_turn(entries)]


def turn_entry(item: Item) -> Entry:
    """Return the entry of an item that a turn adds. Tool calls and their results are messages that people can read."""
    kind, call_id = item.get("type"), str(item.get("call_id", ""))
    if kind == "function_call":
        part_kind, text = PartKind.TOOL_CALL, item.get("arguments")
    elif kind == "function_call_output":
        part_kind, text = PartKind.TOOL_RESULT, item.get("output")
    else:
        return entry_of(item)
    content = text if isinstance(text, str) else msgspec.json.encode(text).decode()
    name = str(item["name"]) if "name" in item else None
    part = Part(id=new_id(), kind=part_kind, content=content, tool_call_id=call_id, tool_name=name)
    return MessageEntry(message=Message(id=new_id(), role=Role.ASSISTANT, parts=(part,)), native=item)


def _items_of_turn(entries: Sequence[_Body]) -> list[Item]:
    items = [entry.body if entry.plugin_type == PLUGIN_TYPE else entry.native for entry in entries]
    stored = [item for item in items if item is not None]
    if stored:
        return stored
    messages = [read_json(entry.message, Message) for entry in entries if bytes(entry.message)]
    return [{"role": _SENT_AS.get(each.role, "user"), "content": each.text} for each in messages if each.text]


def _other_item(entry: _Entry) -> Item:
    """Return an item that is empty, or that is in the message alone."""
    stored = entry.body if entry.native is None else entry.native
    if stored is not None:
        return stored
    if entry.message is None or len(entry.message.parts) != 1:
        raise CorruptData(_NO_ITEM)
    # It is a role and a text, which the message has.
    return {"role": entry.message.role, "content": entry.message.parts[0].content}


def _item(entry: Entry) -> object:
    if isinstance(entry, PluginEntry):
        return entry.body
    assert isinstance(entry, MessageEntry), "an item is a message or a plugin's entry"
    return {"role": entry.message.role.value, "content": entry.message.text} if entry.native is None else entry.native
