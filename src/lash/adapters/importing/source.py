"""The database of a framework, read in one snapshot and never written."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import apsw

from lash.errors import ConfigError, InvalidInput, StoreUnavailable

Row: TypeAlias = dict[str, Any]
"""A row by the names of its columns. JSON columns are text, on both databases."""
_DRIVER: Final = re.compile(r"^(\w+)\+\w+(?=://)")
"""The driver in a URL of SQLAlchemy."""
_PAGE: Final = 200
_BUSY_MS: Final = 5_000


class Source(Protocol):
    """The tables of a database as of one moment."""

    async def tables(self) -> frozenset[str]:
        """Return the names of the tables."""
        ...

    async def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table, in order, with their declared types in lower case."""
        ...

    async def count(self, table: str, *, where: Mapping[str, object] | None = None) -> int:
        """Return how many rows a table has."""
        ...

    async def distinct(self, tables: Sequence[str], columns: Sequence[str]) -> list[Row]:
        """Return the different values of columns over several tables, sorted; keys such as the ids of sessions."""
        ...

    def rows(
        self, table: str, *, where: Mapping[str, object] | None = None, order: Sequence[str] = ()
    ) -> AsyncIterator[Row]:
        """Return the rows of a table with all columns, read page by page.

        ``where`` compares for equality; None finds NULL. Raises InvalidInput if the database is damaged.
        """
        ...


@contextlib.asynccontextmanager
async def open_source(where: str) -> AsyncIterator[Source]:
    """Open a SQLite file, by path or sqlite URL, or a PostgreSQL database, by URL, for reading.

    ``?schema=NAME`` names the PostgreSQL schema that has the tables, by default that of the connection. A driver in the
    URL, as in ``postgresql+asyncpg://``, is ignored.
    """
    where = _DRIVER.sub(r"\1", where)
    if where.startswith(("postgresql://", "postgres://")):
        async with _postgres(where) as source:
            yield source
        return
    path = unquote(urlsplit(where).path.removeprefix("/")) if where.startswith("sqlite://") else where
    if not await asyncio.to_thread(Path(path).is_file):
        raise InvalidInput(f"no database at {path}; expected a SQLite file or a postgresql:// URL")
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("BEGIN")
        # The snapshot begins with the first read, which also shows whether the file is a database.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error as error:
        raise InvalidInput(f"{path} cannot be read as a SQLite database: {error}") from error
    try:
        yield _SQLiteSource(connection)
    finally:
        connection.close()


class _SQLiteSource:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    async def tables(self) -> frozenset[str]:
        found = self._connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
        return frozenset(str(name) for (name,) in found.fetchall())

    async def columns(self, table: str) -> dict[str, str]:
        found = self._connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        return {str(name): str(kind).lower() for name, kind in found}

    async def count(self, table: str, *, where: Mapping[str, object] | None = None) -> int:
        conditions, values = self._conditions(where)
        with _reading(table):
            ((number,),) = self._connection.execute(_count_sql(table, conditions), values).fetchall()
        assert isinstance(number, int)
        return number

    async def distinct(self, tables: Sequence[str], columns: Sequence[str]) -> list[Row]:
        with _reading(", ".join(tables)):
            found = await asyncio.to_thread(self._connection.execute(_distinct_sql(tables, columns)).fetchall)
        return [dict(zip(columns, row, strict=True)) for row in found]

    async def rows(
        self, table: str, *, where: Mapping[str, object] | None = None, order: Sequence[str] = ()
    ) -> AsyncIterator[Row]:
        conditions, values = self._conditions(where)
        names = await self.columns(table)
        with _reading(table):
            cursor = self._connection.execute(_rows_sql(table, conditions, order), values)
        try:
            while page := await asyncio.to_thread(_take, table, cursor):
                for row in page:
                    yield dict(zip(names, row, strict=True))
        finally:
            cursor.close()

    @staticmethod
    def _conditions(where: Mapping[str, object] | None) -> tuple[str, tuple[Any, ...]]:
        marks = {name: None if value is None else "?" for name, value in (where or {}).items()}
        return _where(marks), tuple(value for value in (where or {}).values() if value is not None)


def _take(table: str, cursor: apsw.Cursor) -> list[Any]:
    page: list[Any] = []
    with _reading(table):
        for row in cursor:
            page.append(row)
            if len(page) == _PAGE:
                break
    return page


@contextlib.contextmanager
def _reading(tables: str) -> Iterator[None]:
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise InvalidInput(f"{tables} cannot be read: {error}") from error


@contextlib.asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[Source]:
    try:
        import asyncpg
    except ModuleNotFoundError as error:
        raise ConfigError("a PostgreSQL database needs asyncpg: pip install 'lash-runtime[postgres]'") from error
    dsn, schema = _without_schema(url)
    settings = {} if schema is None else {"search_path": _quoted(schema)}
    try:
        connection = await asyncpg.connect(dsn, server_settings=settings)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(f"the database to import from cannot be opened: {error}") from error
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield _PostgresSource(connection)
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(f"the database to import from cannot be read: {error}") from error
    finally:
        await connection.close()


class _PostgresSource:
    def __init__(self, connection: Any) -> None:  # noqa: ANN401 (asyncpg is imported on demand)
        self._connection = connection

    async def tables(self) -> frozenset[str]:
        found = await self._connection.fetch(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
        )
        return frozenset(str(row[0]) for row in found)

    async def columns(self, table: str) -> dict[str, str]:
        found = await self._connection.fetch(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position",
            table,
        )
        return {str(name): str(kind) for name, kind in found}

    async def count(self, table: str, *, where: Mapping[str, object] | None = None) -> int:
        conditions, values = self._conditions(where)
        return int(await self._connection.fetchval(_count_sql(table, conditions), *values))

    async def distinct(self, tables: Sequence[str], columns: Sequence[str]) -> list[Row]:
        return [dict(row) for row in await self._connection.fetch(_distinct_sql(tables, columns))]

    async def rows(
        self, table: str, *, where: Mapping[str, object] | None = None, order: Sequence[str] = ()
    ) -> AsyncIterator[Row]:
        conditions, values = self._conditions(where)
        async for row in self._connection.cursor(_rows_sql(table, conditions, order), *values, prefetch=_PAGE):
            yield dict(row)

    @staticmethod
    def _conditions(where: Mapping[str, object] | None) -> tuple[str, tuple[object, ...]]:
        given = {name: value for name, value in (where or {}).items() if value is not None}
        marks: dict[str, str | None] = dict.fromkeys(where or {})
        marks |= {name: f"${number}" for number, name in enumerate(given, 1)}
        return _where(marks), tuple(given.values())


# The tables are the framework's, in every release of it: their names and columns are data here.


def _count_sql(table: str, conditions: str) -> str:
    return f"SELECT count(*) FROM {_quoted(table)}{conditions}"  # noqa: S608 (quoted names)


def _distinct_sql(tables: Sequence[str], columns: Sequence[str]) -> str:
    names = ", ".join(map(_quoted, columns))
    parts = (f"SELECT DISTINCT {names} FROM {_quoted(table)}" for table in tables)  # noqa: S608 (quoted names)
    return " UNION ".join(parts) + f" ORDER BY {names}"


def _rows_sql(table: str, conditions: str, order: Sequence[str]) -> str:
    sorting = f" ORDER BY {', '.join(map(_quoted, order))}" if order else ""
    return f"SELECT * FROM {_quoted(table)}{conditions}{sorting}"  # noqa: S608 (quoted names)


def _where(marks: Mapping[str, str | None]) -> str:
    """Return the conditions of a query; a column whose mark is None must be NULL."""
    conditions = [
        f"{_quoted(name)} IS NULL" if mark is None else f"{_quoted(name)} = {mark}" for name, mark in marks.items()
    ]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _without_schema(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = query.pop("schema", None)
    return urlunsplit(parts._replace(query=urlencode(query))), schema
