"""Reads the databases of ADK's own session services: ``lash import adk DATABASE``."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

from lash.adapters.formats import adk_state
from lash.adapters.formats.adk_names import FRAMEWORK, SessionName
from lash.adapters.formats.adk_state import NO_STATE, Delta, Values
from lash.adapters.importing.adk_events import EventReader
from lash.adapters.importing.found import Found, FoundPart, FoundRecords, FoundSession, RawRow
from lash.adapters.importing.source import Row, Source
from lash.adapters.importing.values import moment, with_own_columns
from lash.errors import InvalidInput
from lash.model.record import RecordPut
from lash.model.session.session import Retention

_SESSIONS: Final = "sessions"
_EVENTS: Final = "events"
_APP_STATES: Final = "app_states"
_USER_STATES: Final = "user_states"
_METADATA: Final = "adk_internal_metadata"
_COLUMNS: Final = {
    _SESSIONS: frozenset({"app_name", "user_id", "id", "state", "create_time", "update_time"}),
    _EVENTS: frozenset({"app_name", "user_id", "session_id", "id", "invocation_id", "timestamp"}),
    _APP_STATES: frozenset({"app_name", "state", "update_time"}),
    _USER_STATES: frozenset({"app_name", "user_id", "state", "update_time"}),
    _METADATA: frozenset({"key", "value"}),
}
_VERSION_KEY: Final = "schema_version"
_VERSIONS: Final = frozenset({"0", "1"})
_KEYS: Final = ("app_name", "user_id", "id")
_EVENT_KEYS: Final = ("app_name", "user_id", "session_id")
_RECORDS: Final = 200
"""Records of state in one piece."""
_MAX_VALUE: Final = 12 * 1024 * 1024
"""A record has at most 16 MB."""


class ADKReader:
    """Sessions of `DatabaseSessionService`, in both versions of its tables, and of `SqliteSessionService`."""

    framework = FRAMEWORK
    tables = frozenset(_COLUMNS)

    async def recognised(self, source: Source) -> frozenset[str]:
        """Return ADK's tables; raise InvalidInput if they are not of a known version."""
        own = await source.tables() & self.tables
        if not {_SESSIONS, _EVENTS} <= own:
            return frozenset()
        for table in sorted(own):
            columns = await source.columns(table)
            if missing := sorted(_COLUMNS[table] - set(columns)):
                raise InvalidInput(f"expected a database of ADK; table {table} has no column {', '.join(missing)}")
            if table == _EVENTS and not {"event_data", "actions"} & set(columns):
                raise InvalidInput("expected a database of ADK; table events has no column event_data or actions")
        if _METADATA in own:
            async for row in source.rows(_METADATA, where={"key": _VERSION_KEY}):
                if row["value"] not in _VERSIONS:
                    raise InvalidInput(f"unknown version {row['value']} of ADK's tables; known: 0, 1")
        return own

    async def count(self, source: Source) -> int:
        """Return the number of sessions, and two more for state and for what belongs to no session."""
        return await source.count(_SESSIONS) + 2

    async def found(self, source: Source) -> AsyncIterator[Found]:
        """Return the sessions, then the state of apps and users, then what belongs to no session."""
        layout = await _layout(source)
        exact = {tuple(row.values()) for row in await source.distinct([_SESSIONS], _KEYS)}
        taken: set[SessionName] = set()
        async for row in source.rows(_SESSIONS, order=_KEYS):
            name = _name(row)
            if name is None or name in taken or (row["id"] != name.session_id and name in exact):
                reason = "its id is not text" if name is None else "another session has the same id without blanks"
                yield FoundRecords(name=str(row["id"]), pieces=_rows_of(source, row, reason))
                continue
            taken.add(name)
            yield FoundSession(
                name="/".join(name),
                session_id=name.lash_id,
                pieces=_session_pieces(source, layout, row),
                title=name.shown,
                owner=name.owner,
                labels=name.labels,
                metadata={**name.metadata, "create_time": str(row["create_time"])},
                retention=Retention.latest(),
            )
        yield FoundRecords(name="state of apps and users", pieces=_state_pieces(source, layout.tables))
        yield FoundRecords(name="what belongs to no session", pieces=_leftovers(source, layout.tables))


class _Layout(NamedTuple):
    tables: frozenset[str]
    events: EventReader
    order: tuple[str, ...]
    """The order in which ADK reads events."""


async def _layout(source: Source) -> _Layout:
    columns, sessions = await source.columns(_EVENTS), await source.columns(_SESSIONS)
    # SqliteSessionService has seconds where DatabaseSessionService has dates, and stores an event whole.
    is_whole = sessions["update_time"] == "real"
    order = ("timestamp", "rowid") if is_whole else ("timestamp", "id")
    known = _COLUMNS[_EVENTS]
    return _Layout(await source.tables(), EventReader(columns, known, is_whole=is_whole), order)


def _name(row: Row) -> SessionName | None:
    """Return the name under which the adapter finds a session; None if a part of it is not text."""
    app_name, user_id, session_id = (row[key] for key in _KEYS)
    if not (isinstance(app_name, str) and isinstance(user_id, str) and isinstance(session_id, str)):
        return None
    return SessionName.of(app_name, user_id, session_id)


def _events_of(row: Row) -> dict[str, object]:
    return {"app_name": row["app_name"], "user_id": row["user_id"], "session_id": row["id"]}


async def _rows_of(source: Source, row: Row, reason: str) -> AsyncIterator[FoundPart]:
    """Return a session and its events, to be kept as they are."""
    yield FoundPart(raw=[RawRow(table=_SESSIONS, row=row, reason=reason)])
    async for event in source.rows(_EVENTS, where=_events_of(row)):
        yield FoundPart(raw=[RawRow(table=_EVENTS, row=event, reason=reason)])


async def _session_pieces(source: Source, layout: _Layout, row: Row) -> AsyncIterator[FoundPart]:
    raw = with_own_columns(_SESSIONS, row, _COLUMNS[_SESSIONS])
    path = layout.events.path()
    async for event in source.rows(_EVENTS, where=_events_of(row), order=layout.order):
        yield path.piece(event)
    try:
        updated = _seconds(row["update_time"])
    except ValueError:
        raw = [*raw, RawRow(table=_SESSIONS, row=row, reason="its time cannot be read")]
        updated = path.last_seconds
    values = _values(row["state"])
    if values is None:
        raw = [*raw, RawRow(table=_SESSIONS, row=row, reason="its state is not a JSON object")]
    _, components = NO_STATE.change(values or {})
    yield FoundPart(raw=raw, checkpoint=adk_state.draft(components, updated), size=len(str(row["state"])))


def _seconds(value: object) -> float:
    """Return a time in seconds, exactly as ADK calculates it."""
    if isinstance(value, float):
        return value
    found = moment(value)
    if found is None:
        raise ValueError("it is NULL")
    return found.timestamp()


def _values(text: object) -> Values | None:
    try:
        values = json.loads(text) if isinstance(text, str) else None
        # Lone surrogates are valid JSON and cannot be stored.
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


async def _state_pieces(source: Source, tables: frozenset[str]) -> AsyncIterator[FoundPart]:
    """Return a record for each key of the state of apps and users."""
    for table in (_APP_STATES, _USER_STATES):
        if table not in tables:
            continue
        async for row in source.rows(table, order=("app_name",)):
            yield FoundPart(raw=with_own_columns(table, row, _COLUMNS[table]))
            for piece in _scope_pieces(table, row):
                yield piece


def _scope_pieces(table: str, row: Row) -> list[FoundPart]:
    values = _values(row["state"])
    app_name, user_id = row["app_name"], row.get("user_id", "")
    if values is None or not isinstance(app_name, str) or not isinstance(user_id, str):
        return [FoundPart(raw=[RawRow(table=table, row=row, reason="its state is not a JSON object")])]
    large = {key for key, value in values.items() if len(json.dumps(value)) > _MAX_VALUE}
    pieces = [FoundPart(raw=[RawRow(table=table, row=row, reason="a value of more than 12 MB")])] if large else []
    kept = {key: value for key, value in values.items() if key not in large}
    is_app = table == _APP_STATES
    delta = Delta(kept, {}, {}) if is_app else Delta({}, kept, {})
    puts = delta.records(SessionName(app_name, user_id, ""))
    noun = "app value" if is_app else "user value"
    while group := list(itertools.islice(puts, _RECORDS)):
        pieces.append(_records_piece(group, noun))
    return pieces


def _records_piece(puts: list[RecordPut], noun: str) -> FoundPart:
    size = sum(len(put.value["json"]) for put in puts if isinstance(put.value, Mapping))
    return FoundPart(records=puts, counts={noun: len(puts)}, size=size)


async def _leftovers(source: Source, tables: frozenset[str]) -> AsyncIterator[FoundPart]:
    """Return events without a session, and metadata beyond the version of the tables."""
    sessions = {tuple(row.values()) for row in await source.distinct([_SESSIONS], _KEYS)}
    for row in await source.distinct([_EVENTS], _EVENT_KEYS):
        if tuple(row.values()) not in sessions:
            async for event in source.rows(_EVENTS, where=row):
                yield FoundPart(raw=[RawRow(table=_EVENTS, row=event, reason="its session does not exist")])
    if _METADATA in tables:
        async for row in source.rows(_METADATA, order=("key",)):
            if row["key"] != _VERSION_KEY:
                yield FoundPart(raw=[RawRow(table=_METADATA, row=row, reason="metadata of ADK's own tables")])
