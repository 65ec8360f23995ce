"""Activity on PostgreSQL: which writes block each other, and what survives a crash of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import pytest

import lash
from lash.model.activity import ActivityDraft
from lash.model.gap import GapReason
from lash.testing.postgres_server import PostgresServer, ServerNotFound, find_binaries
from tests.backends import fresh_schema
from tests.factories.session import commit, created, node, started
from tests.raw import raw

LIMIT_S = 10
ITEM = ActivityDraft(turn_id="t", payload="x")


@asynccontextmanager
async def holding(url: str, statement: str) -> AsyncIterator[None]:
    """Hold the statement's locks in a transaction of another connection."""
    parts = urlsplit(url)
    schema = dict(parse_qsl(parts.query))["schema"]
    connection = await asyncpg.connect(parts._replace(query="").geturl(), server_settings={"search_path": schema})
    try:
        async with connection.transaction():
            await connection.execute(statement)
            yield
    finally:
        await connection.close()


async def test_an_append_does_not_wait_for_a_commit(postgres_storage_url: str) -> None:
    """A commit that locks its head blocks neither the first activity of the session nor a later one."""
    async with await lash.open(postgres_storage_url) as storage:
        await created(storage)
        async with holding(postgres_storage_url, "UPDATE lash_sessions SET revision = revision + 1"):
            async with asyncio.timeout(LIMIT_S):
                assert await storage.activity.append("s", [ITEM]) == 1
                assert await storage.activity.append("s", [ITEM]) == 2


async def test_a_commit_does_not_wait_for_an_append(postgres_storage_url: str) -> None:
    """Appends to one session wait for each other, and block nothing else."""
    async with await lash.open(postgres_storage_url) as storage:
        session = await started(storage)
        await storage.activity.append("s", [ITEM])
        async with holding(postgres_storage_url, "UPDATE lash_activity_tails SET position = position"):
            async with asyncio.timeout(LIMIT_S):
                await session.commit(commit(1, node("b", "a")))
                assert (await storage.activity.read("s")).newest.revision == 2


async def test_positions_become_visible_in_order(postgres_storage_url: str) -> None:
    """While an append is not committed, none behind it can be seen."""
    async with await lash.open(postgres_storage_url) as storage:
        await created(storage)
        await storage.activity.append("s", [ITEM])
        earlier = "UPDATE lash_activity_tails SET position = position + 1"
        async with holding(postgres_storage_url, earlier):
            later = asyncio.ensure_future(storage.activity.append("s", [ITEM]))
            await asyncio.sleep(0.1)
            assert not later.done()
            assert (await storage.activity.read("s")).newest.position == 1
        assert await later == 3


async def test_activity_costs_no_disk_write(postgres_storage_url: str) -> None:
    """Its tables are unlogged, so that an append does not wait for the disk."""
    async with await lash.open(postgres_storage_url) as storage:
        await created(storage)
    kinds = (
        "SELECT relname::text, relpersistence::text FROM pg_class WHERE relname LIKE 'lash_activity%' AND relkind='r'"
    )
    where = " AND relnamespace = current_schema()::regnamespace ORDER BY 1"
    assert await raw(postgres_storage_url, kinds + where) == [("lash_activity", "u"), ("lash_activity_tails", "u")]


async def test_a_crash_of_the_server_is_a_gap_not_a_mix_up() -> None:
    """After a crash the activity is gone and positions restart; an old cursor no longer matches, commits do."""
    try:
        server = PostgresServer(durable=True, binaries=find_binaries())
    except ServerNotFound as missing:
        pytest.skip(str(missing))
    with server:
        server.start()
        with fresh_schema(server.url) as url:
            async with await lash.open(url) as storage:
                await started(storage)
                await storage.activity.append("s", [ITEM, ITEM])
                seen = (await storage.activity.read("s")).newest
            await asyncio.to_thread(server.restart, immediate=True)
            async with await lash.open(url) as storage:
                assert (await storage.activity.read("s", seen)).gap is GapReason.UNAVAILABLE
                assert await storage.activity.append("s", [ITEM, ITEM, ITEM]) == 3
                look = await storage.activity.read("s", seen)
                assert (look.gap, look.newest.revision) == (GapReason.UNAVAILABLE, 1)
