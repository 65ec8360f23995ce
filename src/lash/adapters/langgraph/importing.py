"""Reads the databases of LangGraph's own savers and stores: ``lash import langgraph DATABASE``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec

from lash.adapters.importing import Found, FoundPart, FoundRecords, FoundSession, RawRow, Row, Source
from lash.adapters.langgraph import codec, foreign, threads
from lash.adapters.langgraph.codec import Channel, Inline, Items, Place, Stored, StoredCheckpoint, Typed, Write
from lash.adapters.langgraph.foreign import Cipher, Unreadable
from lash.adapters.langgraph.imported_items import item_pieces
from lash.adapters.langgraph.runs import checkpoint_records
from lash.base.shapes import read_json, read_msgpack
from lash.model.record import RecordPut
from lash.model.session.node import Node

_CHECKPOINTS: Final = "checkpoints"
_BLOBS: Final = "checkpoint_blobs"
_WRITES: Final = ("writes", "checkpoint_writes")
_STORE: Final = "store"
_MIGRATIONS: Final = frozenset({"checkpoint_migrations", "store_migrations", "vector_migrations"})
"""Versions of LangGraph's own tables, which mean nothing outside of them."""
_SENDS: Final = "__pregel_tasks"
_SENDS_IN_WRITES: Final = 4
"""In checkpoints of older versions, the packets sent to tasks are writes of the parent."""
_SHORT_LIST: Final = 4
_CLEAR: Final[Typed] = ("msgpack", b"")
_MAX_WRITES_BYTES: Final = 15 * 1024 * 1024


class LangGraphReader:
    """Threads, and the items of stores, of `SqliteSaver`, `PostgresSaver`, `SqliteStore` and `PostgresStore`."""

    framework = "langgraph"
    tables = frozenset({_CHECKPOINTS, _BLOBS, *_WRITES, _STORE, "store_vectors"}) | _MIGRATIONS

    async def recognised(self, source: Source) -> frozenset[str]:
        """Return the tables with the names that LangGraph gives them."""
        return await source.tables() & self.tables

    async def count(self, source: Source) -> int:
        """Return the number of threads, and one more for a store."""
        tables = await source.tables()
        return len(await self._thread_ids(source, tables)) + (_STORE in tables)

    async def found(self, source: Source) -> AsyncIterator[Found]:
        """Return the threads by id, then the items of the store."""
        tables = await source.tables()
        for thread_id in await self._thread_ids(source, tables):
            place = Place(thread_id, "", None)
            yield FoundSession(
                name=thread_id,
                session_id=place.session_id,
                pieces=_Thread(source, tables, thread_id).pieces(),
                **threads.about(place),
            )
        if _STORE in tables:
            yield FoundRecords(name="items of the store", pieces=item_pieces(source, tables))

    @staticmethod
    async def _thread_ids(source: Source, tables: frozenset[str]) -> list[str]:
        holding = [table for table in (_CHECKPOINTS, _BLOBS, *_WRITES) if table in tables]
        if not holding:
            return []
        return [row["thread_id"] for row in await source.distinct(holding, ["thread_id"])]


class _Thread:
    """The rows of one thread as nodes and records."""

    def __init__(self, source: Source, tables: frozenset[str], thread_id: str) -> None:
        self._source = source
        self._tables = tables
        self._thread_id = thread_id
        self._cipher = Cipher()
        self._node_ids: dict[str, str] = {}
        self._blobs: dict[tuple[str, str, str | None], Channel | None] = {}
        self._used: set[tuple[str, str, str | None]] = set()
        self._runs: set[str] = set()

    async def pieces(self) -> AsyncIterator[FoundPart]:
        """Return the values of channels, the checkpoints that refer to them, and the writes."""
        if _BLOBS in self._tables:
            async for row in self._rows(_BLOBS, ("checkpoint_ns", "channel")):
                yield self._blob(row)
        if _CHECKPOINTS in self._tables:
            async for row in self._rows(_CHECKPOINTS, ("checkpoint_ns",)):
                yield await self._checkpoint(row)
        for table in _WRITES:
            if table in self._tables:
                async for piece in self._writes(table):
                    yield piece
        if _BLOBS in self._tables:
            async for row in self._rows(_BLOBS, ("checkpoint_ns", "channel")):
                key = (row["checkpoint_ns"], row["channel"], row.get("version"))
                if self._blobs.get(key) is not None and key not in self._used:
                    yield FoundPart(raw=[RawRow(table=_BLOBS, row=row, reason="no checkpoint refers to it")])

    def _rows(self, table: str, order: tuple[str, ...]) -> AsyncIterator[Row]:
        return self._source.rows(table, where={"thread_id": self._thread_id}, order=order)

    def _blob(self, row: Row) -> FoundPart:
        key = (row["checkpoint_ns"], row["channel"], row.get("version"))
        if row["type"] == "empty" or row["blob"] is None:
            self._blobs[key] = None
            return FoundPart()
        draft, typed = _Draft(self), (row["type"], bytes(row["blob"]))
        try:
            # The version is that of the checkpoint, which may be a number.
            self._blobs[key] = draft.channel(self._cipher.opened(typed), None, like=typed)
        except Unreadable:
            # It is stored as it is, and a saver that has the key reads it.
            self._blobs[key] = draft.value(typed, None)
        return draft.piece({})

    async def _checkpoint(self, row: Row) -> FoundPart:
        draft = _Draft(self)
        try:
            about = _object(row["metadata"] or b"{}")
            if _BLOBS in self._tables:
                stored = await self._stored_apart(row, draft, about)
            else:
                stored = self._stored_whole(row, draft, about)
        except Unreadable as error:
            return FoundPart(raw=[RawRow(table=_CHECKPOINTS, row=row, reason=str(error))])
        place = Place(self._thread_id, stored.namespace, stored.parent_id)
        draft.records += checkpoint_records(place, stored, about.get("run_id"), self._runs)
        return draft.piece({"checkpoint": 1})

    def _stored_whole(self, row: Row, draft: _Draft, about: dict[str, Any]) -> StoredCheckpoint:
        """Return a checkpoint of which the row has everything, as `SqliteSaver` stores it."""
        typed = (row["type"] or "json", _as_bytes(row["checkpoint"]))
        fields = foreign.fields_of(self._cipher.opened(typed))
        versions = _versions(fields.get("channel_versions"))
        values = foreign.fields_of(fields.pop("channel_values")) if "channel_values" in fields else {}
        channels = {name: draft.channel(value, versions.get(name), like=typed) for name, value in values.items()}
        rest = self._cipher.sealed(foreign.joined(fields), typed)
        return _stored(row, row["checkpoint_id"], rest, about, channels)

    async def _stored_apart(self, row: Row, draft: _Draft, about: dict[str, Any]) -> StoredCheckpoint:
        """Return a checkpoint whose values are in rows of their own, as `PostgresSaver` stores it."""
        checkpoint = _object(row["checkpoint"])
        namespace, versions = row["checkpoint_ns"], checkpoint.get("channel_versions") or {}
        inline = checkpoint.pop("channel_values", None) or {}
        channels = {
            name: draft.channel(foreign.packed(value), versions.get(name), like=_CLEAR)
            for name, value in inline.items()
        }
        for name, version in versions.items():
            for key in ((namespace, name, _text(version)), (namespace, name, None)):
                blob = self._blobs.get(key)
                if blob is not None:
                    self._used.add(key)
                    channels[name] = msgspec.structs.replace(blob, version=version)
        if checkpoint.get("v", _SENDS_IN_WRITES) < _SENDS_IN_WRITES and row.get("parent_checkpoint_id"):
            sends = await self._sends(row["parent_checkpoint_id"])
            if sends:
                versions[_SENDS] = max(versions.values()) if versions else 1
                channels[_SENDS] = draft.channel(foreign.listed(sends), versions[_SENDS], like=_CLEAR)
        # `ShallowPostgresSaver` has the id only here.
        checkpoint_id = row.get("checkpoint_id") or checkpoint["id"]
        return _stored(row, checkpoint_id, foreign.packed(checkpoint), about, channels)

    async def _sends(self, parent_id: str) -> list[Typed]:
        where = {"thread_id": self._thread_id, "checkpoint_id": parent_id, "channel": _SENDS}
        rows = [row async for row in self._source.rows("checkpoint_writes", where=where)]
        rows.sort(key=lambda row: (row.get("task_path", ""), row["task_id"], row["idx"]))
        return [self._cipher.opened((row["type"], bytes(row["blob"]))) for row in rows]

    async def _writes(self, table: str) -> AsyncIterator[FoundPart]:
        """Return one record for each task, with its writes."""
        order = ("checkpoint_ns", "checkpoint_id", "task_id", "idx")
        task: list[Row] = []
        async for row in self._rows(table, order):
            if task and any(task[0][name] != row[name] for name in order[:3]):
                yield self._task(table, task)
                task = []
            task.append(row)
        if task:
            yield self._task(table, task)

    def _task(self, table: str, rows: list[Row]) -> FoundPart:
        raw = [RawRow(table=table, row=row, reason="it has no format") for row in rows if row["type"] is None]
        writes = [_write(row) for row in rows if row["type"] is not None]
        if not writes:
            return FoundPart(raw=raw)
        value = codec.encode_writes(writes)
        if len(value) > _MAX_WRITES_BYTES:
            return FoundPart(raw=[RawRow(table=table, row=row, reason="larger than a record") for row in rows])
        put = RecordPut(
            collection=codec.WRITES,
            key=codec.writes_key(rows[0]["checkpoint_ns"], rows[0]["checkpoint_id"], rows[0]["task_id"]),
            value=value,
            session_id=Place(self._thread_id, "", None).session_id,
        )
        return FoundPart(records=[put], raw=raw, counts={"write": len(writes)})

    def node_id(self, parent_id: str | None, clear: Typed, like: Typed) -> tuple[str, Node | None]:
        """Return the id of an item below its parent, and its node if the item is new.

        Encrypted bytes differ each time: an item is known by its bytes in clear.
        """
        known = codec.item_id(parent_id, codec.item_content(clear))
        if known in self._node_ids:
            return self._node_ids[known], None
        content = codec.item_content(self.sealed(clear, like))
        self._node_ids[known] = codec.item_id(parent_id, content)
        return self._node_ids[known], threads.item_node(self._node_ids[known], parent_id, content)

    def sealed(self, clear: Typed, like: Typed) -> Typed:
        return self._cipher.sealed(clear, like)

    @property
    def session_id(self) -> str:
        return Place(self._thread_id, "", None).session_id


class _Draft:
    """The nodes and records of one piece."""

    def __init__(self, thread: _Thread) -> None:
        self.records: list[RecordPut] = []
        self._thread = thread
        self._nodes: list[Node] = []

    def channel(self, clear: Typed, version: codec.Version, *, like: Typed) -> Channel:
        """Return the value of a channel as it is stored: a long list item by item, other values by size.

        What is stored is encrypted if ``like`` is.
        """
        items = foreign.items_of(clear)
        if items is None or len(items) < _SHORT_LIST:
            return self.value(self._thread.sealed(clear, like), version)
        leaf: str | None = None
        for item in items:
            leaf, node = self._thread.node_id(leaf, item, like)
            self._nodes += [] if node is None else [node]
        assert leaf is not None, "a long list has items"
        return Items(version, leaf, len(items))

    def piece(self, counts: Mapping[str, int]) -> FoundPart:
        return FoundPart(nodes=self._nodes, records=self.records, counts=counts)

    def value(self, typed: Typed, version: codec.Version) -> Channel:
        name, content = typed
        if len(content) <= codec.INLINE_BYTES:
            return Inline(version, name, content)
        parts = codec.value_parts(content)
        self.records += [
            RecordPut(collection=codec.VALUES, key=key, value=part, session_id=self._thread.session_id)
            for key, part in parts
        ]
        return Stored(version, name, tuple(key for key, _ in parts))


def _stored(
    row: Row, checkpoint_id: str, rest: Typed, about: dict[str, Any], channels: dict[str, Channel]
) -> StoredCheckpoint:
    parent_id = row.get("parent_checkpoint_id") or None
    return StoredCheckpoint(row["checkpoint_ns"], checkpoint_id, parent_id, rest, foreign.packed(about), channels)


def _as_bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _write(row: Row) -> Write:
    content = row["value"] if "value" in row else row["blob"]
    return Write(row["task_id"], row["idx"], row["channel"], row["type"], content or b"", row.get("task_path") or "")


def _versions(typed: Typed | None) -> dict[str, codec.Version]:
    if typed is None:
        return {}
    name, content = typed
    try:
        read = read_msgpack if name == "msgpack" else read_json
        return read(content, dict[str, codec.Version])
    except msgspec.MsgspecError as error:
        raise Unreadable(f"damaged: {error}") from error


def _text(version: codec.Version) -> str:
    return version if isinstance(version, str) else msgspec.json.encode(version).decode()


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        decoded: dict[str, Any] = read_json(text, dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Unreadable(f"damaged: {error}") from error
    return decoded
