"""Rows written past lash, by an attacker who can write to the database."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import apsw
import asyncpg
from hypothesis import strategies as st

import lash
from lash.stores.storage import Storage
from tests.backends import with_parameters
from tests.proof.fuzz.everything import Known, demands, fill_everything, questions
from tests.proof.fuzz.kit import HOSTILE_JSON, anything, lash_only_from, loose_json, places, replaced, texts

NOT_UTF8: Final = b"\xff\xfe{\x80"
_SECONDS: Final = 30.0
_INTEGERS: Final = (0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
_BYTES: Final = (b"", b"\0", NOT_UTF8, b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\xa4\xff\xff\xff\xff", b"x" * 100_000)
_NOT_OURS: Final = "lash_migrations"


class Column(NamedTuple):
    """A column, the kind of value it takes, and one that is stored in it."""

    table: str
    name: str
    kind: str
    sample: object


class Fortress(Protocol):
    """A full storage that can be damaged by hand, and is restored afterwards."""

    known: Known
    columns: list[Column]

    def damaged(self, column: Column, value: object) -> contextlib.AbstractAsyncContextManager[Storage | None]:
        """Write the value into the column and open the storage; None if the database refused the value."""
        ...

    def struck(self, statement: str) -> contextlib.AbstractAsyncContextManager[Storage]:
        """Run a statement without checks and foreign keys, and open the storage."""
        ...


def hostile(column: Column) -> st.SearchStrategy[object]:
    """Return values that the type of a column allows, or nearly allows."""
    if column.kind == "integer":
        return st.sampled_from(_INTEGERS) | st.integers(-(2**63), 2**63 - 1)
    if column.kind == "bytes":
        sample = column.sample if isinstance(column.sample, bytes) else b""
        cut = st.integers(0, max(len(sample) - 1, 0)).map(lambda size: sample[:size])
        return st.sampled_from(_BYTES) | st.binary(max_size=50) | cut
    if column.kind == "text":
        return st.sampled_from([*HOSTILE_JSON, NOT_UTF8]) | texts | _twisted(column.sample)
    return st.just(None)


def _twisted(sample: object) -> st.SearchStrategy[str]:
    """Return the stored JSON with one part of it replaced."""
    try:
        value = json.loads(sample) if isinstance(sample, str) else None
    except ValueError:
        value = None
    if not isinstance(value, dict | list):
        return texts
    return st.builds(
        lambda way, other: loose_json(replaced(value, way, other)), st.sampled_from(places(value)), anything
    )


async def interrogate(fortress: Fortress, column: Column, value: object) -> bool:
    """Make every call on a damaged storage; only lash errors may occur, and soon. False if the value was refused."""
    async with fortress.damaged(column, value) as storage:
        if storage is None:
            return False
        for group in (questions, demands):
            for name, call in group(storage, fortress.known):
                try:
                    async with asyncio.timeout(_SECONDS):
                        outcome = await lash_only_from(call())
                    # The arguments are valid, so no error may ask the caller to correct them.
                    assert group is demands or not isinstance(outcome, lash.InvalidInput | lash.ConfigError), outcome
                except Exception as error:
                    error.add_note(f"{name}, with {value!r:.200} in {column.table}.{column.name}")
                    raise
    return True


class SQLiteFortress:
    """A file that is copied for each attack."""

    def __init__(self, directory: Path) -> None:
        self._pristine = directory / "pristine.db"
        self._copy = directory / "copy.db"
        self.url = f"sqlite:///{self._copy}"
        self.known = asyncio.run(_filled(f"sqlite:///{self._pristine}"))
        connection = apsw.Connection(str(self._pristine))
        self.columns = [column for column in _sqlite_columns(connection) if column.table != _NOT_OURS]
        connection.close()

    @contextlib.asynccontextmanager
    async def damaged(self, column: Column, value: object) -> AsyncIterator[Storage | None]:
        shutil.copy(self._pristine, self._copy)
        with contextlib.closing(apsw.Connection(str(self._copy))) as connection:
            written = _write_sqlite(connection, column, value)
        storage = await lash_only_from(lash.open(f"sqlite:///{self._copy}")) if written else None
        try:
            yield None if isinstance(storage, lash.LashError) else storage
        finally:
            if storage is not None and not isinstance(storage, lash.LashError):
                await storage.close()
            for path in self._copy.parent.glob("copy.db*"):
                path.unlink()

    @contextlib.asynccontextmanager
    async def struck(self, statement: str) -> AsyncIterator[Storage]:
        shutil.copy(self._pristine, self._copy)
        with contextlib.closing(apsw.Connection(str(self._copy))) as connection:
            connection.pragma("foreign_keys", False)
            connection.pragma("ignore_check_constraints", True)
            connection.execute(statement)
        try:
            async with await lash.open(f"sqlite:///{self._copy}") as storage:
                yield storage
        finally:
            for path in self._copy.parent.glob("copy.db*"):
                path.unlink()


def _write_sqlite(connection: apsw.Connection, column: Column, value: object) -> bool:
    connection.pragma("foreign_keys", False)
    connection.pragma("ignore_check_constraints", True)
    # Bytes in a text column are text that is not UTF-8.
    new = "CAST(? AS TEXT)" if column.kind == "text" and isinstance(value, bytes) else "?"
    try:
        given: Any = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        new = "CAST(? AS TEXT)" if isinstance(value, str) else new
        connection.execute(f'UPDATE {column.table} SET "{column.name}" = {new}', (given,))
    except apsw.Error:
        return False
    return True


def _sqlite_columns(connection: apsw.Connection) -> list[Column]:
    chosen = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'lash_*'"
    tables = connection.execute(chosen).fetchall()
    kinds = {"TEXT": "text", "INTEGER": "integer", "BLOB": "bytes"}
    found: list[Column] = []
    for (table,) in sorted(tables, key=str):
        for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            query = f'SELECT "{name}" FROM {table} WHERE "{name}" IS NOT NULL ORDER BY 1 DESC LIMIT 1'
            for (sample,) in connection.execute(query).fetchall():
                found.append(Column(str(table), str(name), kinds.get(str(kind), "other"), sample))
    return found


class PostgresFortress:
    """A schema whose tables are filled again from copies after each attack."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = with_parameters(url, schema=schema)
        self._server = url
        self._schema = schema
        self.known = asyncio.run(_filled(self._url))
        self.columns = asyncio.run(self._prepare())

    @contextlib.asynccontextmanager
    async def damaged(self, column: Column, value: object) -> AsyncIterator[Storage | None]:
        refused = await self._write(column, value)
        storage = None if refused else await lash_only_from(lash.open(self._url))
        try:
            yield None if isinstance(storage, lash.LashError) else storage
        finally:
            if storage is not None and not isinstance(storage, lash.LashError):
                await storage.close()
            await self._run("SELECT fuzz_restore()")

    @contextlib.asynccontextmanager
    async def struck(self, statement: str) -> AsyncIterator[Storage]:
        connection = await asyncpg.connect(self._server, server_settings={"search_path": self._schema})
        try:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute(statement)
        finally:
            await connection.close()
        try:
            async with await lash.open(self._url) as storage:
                yield storage
        finally:
            await self._run("SELECT fuzz_restore()")

    async def _prepare(self) -> list[Column]:
        await self._run(_KIT.replace("OURS", self._schema))
        kinds = {"text": "text", "bigint": "integer", "integer": "integer", "bytea": "bytes"}
        found: list[Column] = []
        for table, name, kind in await self._run(_COLUMNS.replace("OURS", self._schema)):
            query = f'SELECT "{name}" FROM "{self._schema}".{table} WHERE "{name}" IS NOT NULL ORDER BY 1 DESC LIMIT 1'
            if table != _NOT_OURS:
                found.extend(Column(table, name, kinds.get(kind, "other"), row[0]) for row in await self._run(query))
        return found

    async def _write(self, column: Column, value: object) -> bool:
        """Write the value, with foreign keys off; True if the server refused it."""
        connection = await asyncpg.connect(self._server)
        try:
            await connection.execute("SET session_replication_role = replica")
            given = value.decode("latin-1") if column.kind == "text" and isinstance(value, bytes) else value
            await connection.execute(f'UPDATE "{self._schema}".{column.table} SET "{column.name}" = $1', given)
        except (asyncpg.PostgresError, asyncpg.DataError, UnicodeEncodeError):
            return True
        finally:
            await connection.close()
        return False

    async def _run(self, statement: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self._server)
        try:
            if statement.count(";") > 1:
                await connection.execute(statement)
                return []
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()


_COLUMNS: Final = """
SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = 'OURS' AND starts_with(table_name, 'lash_') AND is_generated = 'NEVER'
ORDER BY table_name, ordinal_position
"""
_KIT: Final = """
CREATE SCHEMA fuzz_pristine;
DO $$
DECLARE
    item text;
BEGIN
    FOR item IN SELECT tablename FROM pg_tables WHERE schemaname = 'OURS' LOOP
        EXECUTE format('CREATE TABLE fuzz_pristine.%I AS TABLE "OURS".%I', item, item);
    END LOOP;
END $$;
CREATE FUNCTION fuzz_restore() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    item text;
    written text;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR item IN SELECT tablename FROM pg_tables WHERE schemaname = 'OURS' LOOP
        EXECUTE format('DELETE FROM "OURS".%I', item);
        SELECT string_agg(quote_ident(column_name), ', ') INTO written
        FROM information_schema.columns
        WHERE table_schema = 'OURS' AND table_name = item AND is_generated = 'NEVER';
        EXECUTE format(
            'INSERT INTO "OURS".%I (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM fuzz_pristine.%I',
            item, written, written, item
        );
    END LOOP;
END $$;
"""


async def _filled(url: str) -> Known:
    async with await lash.open(url) as storage:
        return await fill_everything(storage)
