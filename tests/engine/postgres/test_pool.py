"""A returned connection is kept for the next caller, without starving other callers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.pool import Connections
from tests.engine.postgres.kit import RUNNING, Item, opened, raw_connection, until_count, with_items

if TYPE_CHECKING:
    from lash.postgres.engine.pool import PooledConnection

_WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = $1 AND NOT granted"


async def test_the_pool_is_not_asked_for_every_statement(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred consecutive statements take one connection from the driver's pool."""
    taken = 0
    acquire = asyncpg.Pool.acquire

    def count(pool: asyncpg.Pool[asyncpg.Record], **options: float | None) -> object:
        nonlocal taken
        taken += 1
        return acquire(pool, **options)

    async with opened(postgres_schema_url) as database:
        await with_items(database, 1)
        monkeypatch.setattr(asyncpg.Pool, "acquire", count)
        for number in range(1, 101):
            assert await database.write_one(Item, "add", 1, repeatable=False) == Item(1, number)
    assert taken <= 1


async def test_callers_that_wait_do_not_use_the_drivers_pool(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred statements of thirty callers take two connections from the driver's pool, and return them once."""
    taken = returned = 0
    acquire, release = asyncpg.Pool.acquire, Connections.release

    def count(pool: asyncpg.Pool[asyncpg.Record], **options: float | None) -> object:
        nonlocal taken
        taken += 1
        return acquire(pool, **options)

    async def count_return(connections: Connections, connection: PooledConnection) -> None:
        nonlocal returned
        returned += 1
        await release(connections, connection)

    # Kept connections go back once a second, which must not happen while this counts.
    monkeypatch.setattr("lash.postgres.engine.pool._KEEP_S", 600)
    async with opened(postgres_schema_url, max_size=2) as database:
        await with_items(database, 1)

        async def several() -> None:
            for _ in range(10):
                await database.write_one(Item, "add", 1, repeatable=False)

        monkeypatch.setattr(asyncpg.Pool, "acquire", count)
        monkeypatch.setattr(Connections, "release", count_return)
        await asyncio.gather(*(several() for _ in range(30)))
        assert await database.write_one(Item, "add", 1, repeatable=False) == Item(1, 301)
        assert taken <= 2
        assert returned == 0


async def test_a_kept_connection_that_died_is_not_lent(postgres_schema_url: str) -> None:
    """A statement that must not be retried is not lost on a connection that the server closed before.

    The driver sees the close in two event loop iterations: first the reason, then the end of the connection.
    """
    async with opened(postgres_schema_url, max_size=1, application_name="dying") as database:
        await with_items(database, 1)
        async with raw_connection(postgres_schema_url) as watcher:
            for number in range(1, 41):
                assert await database.write_one(Item, "add", 1, repeatable=False) == Item(1, number)
                end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dying'"
                await watcher.execute(end)
                await until_count(watcher, RUNNING, "dying", 0)
                # The notice is in flight, and arrives before the next reply from the same server.
                await watcher.fetchval("SELECT 1")
                for _ in range(number % 4):
                    await asyncio.sleep(0)


async def test_a_call_cancelled_while_it_looks_for_room_returns_its_connection(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its result and asks for others whether the server has room; its connection is free again."""
    looking = asyncio.Event()

    async def look_for_long(_connections: Connections, _connection: object) -> bool:
        looking.set()
        await asyncio.sleep(3_600)
        return True

    async with opened(postgres_schema_url) as database, raw_connection(postgres_schema_url) as watcher:
        room = database._connections._room
        assert room is not None
        monkeypatch.setattr(Connections, "_has_room", look_for_long)
        await watcher.execute("SELECT pg_advisory_lock(815)")
        first = asyncio.create_task(database.read_one(Item, "lock", 815))
        await until_count(watcher, _WAITING, "advisory", 1)
        second = asyncio.create_task(database.read_one(Item, "one"))
        while not room.is_wanted:  # noqa: ASYNC110 (nothing signals it)
            await asyncio.sleep(0)
        await watcher.execute("SELECT pg_advisory_unlock(815)")
        await looking.wait()
        first.cancel()
        assert await second == Item(1, 2)
        while database._connections._returning:  # noqa: ASYNC110 (the same)
            await asyncio.sleep(0.001)
        # The connection of the second call is kept.
        assert room.used == 1


async def test_who_waits_is_served_before_a_connection_is_kept(postgres_schema_url: str) -> None:
    """Callers beyond the pool size get connections in order, also while others return theirs."""
    async with opened(postgres_schema_url, max_size=2, acquire_timeout_s=60) as database:

        async def several() -> int:
            return len([await database.read_one(Item, "sleep", 0.001) for _ in range(5)])

        assert await asyncio.gather(*(several() for _ in range(20))) == [5] * 20


async def test_what_is_kept_goes_back_and_ends_when_idle(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver closes connections that were idle for long, including the kept one."""
    monkeypatch.setattr("lash.postgres.engine.pool._KEEP_S", 0.01)
    name = "resting"
    async with opened(postgres_schema_url, idle_lifetime_s=0.05, application_name=name) as database:
        await asyncio.gather(*(database.read_one(Item, "sleep", 0.01) for _ in range(4)))
        async with raw_connection(postgres_schema_url) as watcher:
            await until_count(watcher, RUNNING, name, 0)
        assert await database.read_one(Item, "one") == Item(1, 2)


async def test_a_connection_in_use_stays_out_of_the_drivers_pool(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept connection goes back only if no call has taken it between two looks."""
    monkeypatch.setattr("lash.postgres.engine.pool._KEEP_S", 3_600)
    async with opened(postgres_schema_url) as database:
        connections = database._connections
        for _ in range(3):
            assert await database.read_one(Item, "one") == Item(1, 2)
            connections._release_unused()
            assert len(connections._kept) == 1
        connections._release_unused()
        assert not connections._kept
        assert await database.read_one(Item, "one") == Item(1, 2)


async def test_nothing_of_a_callers_pool_is_kept(postgres_schema_url: str) -> None:
    """A pool of the caller gets its connection back as soon as the statement ends."""
    dsn = PostgresOptions.from_url(postgres_schema_url).dsn
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, opened(postgres_schema_url, pool=pool) as ours:
        assert await ours.read_one(Item, "one") == Item(1, 2)
        assert pool.get_idle_size() == 1
