"""Bytes under keys for Strands' snapshots, offloaded content and memory, in a lash storage."""

from __future__ import annotations

import builtins
import copy
import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec
from strands.storage.search.keyword import KeywordSearchStrategy
from strands.storage.storage import _NAMESPACED, _normalize_key, _normalize_prefix
from strands.types.exceptions import StorageError

from lash.adapters.attached import Attached, StorageSource
from lash.base.ids import new_id
from lash.base.limits import MAX_PAGE
from lash.base.shapes import convert
from lash.errors import LashError, RecordConflict
from lash.model.record import Record, RecordDelete, RecordPut
from lash.stores.storage import Storage

if TYPE_CHECKING:
    from strands.storage.search.types import SearchStrategy
    from strands.storage.storage import StorageSearchResult

T = TypeVar("T")
KEYS: Final = "strands.keys"
PARTS: Final = "strands.parts"
_KEY_LENGTH: Final = 200
_START_LENGTH: Final = 150
"""How much of a key that is too long stays readable, before its hash."""
_PART_BYTES: Final = 8 * 1024 * 1024
"""The bytes of a value are parts of this size: a record has at most 16 MiB."""
_SEPARATOR: Final = "\x01"


class _Written(msgspec.Struct, frozen=True):
    """A write: the parts after the first have its token in their keys, so that no two writes share them."""

    token: str
    parts: int


class _Known(msgspec.Struct, frozen=True):
    """The record of a key. Lists read it, and not the bytes. Its version decides between concurrent writes."""

    key: str
    write: _Written
    previous: _Written | None = None
    """The write before, if its parts may be left over."""


class LashStorage:
    """A storage for `SnapshotSessionManager` and other parts of Strands: ``LashStorage("sqlite:///agents.db")``.

    It takes a storage URL or an open storage, and works from any event loop. A write replaces the whole value or
    nothing, also if it is cancelled; readers see one or the other. Keys are normalised as in Strands' own storages. A
    value has at most 64 MiB.
    """

    def __init__(
        self, source: StorageSource = "sqlite://", *, search_strategy: SearchStrategy[LashStorage] | None = None
    ) -> None:
        self._attached = Attached(source)
        self._prefix = ""
        self._search_strategy = search_strategy

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key."""
        name, content = _normalize_key(key), bytes(data)
        full = self._prefix + name
        await self._settle(lambda storage: _write(storage, full, content))
        if self._search_strategy is not None:
            try:
                await self._search_strategy.index(self, name, content)
            except Exception as error:
                raise StorageError(f"wrote {key!r}, but the search strategy did not index it: {error}") from error

    async def read(self, key: str) -> bytes | None:
        """Return the bytes of a key; None if there are none."""
        full = self._prefix + _normalize_key(key)
        return await self._run(lambda storage: _read(storage, full))

    async def delete(self, key: str) -> None:
        """Delete the bytes of a key, if there are any."""
        full = self._prefix + _normalize_key(key)
        await self._settle(lambda storage: _delete(storage, full))

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that start with a prefix, sorted."""
        full = self._prefix + _normalize_prefix(query)
        keys = await self._run(lambda storage: _list(storage, full))
        return [key[len(self._prefix) :] for key in keys]

    async def search(self, query: str) -> builtins.list[StorageSearchResult]:
        """Return what the search strategy finds, by default the values that contain words of the query."""
        if self._search_strategy is not None:
            return await self._search_strategy.search(self, query)
        return await KeywordSearchStrategy().search(self, query)

    def namespace(self, prefix: str) -> Self:
        """Return the same storage, limited to the keys below a prefix."""
        normalized = _normalize_prefix(prefix).rstrip("/")
        scoped = copy.copy(self)
        inner = f"{self._prefix}{normalized}/" if normalized else self._prefix
        # Strands adds no prefix of its own to a storage with this mark.
        vars(scoped).update(_prefix=inner, _namespaced=_NAMESPACED)
        return scoped

    async def _run(self, use: Callable[[Storage], Awaitable[T]]) -> T:
        try:
            return await self._attached.run(use)
        except LashError as error:
            raise StorageError(str(error)) from error

    async def _settle(self, use: Callable[[Storage], Awaitable[object]]) -> None:
        try:
            await self._attached.settle(use)
        except LashError as error:
            raise StorageError(str(error)) from error


async def _write(storage: Storage, key: str, content: bytes) -> None:
    pieces = [content[start : start + _PART_BYTES] for start in range(0, len(content), _PART_BYTES)] or [b""]
    write = _Written(new_id(), len(pieces))
    names = [_stored_key(key), *_further(key, write)]
    header = f"{write.token} {write.parts}\n".encode()
    parts = [
        RecordPut(collection=PARTS, key=name, value=piece if place else header + piece)
        for place, (name, piece) in enumerate(zip(names, pieces, strict=True))
    ]
    while True:
        before, version = await _known(storage, key)
        previous = None if before is None or before.write.parts == 1 else before.write
        # First the parts that a killed process has left: the new record no longer names their write.
        await _remove(storage, key, None if before is None else before.previous)
        known = msgspec.to_builtins(_Known(key, write, previous))
        first = RecordPut(collection=KEYS, key=_stored_key(key), value=known, expected_version=version)
        try:
            await storage.records.put_many([first, *parts])
        except RecordConflict:
            # Another caller has written or deleted the value meanwhile; the last one wins.
            continue
        await _remove(storage, key, previous)
        return


async def _read(storage: Storage, key: str) -> bytes | None:
    seen: _Written | None = None
    while True:
        first = await storage.records.get(PARTS, _stored_key(key))
        if first is None:
            return None
        write, content = _opened(first)
        names = _further(key, write)
        found = await storage.records.get_many(PARTS, names) if names else {}
        if len(found) == len(names):
            return b"".join([content, *(_bytes(found[name]) for name in names)])
        # Another caller has replaced the value between the two reads, unless the first part is the same again.
        if write == seen:
            raise StorageError(f"the value of {key!r} is damaged: {len(names) - len(found)} parts are missing")
        seen = write


async def _delete(storage: Storage, key: str) -> None:
    while True:
        known, version = await _known(storage, key)
        if known is None:
            return
        deletes = [
            RecordDelete(collection=KEYS, key=_stored_key(key), expected_version=version),
            RecordDelete(collection=PARTS, key=_stored_key(key)),
            *_unused(key, known.write),
            *_unused(key, known.previous),
        ]
        try:
            await storage.records.delete_many(deletes)
        except RecordConflict:
            # Another caller has written the value meanwhile; the last one wins.
            continue
        return


async def _list(storage: Storage, prefix: str) -> list[str]:
    keys: list[str] = []
    after: str | None = None
    while True:
        page = await storage.records.list(KEYS, prefix=_start(prefix), after=after, limit=MAX_PAGE)
        keys += [convert(record.value, _Known).key for record in page]
        if len(page) < MAX_PAGE:
            return sorted(key for key in keys if key.startswith(prefix))
        after = page[-1].key


async def _known(storage: Storage, key: str) -> tuple[_Known | None, int]:
    """Return the record of a key, and its version: 0 if there is none."""
    record = await storage.records.get(KEYS, _stored_key(key))
    return (None, 0) if record is None else (convert(record.value, _Known), record.version)


async def _remove(storage: Storage, key: str, replaced: _Written | None) -> None:
    if unused := _unused(key, replaced):
        await storage.records.delete_many(unused)


def _unused(key: str, replaced: _Written | None) -> list[RecordDelete]:
    """Return the deletion of the parts after the first of a write that another one has replaced."""
    names = [] if replaced is None else _further(key, replaced)
    return [RecordDelete(collection=PARTS, key=name) for name in names]


def _stored_key(key: str) -> str:
    is_plain = key.strip() and len(key) <= _KEY_LENGTH and _SEPARATOR not in key and "\0" not in key
    return key if is_plain else f"{_start(key)}{_SEPARATOR}{_hash(key)}"


def _start(key: str) -> str:
    """Return what the stored forms of all keys with this start begin with."""
    return key.partition("\0")[0].partition(_SEPARATOR)[0][:_START_LENGTH]


def _further(key: str, write: _Written) -> list[str]:
    """Return the keys of the parts after the first."""
    return [f"{_stored_key(key)}{_SEPARATOR}{write.token}{_SEPARATOR}{place:04}" for place in range(1, write.parts)]


def _hash(key: str) -> str:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _opened(first: Record) -> tuple[_Written, bytes]:
    """Return the write of a value, and the bytes of its first part."""
    header, _, content = _bytes(first).partition(b"\n")
    token, count = header.decode().split(" ")
    return _Written(token, int(count)), content


def _bytes(record: Record) -> bytes:
    assert isinstance(record.value, bytes)
    return record.value
