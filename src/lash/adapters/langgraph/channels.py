"""Values of channels, between a checkpoint of LangGraph and the nodes and records that store it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from lash.adapters.langgraph import codec
from lash.adapters.langgraph.codec import Channel, Inline, Items, Stored, StoredCheckpoint
from lash.adapters.langgraph.items import KnownList
from lash.adapters.langgraph.threads import Thread, item_node
from lash.errors import CorruptData
from lash.model.record import RecordPut
from lash.model.session.node import Node
from lash.stores.storage import Storage

_SHORT_LIST: Final = 4
"""Shorter lists are stored as one value: they are seldom the history of a conversation."""
_EDGE: Final = "branch:to:"
"""The start of the name of a channel that starts a node; it has a value until the node has run."""
_SENDS: Final = "__pregel_tasks"
"""The channel with the nodes that a ``Send`` starts."""


class Draft:
    """The nodes and records that a checkpoint adds to what its thread has.

    With ``goes_on``, the run stores another checkpoint after it.
    """

    def __init__(self, session_id: str, namespace: str, *, goes_on: bool) -> None:
        self.channels: dict[str, Channel] = {}
        self.nodes: dict[str, Node] = {}
        self.values: dict[str, RecordPut] = {}
        self.lists: dict[str, tuple[KnownList, KnownList]] = {}
        self._session_id = session_id
        self._namespace = namespace
        self._goes_on = goes_on

    def add(
        self,
        values: Mapping[str, object],
        versions: Mapping[str, codec.Version],
        changed: Mapping[str, codec.Version],
        parent: StoredCheckpoint | None,
        thread: Thread,
        serde: SerializerProtocol,
    ) -> None:
        """Add the channels of a checkpoint. An unchanged channel refers to what its parent refers to."""
        inherited = parent.channels if parent is not None else {}
        for name, value in values.items():
            before, version = inherited.get(name), versions.get(name)
            if before is not None and name not in changed and version is not None and before.version == version:
                self.channels[name] = before
            elif type(value) is list and len(value) >= _SHORT_LIST:
                self.channels[name] = self._add_list(name, value, version, thread, serde)
            else:
                self.channels[name] = self._add_value(serde.dumps_typed(value), version)

    def keep(self, thread: Thread) -> None:
        """Remember the lists, once they are stored."""
        for name, (known, new) in self.lists.items():
            thread.lists.keep(self._namespace, name, known, new)

    def _add_list(
        self, name: str, values: list[object], version: codec.Version, thread: Thread, serde: SerializerProtocol
    ) -> Items:
        known = thread.lists.known_prefix(self._namespace, name, values, goes_on=self._goes_on)
        # Before they are encoded: a node of the next step may change them while they are stored.
        new, node_ids = thread.lists.known(("", value) for value in values[len(known) :]), list[str]()
        leaf = known.node_ids[-1] if known else None
        for value in values[len(known) :]:
            content = codec.item_content(serde.dumps_typed(value))
            node_id = codec.item_id(leaf, content)
            self.nodes[node_id] = item_node(node_id, leaf, content)
            node_ids.append(node_id)
            leaf = node_id
        new.name(node_ids)
        self.lists[name] = (known, new)
        assert leaf is not None, "a list of items is not empty"
        return Items(version, leaf, len(values))

    def _add_value(self, typed: codec.Typed, version: codec.Version) -> Channel:
        name, content = typed
        if len(content) <= codec.INLINE_BYTES:
            return Inline(version, name, content)
        parts = codec.value_parts(content)
        for key, part in parts:
            self.values[key] = RecordPut(collection=codec.VALUES, key=key, value=part, session_id=self._session_id)
        return Stored(version, name, tuple(key for key, _ in parts))


def has_next_tasks(values: Mapping[str, object]) -> bool:
    """Return whether the channels of a checkpoint start further nodes: by an edge of the graph, or by a ``Send``."""
    return any(name.startswith(_EDGE) for name in values) or bool(values.get(_SENDS))


async def read_channels(
    storage: Storage, session_id: str, checkpoint: StoredCheckpoint, thread: Thread, serde: SerializerProtocol
) -> dict[str, object]:
    """Return the values of the channels of a checkpoint."""
    stored = await _stored_values(storage, session_id, checkpoint)
    values: dict[str, object] = {}
    for name, channel in checkpoint.channels.items():
        match channel:
            case Inline():
                values[name] = serde.loads_typed((channel.format, channel.content))
            case Stored():
                values[name] = serde.loads_typed((channel.format, b"".join(stored[key] for key in channel.keys)))
            case Items():
                values[name] = await _read_list(storage, session_id, checkpoint.namespace, name, channel, thread, serde)
    return values


async def _stored_values(storage: Storage, session_id: str, checkpoint: StoredCheckpoint) -> dict[str, bytes]:
    keys = [key for channel in checkpoint.channels.values() if isinstance(channel, Stored) for key in channel.keys]
    if not keys:
        return {}
    records = await storage.records.get_many(codec.VALUES, set(keys), session_id=session_id)
    missing = next((key for key in keys if key not in records), None)
    if missing is not None:
        raise CorruptData(f"checkpoint {checkpoint.checkpoint_id!r} refers to the value {missing}, which is not stored")
    return {key: codec.as_bytes(record.value) for key, record in records.items()}


async def _read_list(
    storage: Storage,
    session_id: str,
    namespace: str,
    name: str,
    channel: Items,
    thread: Thread,
    serde: SerializerProtocol,
) -> list[object]:
    remembered = thread.lists.read(namespace, name, channel.leaf, channel.length)
    if remembered is not None:
        return remembered
    nodes = await storage.session(session_id).raw_path(leaf_node_id=channel.leaf, last=channel.length)
    if len(nodes) != channel.length:
        raise CorruptData(f"channel {name!r} has {channel.length} items, of which {len(nodes)} are stored")
    values = [serde.loads_typed(codec.item_typed(node.content or b"")) for node in nodes]
    items = thread.lists.known(zip((node.node_id for node in nodes), values, strict=True))
    thread.lists.keep(namespace, name, KnownList.of(()), items)
    return values
