"""Reads the sessions of OpenAI's Agents SDK: ``lash import openai-agents DATABASE``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from lash.adapters.formats import openai_items
from lash.adapters.importing.found import Found, FoundPart, FoundRecords, FoundSession, RawRow
from lash.adapters.importing.source import Row, Source
from lash.adapters.importing.values import moment, with_own_columns
from lash.adapters.names import short
from lash.base.codec import encode_to_bytes
from lash.base.ids import new_id
from lash.errors import InvalidInput
from lash.model.record import RecordPut
from lash.model.session.node import Node
from lash.model.session.session import Retention
from lash.model.value import JSONObject

BRANCHES: Final = "openai-agents.branches"
"""One record for each branch beside the main one, with the node at its end."""
_SESSIONS: Final = "agent_sessions"
_MESSAGES: Final = "agent_messages"
_STRUCTURE: Final = "message_structure"
_ADVANCED: Final = {
    "turn_usage": "token usage without the name of a model",
    "branch_reservations": "the names of branches that were ever used",
    "session_clear_generations": "how often the session was cleared",
}
"""Other tables of `AdvancedSQLiteSession`, and why their rows have no counterpart."""
_ADVANCED_COLUMNS: Final = {
    _STRUCTURE: frozenset({"id", "session_id", "message_id", "branch_id", "sequence_number"}),
    **dict.fromkeys(_ADVANCED, frozenset({"session_id"})),
}
_SESSION_COLUMNS: Final = frozenset({"session_id", "created_at", "updated_at"})
_MESSAGE_COLUMNS: Final = frozenset({"id", "session_id", "message_data", "created_at"})
_MAIN: Final = "main"
"""The branch on which `AdvancedSQLiteSession` begins."""


class OpenAIAgentsReader:
    """Sessions of `SQLiteSession`, `AsyncSQLiteSession`, `AdvancedSQLiteSession` and `SQLAlchemySession`.

    The tables are found by their columns, because the SDK lets programs name them.
    """

    framework = openai_items.FRAMEWORK
    tables = frozenset({_SESSIONS, _MESSAGES})

    async def recognised(self, source: Source) -> frozenset[str]:
        """Return the tables of sessions and messages, and those of `AdvancedSQLiteSession`."""
        return (await _layout(source)).tables

    async def count(self, source: Source) -> int:
        """Return the number of sessions, in each table of messages."""
        layout = await _layout(source)
        return len(await _session_ids(source, layout, layout.tables))

    async def found(self, source: Source) -> AsyncIterator[Found]:
        """Return the sessions by id, then what belongs to none."""
        layout = await _layout(source)
        existing = dict.fromkeys(await _session_ids(source, layout, {*layout.sessions, *layout.messages}))
        for session_id in existing:
            if not isinstance(session_id, str):
                yield FoundRecords(name=str(session_id), pieces=_raw(source, layout.tables, session_id, "not an id"))
                continue
            read = _Session(source, layout, session_id)
            yield FoundSession(
                name=session_id,
                session_id=openai_items.lash_id(session_id),
                pieces=read.pieces(),
                labels=openai_items.LABELS,
                metadata=await read.metadata(),
                retention=Retention.latest(),
            )
        for session_id in await _session_ids(source, layout, layout.tables):
            if session_id not in existing:
                pieces = _raw(source, layout.tables, session_id, "its session does not exist any more")
                yield FoundRecords(name=str(session_id), pieces=pieces)


class _Layout(NamedTuple):
    """The tables of a database; the names of the first two kinds are the program's choice."""

    sessions: tuple[str, ...]
    messages: tuple[str, ...]
    advanced: tuple[str, ...]
    by_time: frozenset[str]
    """Tables of messages that `SQLAlchemySession` reads by time, and not by id alone."""

    @property
    def tables(self) -> frozenset[str]:
        return frozenset({*self.sessions, *self.messages, *self.advanced})


async def _layout(source: Source) -> _Layout:
    tables = await source.tables()
    columns = {table: await source.columns(table) for table in sorted(tables)}
    messages = sorted(table for table in tables if set(columns[table]) >= _MESSAGE_COLUMNS)
    if not messages:
        return _Layout((), (), (), frozenset())
    # The default names first: if another table has a session of the same id, the default one is imported.
    messages.sort(key=lambda table: table != _MESSAGES)
    return _Layout(
        sessions=tuple(table for table in columns if set(columns[table]) >= _SESSION_COLUMNS),
        messages=tuple(messages),
        advanced=tuple(table for table, needed in _ADVANCED_COLUMNS.items() if needed <= set(columns.get(table, ()))),
        by_time=frozenset(table for table in messages if columns[table]["session_id"] != "text"),
    )


async def _session_ids(source: Source, layout: _Layout, tables: set[str] | frozenset[str]) -> list[Any]:
    if not layout.messages:
        return []
    return [row["session_id"] for row in await source.distinct(sorted(tables), ["session_id"])]


async def _raw(
    source: Source, tables: Sequence[str] | frozenset[str], session_id: object, reason: str
) -> AsyncIterator[FoundPart]:
    """Return all rows of a session, to be kept as they are."""
    for table in sorted(tables):
        async for row in source.rows(table, where={"session_id": session_id}):
            yield FoundPart(raw=[RawRow(table=table, row=row, reason=reason)])


class _Session:
    """The rows of one session as nodes."""

    def __init__(self, source: Source, layout: _Layout, session_id: str) -> None:
        self._source = source
        self._layout = layout
        self._where = {"session_id": session_id}
        self._session_id = session_id

    async def metadata(self) -> JSONObject:
        """Return the times of the session."""
        for table in await self._holding(self._layout.sessions):
            (row, *_) = [row async for row in self._source.rows(table, where=self._where)]
            return {name: str(row[name]) for name in ("created_at", "updated_at")}
        return {}

    async def pieces(self) -> AsyncIterator[FoundPart]:
        """Return the items in order, the other branches, and what has no counterpart."""
        holding = await self._holding(self._layout.messages)
        branches = await self._branches()
        for table in holding[:1]:
            async for piece in self._on_branches(table, branches) if branches else self._in_order(table):
                yield piece
        async for piece in self._others(await self._holding(self._layout.sessions), _SESSION_COLUMNS):
            yield piece
        async for piece in self._others(holding, None):
            yield piece
        for table in self._layout.advanced:
            if table != _STRUCTURE:
                async for piece in _raw(self._source, [table], self._session_id, _ADVANCED[table]):
                    yield piece

    async def _others(self, tables: Sequence[str], known: frozenset[str] | None) -> AsyncIterator[FoundPart]:
        """Return the rows in all tables but the first, and those of the first with columns of the program's own."""
        for table in tables:
            if table != tables[0]:
                async for piece in _raw(
                    self._source, [table], self._session_id, f"{tables[0]} has a session of its id"
                ):
                    yield piece
            elif known is not None:
                async for row in self._source.rows(table, where=self._where):
                    yield FoundPart(raw=with_own_columns(table, row, known))

    async def _holding(self, tables: Sequence[str]) -> list[str]:
        """Return the tables that have rows of the session."""
        return [table for table in tables if await self._source.count(table, where=self._where)]

    async def _branches(self) -> dict[str, list[Row]]:
        """Return the rows of each branch in order, the main branch first; none if the session has no branches."""
        branches: dict[str, list[Row]] = {}
        if _STRUCTURE in self._layout.advanced:
            order = ("branch_id", "sequence_number", "id")
            async for row in self._source.rows(_STRUCTURE, where=self._where, order=order):
                branches.setdefault(str(row["branch_id"]), []).append(row)
        if not branches:
            return {}
        return {_MAIN: branches.pop(_MAIN, []), **branches}

    async def _in_order(self, table: str) -> AsyncIterator[FoundPart]:
        parent_id: str | None = None
        order = ("created_at", "id") if table in self._layout.by_time else ("id",)
        async for row in self._source.rows(table, where=self._where, order=order):
            piece = _piece(table, row, parent_id)
            parent_id = piece.nodes[-1].node_id if piece.nodes else parent_id
            yield piece

    async def _on_branches(self, table: str, branches: dict[str, list[Row]]) -> AsyncIterator[FoundPart]:
        """Return the items of all branches as one tree. The path of the session is the main branch."""
        placed: dict[tuple[str | None, object], str | None] = {}
        used: set[object] = set()
        ends: dict[str, str | None] = {}
        for branch_id, structure in branches.items():
            parent_id: str | None = None
            for each in structure:
                place = (parent_id, each["message_id"])
                if place not in placed:
                    piece = await self._message(table, each, parent_id, is_first=each["message_id"] not in used)
                    used.add(each["message_id"])
                    placed[place] = piece.nodes[-1].node_id if piece.nodes else parent_id
                    yield piece
                parent_id = placed[place]
            ends[branch_id] = parent_id
        yield FoundPart(leaf_node_id=ends.pop(_MAIN), **_named(ends, self._session_id))
        async for row in self._source.rows(table, where=self._where, order=("id",)):
            if row["id"] not in used:
                yield FoundPart(raw=[RawRow(table=table, row=row, reason="it is on no branch")])

    async def _message(self, table: str, structure: Row, parent_id: str | None, *, is_first: bool) -> FoundPart:
        where = {**self._where, "id": structure["message_id"]}
        rows = [row async for row in self._source.rows(table, where=where)]
        if not rows:
            return FoundPart(raw=[RawRow(table=_STRUCTURE, row=structure, reason="its message does not exist")])
        piece = _piece(table, rows[0], parent_id)
        return piece if is_first or piece.nodes else FoundPart()


def _named(ends: dict[str, str | None], session_id: str) -> dict[str, Any]:
    """Return the names of the branches as arguments of a `FoundPart`."""
    lash_id = openai_items.lash_id(session_id)
    records = [
        RecordPut(
            collection=BRANCHES,
            key=short(branch_id, 200),
            value={"branch_id": branch_id, "leaf_node_id": leaf},
            session_id=lash_id,
        )
        for branch_id, leaf in ends.items()
    ]
    return {"records": records, "counts": {"branch": len(records)} if records else {}}


def _piece(table: str, row: Row, parent_id: str | None) -> FoundPart:
    """Return the node of a row; the row itself if it is not an item that a session can hold."""
    own = with_own_columns(table, row, _MESSAGE_COLUMNS)
    try:
        item = json.loads(row["message_data"])
    except (TypeError, ValueError, RecursionError):
        return FoundPart(raw=[RawRow(table=table, row=row, reason="it is not JSON")])
    if not isinstance(item, dict):
        return FoundPart(raw=[RawRow(table=table, row=row, reason="it is not a JSON object")])
    try:
        created_at = moment(row["created_at"])
    except ValueError:
        created_at, own = None, [*own, RawRow(table=table, row=row, reason="its time cannot be read")]
    try:
        node = Node(
            node_id=new_id(),
            parent_node_id=parent_id,
            timestamp=created_at or datetime.now(UTC),
            entry=openai_items.entry_of(item),
        )
        size = len(encode_to_bytes(node, Node, "item"))
    except InvalidInput as error:
        return FoundPart(raw=[RawRow(table=table, row=row, reason=str(error))])
    return FoundPart(nodes=[node], raw=own, counts={"item": 1}, size=size)
