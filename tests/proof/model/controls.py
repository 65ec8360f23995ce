"""Connections past lash: they empty a database between examples, read its rows, and set the time of a server."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import urlsplit

import apsw
import asyncpg

from lash.postgres.engine.options import PostgresOptions
from lash.stores.table_rows import RowTable
from tests.contract.harnesses import PostgresHarness

RawRow = tuple[Any, ...]


class Control(Protocol):
    """The operations that both databases offer."""

    async def empty(self, tables: list[str]) -> None:
        """Delete all rows of the tables. Row numbers are not given again."""
        ...

    async def select(self, table: RowTable) -> list[RawRow]:
        """Return all rows of a table."""
        ...

    async def close(self) -> None: ...


class SQLiteControl:
    def __init__(self, url: str) -> None:
        self._path = urlsplit(url).path.removeprefix("/")
        self._kept: apsw.Connection | None = None

    async def empty(self, tables: list[str]) -> None:
        with self._connection() as connection:
            for table in tables:
                connection.execute(f"DELETE FROM {table}")

    async def select(self, table: RowTable) -> list[RawRow]:
        return [tuple(row) for row in self._connection().execute(f"SELECT {_columns(table)} FROM {table.name}")]

    async def close(self) -> None:
        if self._kept is not None:
            self._kept.close()

    def _connection(self) -> apsw.Connection:
        if self._kept is None:
            self._kept = apsw.Connection(self._path)
            self._kept.set_busy_timeout(15_000)
        return self._kept


class PostgresControl:
    def __init__(self, url: str) -> None:
        self._options = PostgresOptions.from_url(url)
        self._kept: asyncpg.Connection[asyncpg.Record] | None = None

    async def empty(self, tables: list[str]) -> None:
        deletions = "; ".join(f'DELETE FROM "{self._options.schema}".{table}' for table in tables)
        await self.execute(f"BEGIN; SET LOCAL session_replication_role = replica; {deletions}; COMMIT")

    async def select(self, table: RowTable) -> list[RawRow]:
        connection = await self._connection()
        found = await connection.fetch(f'SELECT {_columns(table)} FROM "{self._options.schema}".{table.name}')
        return [tuple(int(value) if isinstance(value, bool) else value for value in row) for row in found]

    async def execute(self, script: str) -> None:
        connection = await self._connection()
        await connection.execute(script)

    async def close(self) -> None:
        if self._kept is not None:
            await self._kept.close()

    async def _connection(self) -> asyncpg.Connection[asyncpg.Record]:
        if self._kept is None:
            self._kept = await asyncpg.connect(self._options.dsn)
        return self._kept


class ControlledPostgres(PostgresHarness):
    """The harness of PostgreSQL, where moving the clock costs one statement and no connection."""

    def __init__(self, url: str, control: PostgresControl) -> None:
        super().__init__(url)
        self._control = control

    async def _run(self, script: str, now_ms: int) -> None:
        await self._control.execute(script.format(schema=self._options.schema, now_ms=now_ms))


def _columns(table: RowTable) -> str:
    return ", ".join(f'"{column}"' for column in table.columns)
