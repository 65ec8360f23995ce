"""What the tests of the engine share: a small table of their own, its queries, and a database over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg
import msgspec

from lash.postgres.engine.database import Database, StatementHook
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import in_schema, load_queries

_QUERIES = {
    "create": 'CREATE TABLE :"schema".items (id bigint PRIMARY KEY, n bigint NOT NULL DEFAULT 0, note text)',
    "insert": 'INSERT INTO :"schema".items (id, n) VALUES ($1, $2) RETURNING id, n',
    "add": 'UPDATE :"schema".items SET n = n + 1 WHERE id = $1 RETURNING id, n',
    "add_unless_second": (
        'UPDATE :"schema".items SET n = n + 1 / (1 - $2::boolean::int) WHERE id = $1::bigint RETURNING id, n'
    ),
    "run": "SELECT pg_current_xact_id()::text::bigint, $1::boolean::int::bigint",
    "get": 'SELECT id, n FROM :"schema".items WHERE id = $1',
    "list": 'SELECT id, n FROM :"schema".items ORDER BY id',
    "one": "SELECT 1::bigint, 2::bigint",
    "text_for_number": "SELECT 'no number'::text, 2::bigint",
    "sleep": "SELECT 1::bigint, 2::bigint FROM pg_sleep($1)",
    "lock": "SELECT 1::bigint, 2::bigint FROM pg_advisory_xact_lock($1)",
    "backend": "SELECT pg_backend_pid()::bigint, 0::bigint",
    "setting": "SELECT 0::bigint, current_setting($1)",
    "echo": "SELECT 0::bigint, $1::text",
    "number": "SELECT $1::bigint, 0::bigint",
    "overflow": "SELECT (2147483647::int4 + $1::int4)::bigint, 0::bigint",
    "no_table": 'SELECT 1, 2 FROM :"schema".absent',
    "no_column": 'SELECT absent, 2 FROM :"schema".items',
    "no_function": "SELECT absent_function(), 2",
    "no_schema": "CREATE TABLE absent_schema.items (id bigint)",
    "syntax": "SELEKT",
    "prepared": "SELECT 0::bigint, name FROM pg_prepared_statements WHERE name <> ''",
    "planned_anew": "SELECT sum(custom_plans)::bigint, sum(generic_plans)::bigint FROM pg_prepared_statements",
    "lock_two": 'SELECT :"schema".lock_two($1, $2), 0::bigint',
    "raise": 'SELECT :"schema".fail($1)::bigint, 0::bigint',
}

CREATE_FAIL = """
CREATE FUNCTION :"schema".fail(code text) RETURNS bigint LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'made for the test' USING ERRCODE = code; END $$
"""


RUNNING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
"""Counts the connections of a name."""


class Item(msgspec.Struct, array_like=True, frozen=True):
    id: int
    n: int


class Text(msgspec.Struct, array_like=True, frozen=True):
    id: int
    text: str


def queries_for(options: PostgresOptions) -> Mapping[str, str]:
    known = load_queries("lash.postgres.sql", schema=options.schema)
    engine = {name: known[name] for name in ("connection_use", "lock_holders")}
    return engine | {name: in_schema(text, options.schema) for name, text in _QUERIES.items()}


@asynccontextmanager
async def opened(
    url: str,
    *,
    pool: asyncpg.Pool[asyncpg.Record] | None = None,
    on_statement: StatementHook | None = None,
    **overrides: object,
) -> AsyncIterator[Database]:
    options = PostgresOptions.from_url(url, **overrides)
    database = await Database.open(options, queries=queries_for(options), pool=pool, on_statement=on_statement)
    try:
        yield database
    finally:
        await database.close()


async def with_items(database: Database, *ids: int) -> None:
    async with database.transaction() as transaction:
        await transaction.run("create")
        for item in ids:
            await transaction.run("insert", item, 0)


@asynccontextmanager
async def raw_connection(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection of the test's own, beside the engine."""
    connection = await asyncpg.connect(PostgresOptions.from_url(url).dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def until_count(watcher: asyncpg.Connection[asyncpg.Record], query: str, name: str, wanted: int) -> None:
    """Wait until the server counts so many; pytest's timeout bounds it."""
    while True:
        if await watcher.fetchval(query, name) == wanted:
            return
        await asyncio.sleep(0.005)
