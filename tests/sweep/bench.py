"""A database that can be put back to where it was: what a sweep starts from at every point."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

import apsw
import asyncpg
import msgspec

from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from lash.testing.harness import URLHarness
from tests.backends import with_parameters
from tests.contract.harnesses import PostgresHarness
from tests.sweep.seam import Seam, installed

Lines = tuple[str, ...]
"""All rows of a database, as text, each behind the name of its table."""


class Bench(Protocol):
    """One database, the state that was kept of it, and storages with a seam below them."""

    backend: str

    @property
    def url(self) -> str:
        """Where the database is now."""
        ...

    @property
    def clock(self) -> ManualClock: ...

    def opened(self, seam: Seam) -> AsyncIterator[Storage]: ...

    async def lines(self) -> Lines:
        """Return what is committed, seen from a connection of its own."""
        ...

    async def keep(self) -> None:
        """Keep the present state as the one to start from."""
        ...

    async def restore(self) -> None:
        """Go back to the state that was kept."""
        ...

    async def note_numbers(self) -> None:
        """Remember which numbers sequences have given when the operation was done once."""
        ...

    async def align_numbers(self, *, done: bool) -> None:
        """Let sequences go on as if nothing had failed: numbers that a failed try has used up are no difference."""
        ...

    async def problems(self) -> list[str]:
        """Return what the database itself finds wrong."""
        ...


class SQLiteBench:
    """A file, and a copy of it from which every point starts."""

    backend = "sqlite"

    def __init__(self, folder: Path, empty: Path) -> None:
        """Begin with a copy of an empty storage."""
        self._folder = folder
        self._kept = folder / "kept.db"
        self._now = folder / "0.db"
        self._restored = 0
        self.clock = ManualClock()
        shutil.copyfile(empty, self._now)

    @property
    def url(self) -> str:
        return f"sqlite:///{self._now}"

    @asynccontextmanager
    async def opened(self, seam: Seam) -> AsyncIterator[Storage]:
        harness = URLHarness(self.backend, self.url, self.clock)
        with installed(seam):
            storage = await harness.open()
        try:
            yield storage
        finally:
            await harness.close()

    async def lines(self) -> Lines:
        return self.read()

    def read(self) -> Lines:
        """Return what is committed; from any thread."""
        connection = apsw.Connection(str(self._now), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(15_000)
            with connection:
                tables = [str(name) for (name,) in connection.execute(_TABLES)]
                return tuple(line for table in tables for line in _rows(connection, table))
        finally:
            connection.close()

    async def keep(self) -> None:
        shutil.copyfile(self._now, self._kept)

    async def restore(self) -> None:
        for old in self._folder.glob(f"{self._now.name}*"):
            old.unlink()
        # Another name each time: no process may mistake the new file for one that it has open.
        self._restored += 1
        self._now = self._folder / f"{self._restored}.db"
        shutil.copyfile(self._kept, self._now)

    async def note_numbers(self) -> None:
        """Do nothing: on SQLite a number that was not committed was not given."""

    async def align_numbers(self, *, done: bool) -> None:
        """Do nothing, likewise."""

    async def problems(self) -> list[str]:
        connection = apsw.Connection(str(self._now), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
            return found + [f"foreign key: {row}" for row in connection.execute("PRAGMA foreign_key_check")]
        finally:
            connection.close()


_TABLES = """
SELECT name FROM sqlite_schema
WHERE type = 'table' AND name GLOB 'lash_*' AND name <> 'lash_migrations'
ORDER BY name
"""


def _rows(connection: apsw.Connection, table: str) -> list[str]:
    cursor = connection.execute(f'SELECT * FROM "{table}"')
    rows = cursor.fetchall()
    if not rows:
        return []
    names = [str(name) for name, *_ in connection.execute(f'SELECT name FROM pragma_table_info("{table}")')]
    return [f"{table} {msgspec.json.encode(dict(zip(names, row, strict=True))).decode()}" for row in rows]


class PostgresBench:
    """A migrated schema, with functions beside it that keep all its rows and put them back."""

    backend = "postgres"

    def __init__(self, url: str) -> None:
        # One connection: whoever does not give it back stops all that come after.
        self.url = with_parameters(url, max_size="1")
        self._harness = PostgresHarness(self.url)
        self._connection: asyncpg.Connection[asyncpg.Record]

    @property
    def clock(self) -> ManualClock:
        return self._harness.clock

    @classmethod
    @asynccontextmanager
    async def made(cls, url: str) -> AsyncIterator[PostgresBench]:
        """Put the functions into the database, and take them away again."""
        bench = cls(url)
        parts = urlsplit(url)
        schema = dict(parse_qsl(parts.query))["schema"]
        bench._connection = await asyncpg.connect(parts._replace(query="").geturl())
        try:
            await bench._connection.execute(_KIT.replace("STORAGE", schema))
            yield bench
        finally:
            await bench._harness.close()
            await bench._connection.execute("DROP SCHEMA sweep_kit CASCADE")
            await bench._connection.close()

    @asynccontextmanager
    async def opened(self, seam: Seam) -> AsyncIterator[Storage]:
        with installed(seam):
            storage = await self._harness.open()
        try:
            yield storage
        finally:
            await self._harness.close()

    async def lines(self) -> Lines:
        return tuple(await self._connection.fetchval("SELECT sweep_kit.lines()"))

    async def keep(self) -> None:
        await self._connection.execute("SELECT sweep_kit.keep()")

    async def restore(self) -> None:
        await self._connection.execute("SELECT sweep_kit.restore()")

    async def note_numbers(self) -> None:
        await self._connection.execute("SELECT sweep_kit.note_numbers(true)")

    async def align_numbers(self, *, done: bool) -> None:
        await self._connection.execute("SELECT sweep_kit.align_numbers($1)", done)

    async def problems(self) -> list[str]:
        """Return transactions that somebody left open: there is nobody else on this database."""
        query = """
            SELECT format('process %s is %s after %s', pid, state, query) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
        """
        return [str(row[0]) for row in await self._connection.fetch(query)]


_KIT = """
CREATE SCHEMA sweep_kit;
CREATE VIEW sweep_kit.tables AS SELECT tablename AS name FROM pg_tables
WHERE schemaname = 'STORAGE' AND tablename NOT IN ('lash_migrations', 'lash_test_clock') ORDER BY tablename;
CREATE TABLE sweep_kit.numbers (done boolean, name text, value bigint, PRIMARY KEY (done, name));
CREATE FUNCTION sweep_kit.lines() RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    item text;
    found text[];
    lines text[] := '{}';
BEGIN
    FOR item IN SELECT name FROM sweep_kit.tables LOOP
        -- Whatever the transaction, its id is another one.
        EXECUTE format(
            'SELECT array_agg(%L || (to_jsonb(t) - ''xid'')::text) FROM "STORAGE".%I AS t', item || ' ', item
        ) INTO found;
        lines := lines || coalesce(found, '{}');
    END LOOP;
    RETURN lines;
END $$;
CREATE FUNCTION sweep_kit.keep() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    item text;
BEGIN
    FOR item IN SELECT name FROM sweep_kit.tables LOOP
        EXECUTE format('DROP TABLE IF EXISTS sweep_kit.%I', 'kept_' || item);
        EXECUTE format('CREATE UNLOGGED TABLE sweep_kit.%I AS TABLE "STORAGE".%I', 'kept_' || item, item);
    END LOOP;
    PERFORM sweep_kit.note_numbers(false);
END $$;
CREATE FUNCTION sweep_kit.restore() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    item text;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR item IN SELECT name FROM sweep_kit.tables LOOP
        EXECUTE format('DELETE FROM "STORAGE".%I', item);
        EXECUTE format(
            'INSERT INTO "STORAGE".%I OVERRIDING SYSTEM VALUE SELECT * FROM sweep_kit.%I', item, 'kept_' || item
        );
    END LOOP;
    PERFORM sweep_kit.align_numbers(false);
END $$;
CREATE FUNCTION sweep_kit.note_numbers(done boolean) RETURNS void LANGUAGE sql AS $$
    DELETE FROM sweep_kit.numbers AS n WHERE n.done = note_numbers.done;
    INSERT INTO sweep_kit.numbers SELECT done, sequencename, last_value FROM pg_sequences WHERE schemaname = 'STORAGE';
$$;
CREATE FUNCTION sweep_kit.align_numbers(done boolean) RETURNS void LANGUAGE sql AS $$
    SELECT setval(format('"STORAGE".%I', name)::regclass, coalesce(value, 1), value IS NOT NULL)
    FROM sweep_kit.numbers AS n WHERE n.done = align_numbers.done;
$$;
"""
