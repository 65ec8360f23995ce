"""Writes what a reader finds into a storage, session by session."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from lash.adapters.importing.found import FoundPart, FoundRecords, FoundSession, FrameworkReader, RawRow
from lash.adapters.importing.raw import raw_records
from lash.adapters.importing.report import ImportReport, NotImported, Tally
from lash.adapters.importing.source import Source
from lash.errors import InvalidInput, RecordConflict, SessionDeleted, SessionNotFound
from lash.model.record import Record, RecordPut
from lash.model.session.checkpoint import CheckpointDraft
from lash.model.session.commit import Append, Commit, GraphDelta, Unchanged
from lash.model.session.node import BytesEntry, Node
from lash.stores.storage import Storage
from lash.transfer.progress import Meter, OnProgress

MARKS: Final = "import.marks"
"""One record in each imported session, under the framework's name: whether the import of the session is complete."""
_ROWS: Final = 500
_BYTES: Final = 8 * 1024 * 1024
"""Pieces are written together up to this many nodes and records, and this many bytes."""
_BASE_BYTES: Final = 256
"""What a node or record without large bytes counts for."""


class _State(Enum):
    NEW = auto()
    BEGUN = auto()
    COMPLETE = auto()
    FOREIGN = auto()


async def import_database(
    storage: Storage,
    source: Source,
    reader: FrameworkReader,
    *,
    dry_run: bool = False,
    progress: OnProgress | None = None,
) -> ImportReport:
    """Import everything that the reader finds, and return a report.

    A session is imported once: a repeated import leaves complete sessions as they are, and begins those again that an
    interrupted one has left. A session or record of the same id that does not come from an import is never changed; the
    report names it. Rows without a counterpart are kept as raw records. A dry run reads everything and writes nothing.
    """
    tables, own = await source.tables(), await reader.recognised(source)
    if not own:
        found = f"found: {', '.join(sorted(tables))}" if tables else "it has no tables"
        raise InvalidInput(f"expected tables of {reader.framework} ({', '.join(sorted(reader.tables))}); {found}")
    tally, meter = Tally(), Meter("session", await reader.count(source), progress)
    async for each in reader.found(source):
        if isinstance(each, FoundSession):
            await _Importing(storage, reader.framework, tally, dry_run=dry_run).session(each)
        else:
            await _Importing(storage, reader.framework, tally, dry_run=dry_run).records(each)
        meter.step()
    return tally.report(reader.framework, tables - own, dry_run=dry_run)


class _Importing:
    def __init__(self, storage: Storage, framework: str, tally: Tally, *, dry_run: bool) -> None:
        self._storage = storage
        self._framework = framework
        self._tally = tally
        self._is_dry = dry_run

    async def session(self, found: FoundSession) -> None:
        match await _state(self._storage, found.session_id, self._framework):
            case _State.COMPLETE:
                self._tally.already_there += 1
                return
            case _State.FOREIGN:
                self._refuse(found.name, f"session {found.session_id!r} exists and does not come from an import")
                return
            case _State.BEGUN if not self._is_dry:
                await self._storage.sessions.delete(found.session_id)
            case _:
                pass
        counts, raw = Counter[str](), Counter[tuple[str, str]]()
        writer = None if self._is_dry else _SessionWriter(self._storage, found, self._framework)
        try:
            if writer is not None and not await writer.create():
                self._refuse(found.name, f"session {found.session_id!r} was created by another program meanwhile")
                return
            async for pieces in _together(found.pieces):
                _count(pieces, counts, raw)
                if writer is not None:
                    await writer.write(pieces)
            if writer is not None:
                await writer.finish(dict(counts))
        except InvalidInput as error:
            if writer is not None:
                await self._storage.sessions.delete(found.session_id)
            self._refuse(found.name, str(error))
            return
        self._tally.sessions += 1
        self._tally.add(counts, raw)

    async def records(self, found: FoundRecords) -> None:
        async for pieces in _together(found.pieces):
            if await self._put(pieces):
                continue
            for piece in pieces:
                if not await self._put([piece]):
                    self._tally.already_there += 1

    async def _put(self, pieces: Sequence[FoundPart]) -> bool:
        """Write records that do not exist yet; return False, and write nothing, if one of them does."""
        puts = _records(self._framework, pieces, None, expected_version=0)
        existing = await _existing(self._storage, puts)
        if existing:
            if len(pieces) == 1:
                self._report_other(existing)
            return False
        if not self._is_dry:
            try:
                await self._storage.records.put_many(puts)
            except RecordConflict:
                # Another program has written one of them meanwhile.
                return await self._put(pieces)
        counts, raw = Counter[str](), Counter[tuple[str, str]]()
        _count(pieces, counts, raw)
        self._tally.add(counts, raw)
        return True

    def _report_other(self, existing: Sequence[tuple[RecordPut, Record]]) -> None:
        for put, record in existing:
            if put.value != record.value:
                self._refuse(f"{put.collection} {put.key}", "the storage has another value under this key")

    def _refuse(self, name: str, reason: str) -> None:
        self._tally.not_imported.append(NotImported(name=name, reason=reason))


class _SessionWriter:
    """Writes one session: its mark first, then the pieces, then the mark again."""

    def __init__(self, storage: Storage, found: FoundSession, framework: str) -> None:
        self._storage = storage
        self._found = found
        self._framework = framework
        self._revision = 0
        self._checkpoint = CheckpointDraft()

    async def create(self) -> bool:
        """Create the session with the mark of an import that is not complete; False if it exists."""
        created = await self._storage.sessions.create(
            self._found.session_id,
            name=self._found.title,
            owner=self._found.owner,
            labels=dict(self._found.labels),
            metadata=self._found.metadata,
            retention=self._found.retention,
            commit=self._commit(Unchanged(), [self._mark({}, is_complete=False)]),
        )
        if created.commit is None:
            return False
        self._revision = created.commit.revision
        return True

    async def write(self, pieces: Sequence[FoundPart]) -> None:
        self._checkpoint = next((each.checkpoint for each in reversed(pieces) if each.checkpoint), self._checkpoint)
        records = _records(self._framework, pieces, self._found.session_id, expected_version=None)
        await self._write(_graph(pieces), records)

    async def finish(self, counts: dict[str, int]) -> None:
        await self._write(Unchanged(), [self._mark(counts, is_complete=True)])

    async def _write(self, graph: GraphDelta, records: Sequence[RecordPut]) -> None:
        session = self._storage.session(self._found.session_id)
        self._revision = (await session.commit(self._commit(graph, records))).revision

    def _commit(self, graph: GraphDelta, records: Sequence[RecordPut]) -> Commit:
        return Commit(
            session_id=self._found.session_id,
            expected_revision=self._revision,
            graph=graph,
            checkpoint=self._checkpoint,
            records=tuple(records),
        )

    def _mark(self, counts: dict[str, int], *, is_complete: bool) -> RecordPut:
        value = {"name": self._found.name, "complete": is_complete, "counts": counts}
        return RecordPut(collection=MARKS, key=self._framework, value=value, session_id=self._found.session_id)


async def _state(storage: Storage, session_id: str, framework: str) -> _State:
    try:
        mark = await storage.records.get(MARKS, framework, session_id=session_id)
    except (SessionNotFound, SessionDeleted):
        return _State.NEW
    if mark is None or not isinstance(mark.value, dict):
        return _State.FOREIGN
    return _State.COMPLETE if mark.value.get("complete") is True else _State.BEGUN


async def _together(pieces: AsyncIterator[FoundPart]) -> AsyncIterator[list[FoundPart]]:
    """Return pieces that are written in one commit."""
    group: list[FoundPart] = []
    rows = size = 0
    async for piece in pieces:
        its_rows, its_size = len(piece.nodes) + len(piece.records) + 2 * len(piece.raw), _size(piece)
        if group and (rows + its_rows > _ROWS or size + its_size > _BYTES):
            yield group
            group, rows, size = [], 0, 0
        group.append(piece)
        rows, size = rows + its_rows, size + its_size
    if group:
        yield group


def _graph(pieces: Sequence[FoundPart]) -> GraphDelta:
    """Return the nodes of pieces, and the leaf after them: the last node, or the one that a later piece names."""
    nodes: list[Node] = []
    leaf: str | None | UnsetType = UNSET
    for piece in pieces:
        if piece.nodes:
            nodes += piece.nodes
            leaf = UNSET
        if piece.leaf_node_id is not UNSET:
            leaf = piece.leaf_node_id
    return Append(nodes=tuple(nodes), leaf_node_id=leaf) if nodes else Unchanged(leaf_node_id=leaf)


def _size(piece: FoundPart) -> int:
    contents: Iterable[object] = itertools.chain(
        (node.entry.content for node in piece.nodes if isinstance(node.entry, BytesEntry)),
        (record.value for record in piece.records),
        (value for raw in piece.raw for value in raw.row.values()),
    )
    return piece.size + sum(len(each) if isinstance(each, bytes | str) else _BASE_BYTES for each in contents)


def _records(
    framework: str, pieces: Iterable[FoundPart], session_id: str | None, *, expected_version: int | None
) -> list[RecordPut]:
    """Return the records of pieces, each name once: equal values of large rows and channels share a record."""
    found: dict[tuple[str | None, str, str], RecordPut] = {}
    for piece in pieces:
        raw = (put for each in piece.raw for put in raw_records(framework, each, session_id))
        for put in (*piece.records, *raw):
            found[put.session_id, put.collection, put.key] = msgspec.structs.replace(
                put, expected_version=expected_version
            )
    return list(found.values())


async def _existing(storage: Storage, puts: Sequence[RecordPut]) -> list[tuple[RecordPut, Record]]:
    by_collection: dict[str, dict[str, RecordPut]] = {}
    for put in puts:
        by_collection.setdefault(put.collection, {})[put.key] = put
    existing: list[tuple[RecordPut, Record]] = []
    for collection, wanted in by_collection.items():
        found = await storage.records.get_many(collection, list(wanted))
        existing += [(wanted[key], record) for key, record in found.items()]
    return existing


def _count(pieces: Iterable[FoundPart], counts: Counter[str], raw: Counter[tuple[str, str]]) -> None:
    for piece in pieces:
        counts.update(piece.counts)
        rows: Sequence[RawRow] = piece.raw
        raw.update((each.table, each.reason) for each in rows)
