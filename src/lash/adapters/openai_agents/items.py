"""Items of the SDK as nodes of a session, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from lash.adapters.formats.openai_items import PLUGIN_TYPE, Item, entry_of
from lash.base.ids import new_id
from lash.base.shapes import read_json
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import Entry, MessageEntry, Node, PluginEntry, RawNode

_SENT_AS: Final = {Role.ASSISTANT: "assistant", Role.SYSTEM: "system"}


class _Body(msgspec.Struct):
    """What is read of the entry of a node: the item of a message, or of a plugin's entry."""

    native: Any = None
    body: Any = None
    plugin_type: str | None = None
    message: msgspec.Raw = msgspec.Raw()


class _RawPart(msgspec.Struct, gc=False):
    content: msgspec.Raw


class _RawMessage(msgspec.Struct, gc=False):
    role: msgspec.Raw
    parts: list[_RawPart]


class _RawBody(msgspec.Struct, gc=False):
    native: msgspec.Raw = msgspec.Raw()
    body: msgspec.Raw = msgspec.Raw()
    message: _RawMessage | None = None


class _RawNode(msgspec.Struct, gc=False):
    entry: _RawBody


class _Cause(msgspec.Struct):
    turn_id: str | None = None


class _Node(msgspec.Struct):
    entry: _Body
    caused_by: _Cause | None = None


_encode: Final = msgspec.json.Encoder().encode


def below(parent_id: str | None, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes as a path that follows a node."""
    chained: list[Node] = []
    for node in nodes:
        chained.append(msgspec.structs.replace(node, parent_node_id=parent_id))
        parent_id = node.node_id
    return tuple(chained)


def item_of(node: RawNode) -> Item:
    """Return the item of a node, as it was added."""
    item: Item = decoded(raw_items_of([node]))[0]
    return item


def raw_items_of(path: Iterable[RawNode]) -> list[bytes]:
    """Return the JSON of the items of some nodes."""
    # One call of the decoder for all: for each it takes longer to begin than to decode.
    nodes = read_json(b"[" + b",".join([node.body for node in path]) + b"]", list[_RawNode])
    return [_raw_item(node.entry) for node in nodes]


def raw_new_items(nodes: Iterable[Node]) -> list[bytes] | None:
    """Return the JSON of the items that new nodes are made of; None if it cannot be JSON, which an append refuses."""
    try:
        return [_encode(_item(node.entry)) for node in nodes]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def decoded(raw_items: Sequence[bytes]) -> list[Item]:
    """Return new objects for items in JSON."""
    return read_json(b"[" + b",".join(raw_items) + b"]", list[Item])


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


def _raw_item(entry: _RawBody) -> bytes:
    stored = bytes(entry.native) or bytes(entry.body)
    if stored or entry.message is None:
        return stored
    # It is a role and a text, which the message has.
    (part,) = entry.message.parts
    return b'{"role":' + bytes(entry.message.role) + b',"content":' + bytes(part.content) + b"}"


def _item(entry: Entry) -> object:
    if isinstance(entry, PluginEntry):
        return entry.body
    assert isinstance(entry, MessageEntry), "an item is a message or a plugin's entry"
    return {"role": entry.message.role.value, "content": entry.message.text} if entry.native is None else entry.native
