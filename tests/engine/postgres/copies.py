"""Copies of a storage on another server, the transaction counters of servers, and a role with few rights."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import asyncpg

import lash
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.backends import run_sql
from tests.raw import raw

_ADVANCE = "DO $$ BEGIN FOR i IN 1..{count} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
_TABLES = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'lash_%'"
_ROLE = "lash_plain_role"
_MARGIN = 2_000
"""More transactions than a test makes."""


async def next_transaction(url: str) -> int:
    """Return the next transaction id of the server."""
    connection = await asyncpg.connect(urlsplit(url)._replace(query="").geturl())
    try:
        return int(await connection.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text"))
    finally:
        await connection.close()


async def advance_beyond(server: PostgresServer, other: PostgresServer) -> None:
    """Use up transaction ids of a server until its counter is far above that of the other."""
    count = await next_transaction(other.url) + _MARGIN - await next_transaction(server.url)
    if count > 0:
        await asyncio.to_thread(run_sql, server.url, _ADVANCE.format(count=count))


def dump(url: str, file: Path) -> None:
    """Run ``pg_dump`` as the page about backups shows it."""
    _run(["pg_dump", "--format=custom", f"--schema={_schema(url)}", f"--file={file}", _plain(url)])


def restore(url: str, file: Path, *options: str) -> None:
    """Run ``pg_restore``."""
    _run(["pg_restore", *options, f"--dbname={_plain(url)}", str(file)])


async def copy_rows(source: str, target: str) -> None:
    """Copy the rows of each table as they are, as logical replication does, into tables that exist already."""
    await (await lash.open(target)).close()
    tables = [name for (name,) in await raw(source, _TABLES)]
    here, there = [
        await asyncpg.connect(_plain(url), server_settings={"search_path": _schema(url)}) for url in (source, target)
    ]
    try:
        # The subscriber of a replication checks no foreign keys.
        await there.execute("SET session_replication_role = replica")
        for table in tables:
            await there.execute(f"DELETE FROM {table}")
            columns = [
                str(row["attname"])
                for row in await here.fetch(
                    "SELECT attname FROM pg_attribute "
                    "WHERE attrelid = $1::regclass AND attnum > 0 AND attgenerated = ''",
                    table,
                )
            ]
            for row in await here.fetch(f"SELECT {', '.join(columns)} FROM {table}"):
                await _insert(there, table, columns, tuple(row))
        await there.execute(
            "SELECT setval(pg_get_serial_sequence(format('%I.%I', table_schema, table_name), column_name)::regclass, "
            "1000000) FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'"
        )
    finally:
        await here.close()
        await there.close()


@asynccontextmanager
async def plain_role(url: str, rights: str = "SELECT, INSERT, UPDATE, DELETE") -> AsyncIterator[str]:
    """Give the URL of a role with these rights on the tables of a storage, and no others."""
    await asyncio.to_thread(
        run_sql,
        _plain(url),
        f"CREATE ROLE {_ROLE} LOGIN PASSWORD 'plain'",
        f'GRANT USAGE ON SCHEMA "{_schema(url)}" TO {_ROLE}',
        f'GRANT {rights} ON ALL TABLES IN SCHEMA "{_schema(url)}" TO {_ROLE}',
    )
    try:
        parts = urlsplit(url)
        yield parts._replace(netloc=f"{_ROLE}:plain@{parts.netloc.rpartition('@')[2]}").geturl()
    finally:
        await asyncio.to_thread(run_sql, _plain(url), f"DROP OWNED BY {_ROLE}", f"DROP ROLE {_ROLE}")


async def _insert(
    there: asyncpg.Connection[asyncpg.Record], table: str, columns: Sequence[str], row: tuple[object, ...]
) -> None:
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    await there.execute(f"INSERT INTO {table} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE VALUES ({places})", *row)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        [str(find_binaries() / command[0]), *command[1:]], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def _plain(url: str) -> str:
    return urlsplit(url)._replace(query="").geturl()


def _schema(url: str) -> str:
    return dict(parse_qsl(urlsplit(url).query))["schema"]
