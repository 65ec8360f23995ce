"""The bench on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from lash.stores.storage import Storage
from lash.testing.clock import START_MS, ManualClock
from tests.backends import with_parameters
from tests.contract.harnesses import PostgresHarness
from tests.proof.sweep.bench import Lines
from tests.proof.sweep.seam import Seam, installed


class PostgresBench:
    """A migrated schema, with functions that save all its rows and restore them."""

    backend = "postgres"

    def __init__(self, url: str) -> None:
        # One connection: a caller that does not return it blocks all later ones.
        self.url = with_parameters(url, max_size="1", acquire_timeout_s="5")
        self._harness = PostgresHarness(self.url)
        self._connection: asyncpg.Connection[asyncpg.Record]

    @property
    def clock(self) -> ManualClock:
        return self._harness.clock

    @classmethod
    @asynccontextmanager
    async def made(cls, url: str) -> AsyncIterator[PostgresBench]:
        """Create the functions in the database unless they exist; they stay, as the database does."""
        bench = cls(url)
        parts = urlsplit(url)
        schema = dict(parse_qsl(parts.query))["schema"]
        bench._connection = await asyncpg.connect(parts._replace(query="").geturl())
        try:
            if not await bench._connection.fetchval("SELECT to_regnamespace('sweep_kit') IS NOT NULL"):
                await bench._connection.execute(_kit(schema, await _tables(bench._connection, schema)))
            yield bench
        finally:
            await bench._harness.close()
            await bench._connection.close()

    @asynccontextmanager
    async def opened(self, seam: Seam) -> AsyncIterator[Storage]:
        with installed(seam):
            try:
                yield await self._harness.open()
            finally:
                await self._harness.close()

    async def lines(self) -> Lines:
        return tuple(str(row[0]) for row in await self._connection.fetch("SELECT line FROM sweep_kit.lines"))

    async def clear(self) -> None:
        """Empty the storage and reset its clock, for another case."""
        await self._connection.execute("SELECT sweep_kit.clear()")
        await self.clock.advance(START_MS - self.clock.now_ms())

    async def keep(self) -> None:
        await self._connection.execute("SELECT sweep_kit.keep()")

    async def restore(self) -> None:
        await self._connection.execute("SELECT sweep_kit.restore()")

    async def note_numbers(self) -> None:
        await self._connection.execute("SELECT sweep_kit.note_numbers(true)")

    async def align_numbers(self, *, done: bool) -> None:
        await self._connection.execute("SELECT sweep_kit.align_numbers($1)", done)

    async def problems(self) -> list[str]:
        """Return transactions that were left open: this database has no other clients."""
        query = """
            SELECT format('process %s is %s after %s', pid, state, query) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
        """
        return [str(row[0]) for row in await self._connection.fetch(query)]


async def _tables(connection: asyncpg.Connection[asyncpg.Record], schema: str) -> dict[str, str]:
    """Return the tables, each with the columns that the server does not compute."""
    query = """
        SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
        WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p')
            AND c.relname NOT IN ('lash_migrations', 'lash_test_clock')
        GROUP BY c.relname ORDER BY c.relname
    """
    return {str(name): str(columns) for name, columns in await connection.fetch(query, schema)}


def _kit(schema: str, tables: Mapping[str, str]) -> str:
    """Return the functions with every table written out, so that the server plans each statement once."""

    def each(form: str, joined: str = "\n    ") -> str:
        return joined.join(
            form.format(schema=schema, table=table, columns=columns) for table, columns in tables.items()
        )

    restore = (
        'INSERT INTO "{schema}".{table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM sweep_kit.{table};'
    )

    # Transaction ids always differ, so they are left out of a line.
    line = """
        SELECT '{table} ' || (
            to_jsonb(t) - '{{xid,registered_xid,start_xid,end_xid,changed_xid,change_page}}'::text[]
        )::text AS line
        FROM "{schema}".{table} AS t
    """
    return f"""
CREATE SCHEMA sweep_kit;
CREATE VIEW sweep_kit.lines AS {each(line, " UNION ALL ")};
{each('CREATE UNLOGGED TABLE sweep_kit.{table} (LIKE "{schema}".{table});')}
CREATE TABLE sweep_kit.numbers (done boolean, name text, value bigint, PRIMARY KEY (done, name));
CREATE FUNCTION sweep_kit.keep() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    {each('DELETE FROM sweep_kit.{table}; INSERT INTO sweep_kit.{table} TABLE "{schema}".{table};')}
    PERFORM sweep_kit.note_numbers(false);
END $$;
CREATE FUNCTION sweep_kit.restore() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL session_replication_role = replica;
    {each('DELETE FROM "{schema}".{table};')}
    {each(restore)}
    PERFORM sweep_kit.align_numbers(false);
END $$;
CREATE FUNCTION sweep_kit.clear() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL session_replication_role = replica;
    {each('DELETE FROM "{schema}".{table};')}
    PERFORM setval(format('"{schema}".%I', sequencename)::regclass, 1, false)
    FROM pg_sequences WHERE schemaname = '{schema}';
END $$;
CREATE FUNCTION sweep_kit.note_numbers(done boolean) RETURNS void LANGUAGE sql AS $$
    DELETE FROM sweep_kit.numbers AS n WHERE n.done = note_numbers.done;
    INSERT INTO sweep_kit.numbers SELECT done, sequencename, last_value FROM pg_sequences WHERE schemaname = '{schema}';
$$;
CREATE FUNCTION sweep_kit.align_numbers(done boolean) RETURNS void LANGUAGE sql AS $$
    SELECT setval(format('"{schema}".%I', name)::regclass, coalesce(value, 1), value IS NOT NULL)
    FROM sweep_kit.numbers AS n WHERE n.done = align_numbers.done;
$$;
"""
