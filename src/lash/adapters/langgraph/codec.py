"""How a thread of LangGraph is stored: the keys and the values of its records, and the content of its item nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from lash.adapters.names import short
from lash.base.shapes import read_msgpack

Version: TypeAlias = str | int | float | None
Typed: TypeAlias = tuple[str, bytes]
"""A value as the serializer of LangGraph returns it: the name of a format, and bytes in it."""

CHECKPOINTS: Final = "langgraph.checkpoints"
WRITES: Final = "langgraph.writes"
VALUES: Final = "langgraph.values"
RUNS: Final = "langgraph.runs"
ITEM_TYPE: Final = "langgraph.item"
ITEM_KIND: Final = f"bytes:{ITEM_TYPE}"
SESSION_PREFIX: Final = "langgraph:"
INLINE_BYTES: Final = 512
"""Smaller values stand in the record of their checkpoint; a record of their own would cost more than it saves."""
PART_BYTES: Final = 8 * 1024 * 1024
"""A record has at most 16 MB; larger values are cut."""
_MAX_ID: Final = 96
"""Longer ids are hashed: a key has at most 255 characters and is made of up to three."""


class Inline(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=0):
    """The value of a channel, in the record itself."""

    version: Version
    format: str
    content: bytes


class Stored(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The value of a channel in records of its own, under the hash of their bytes."""

    version: Version
    format: str
    keys: tuple[str, ...]


class Items(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=2):
    """A list: its items are the last ``length`` nodes of the path to ``leaf``."""

    version: Version
    leaf: str
    length: int


Channel: TypeAlias = Inline | Stored | Items


class StoredCheckpoint(msgspec.Struct, array_like=True, frozen=True):
    """The record of a checkpoint. ``rest`` is the checkpoint without its channel values."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    rest: Typed
    metadata: Typed
    channels: dict[str, Channel]


class Write(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A pending write of a task. Its position is negative for the special channels of LangGraph."""

    task_id: str
    position: int
    channel: str
    format: str
    content: bytes
    task_path: str


class Place(NamedTuple):
    """The thread, the namespace and the checkpoint that a configuration names."""

    thread_id: str
    namespace: str
    checkpoint_id: str | None

    @property
    def session_id(self) -> str:
        return SESSION_PREFIX + short(self.thread_id, 120)


_encode: Final = msgspec.msgpack.Encoder().encode


def place_of(config: Mapping[str, object]) -> Place:
    """Return what a configuration of LangGraph names; raise KeyError if it has no thread."""
    named = config["configurable"]
    assert isinstance(named, Mapping), "LangGraph passes a dict"
    checkpoint_id = named.get("checkpoint_id") or named.get("thread_ts")
    return Place(
        str(named["thread_id"]), str(named.get("checkpoint_ns") or ""), str(checkpoint_id) if checkpoint_id else None
    )


def namespace_key(namespace: str) -> str:
    """Return the short form of a namespace; nested ones are longer than a key may be."""
    return hashlib.blake2b(namespace.encode(), digest_size=12).hexdigest() if namespace else "-"


def checkpoint_key(namespace: str, checkpoint_id: str) -> str:
    """Return the key of a checkpoint: by their keys, the checkpoints of a thread are sorted by id."""
    return f"{_quoted(checkpoint_id)}/{namespace_key(namespace)}"


def key_of(stored: StoredCheckpoint) -> str:
    return checkpoint_key(stored.namespace, stored.checkpoint_id)


def before_key(checkpoint_id: str) -> str:
    """Return the text below which the keys of all checkpoints with smaller ids are."""
    return f"{_quoted(checkpoint_id)}/"


def writes_prefix(namespace: str, checkpoint_id: str) -> str:
    return f"{checkpoint_key(namespace, checkpoint_id)}/"


def writes_key(namespace: str, checkpoint_id: str, task_id: str) -> str:
    return writes_prefix(namespace, checkpoint_id) + _quoted(task_id)


def run_key(run_id: str) -> str:
    return short(run_id, 100)


def encode_checkpoint(checkpoint: StoredCheckpoint) -> bytes:
    return _encode(checkpoint)


def decode_checkpoint(content: bytes) -> StoredCheckpoint:
    return read_msgpack(content, StoredCheckpoint)


def encode_writes(writes: list[Write]) -> bytes:
    return _encode(writes)


def decode_writes(content: bytes) -> list[Write]:
    return read_msgpack(content, list[Write])


def merge_writes(stored: list[Write], new: list[Write]) -> list[Write]:
    """Return the writes of a task after more have come: regular ones stay, those of special channels are replaced."""
    merged = {each.position: each for each in stored}
    for each in new:
        if each.position < 0 or each.position not in merged:
            merged[each.position] = each
    return list(merged.values())


def item_content(typed: Typed) -> bytes:
    """Return the bytes of an item node: the name of the format, a NUL, the value."""
    return typed[0].encode() + b"\0" + typed[1]


def item_typed(content: bytes) -> Typed:
    name, _, value = content.partition(b"\0")
    return name.decode(), value


def item_id(parent_id: str | None, content: bytes) -> str:
    """Return the id of an item below its parent: equal lists have equal ids, in any checkpoint and namespace."""
    return hashlib.blake2b((parent_id or "").encode() + b"\0" + content, digest_size=15).hexdigest()


def value_parts(content: bytes) -> list[tuple[str, bytes]]:
    """Return a value as keys and parts, in order."""
    parts = [content[start : start + PART_BYTES] for start in range(0, len(content), PART_BYTES)]
    return [(hashlib.blake2b(part, digest_size=16).hexdigest(), part) for part in parts]


def as_bytes(value: object) -> bytes:
    """Return the value of a record of this adapter."""
    assert isinstance(value, bytes), "the records of this adapter are bytes"
    return value


def _quoted(text: str) -> str:
    return short(text.replace("%", "%25").replace("/", "%2F"), _MAX_ID)
