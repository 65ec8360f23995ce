"""Each call sends one round trip, and nothing more."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import InvalidInput
from tests.engine.postgres.kit import Item, Text, opened, raw_connection, with_items
from tests.engine.postgres.proxy import proxy_before


async def test_a_warm_read_or_write_is_one_round_trip(postgres_storage_url: str) -> None:
    """On the wire, a statement that is prepared costs one exchange, and giving the connection back costs none."""
    async with proxy_before(postgres_storage_url) as (proxy, url), opened(url) as database:
        await with_items(database, 1)

        async def call_all() -> tuple[int, int, int]:
            start = proxy.round_trips
            await database.read_one(Item, "get", 1)
            after_one = proxy.round_trips
            await database.read_all(Item, "list")
            after_all = proxy.round_trips
            await database.write_one(Item, "add", 1, repeatable=False)
            return after_one - start, after_all - after_one, proxy.round_trips - after_all

        await call_all()
        assert await call_all() == (1, 1, 1)


async def test_the_hook_hears_every_statement_before_it_is_sent(postgres_storage_url: str) -> None:
    """Tests can count statements, those around a transaction included."""
    heard: list[str] = []
    async with opened(postgres_storage_url, on_statement=heard.append) as database:
        assert heard == []
        await with_items(database, 1)
        await database.read_one(Item, "get", 1)
        await database.write_one(Item, "add", 1, repeatable=True)
    assert heard == ["begin", "create", "insert", "commit", "get", "add"]


async def test_a_write_under_locks_is_one_round_trip(postgres_storage_url: str) -> None:
    """Both runs are in one transaction, the second after the first, and they are sent in one exchange."""
    async with proxy_before(postgres_storage_url) as (proxy, url), opened(url) as database:
        await database.write_under_locks(Item, "run", repeatable=False)
        start = proxy.round_trips
        first, second = await database.write_under_locks(Item, "run", repeatable=False)
        assert proxy.round_trips - start == 1
        assert (first.id, first.n, second.n) == (second.id, 0, 1)


async def test_a_write_under_locks_that_fails_writes_nothing(postgres_storage_url: str) -> None:
    """An error in the second run rolls the first one back, and the connection can be used again."""
    async with opened(postgres_storage_url, max_size=1) as database:
        await with_items(database, 1)
        with pytest.raises(InvalidInput):
            await database.write_under_locks(Item, "add_unless_second", 1, repeatable=False)
        assert await database.read_one(Item, "get", 1) == Item(1, 0)


async def test_concurrent_calls_use_several_connections(postgres_storage_url: str) -> None:
    """Calls do not queue behind each other while the pool has room, and no more than ``max_size`` are opened."""
    async with opened(postgres_storage_url, max_size=3) as database:

        async def backend() -> int:
            await database.read_one(Item, "sleep", 0.02)
            found = await database.read_one(Item, "backend")
            assert found is not None
            return found.id

        seen = set(await asyncio.gather(*(backend() for _ in range(12))))
        assert 2 <= len(seen) <= 3


async def test_the_timeouts_and_the_name_are_set_on_the_server(postgres_storage_url: str) -> None:
    """The server enforces the timeouts and shows the application name."""
    async with opened(
        postgres_storage_url, lock_timeout_ms=1234, statement_timeout_ms=5678, application_name="worker"
    ) as database:
        found = [
            await database.read_one(Text, "setting", name)
            for name in ("lock_timeout", "statement_timeout", "application_name")
        ]
    assert found == [Text(0, "1234ms"), Text(0, "5678ms"), Text(0, "worker")]


async def test_behind_a_pooler_nothing_is_kept_on_the_session(postgres_storage_url: str) -> None:
    """With ``pooler`` no timeout is sent at startup and no statement stays prepared."""
    async with opened(postgres_storage_url, pooler=True, max_size=1, lock_timeout_ms=1234) as database:
        pid = await database.read_one(Item, "backend")
        setting = await database.read_one(Text, "setting", "lock_timeout")
        assert pid is not None
        prepared = await database.read_all(Text, "prepared")
    async with raw_connection(postgres_storage_url) as connection:
        default = await connection.fetchval("SHOW lock_timeout")
    assert setting == Text(0, default)
    assert prepared == []


async def test_behind_a_pooler_a_statement_is_two_round_trips(postgres_storage_url: str) -> None:
    """The cost of the option: the statement is described again each time, and sent whole with its arguments."""
    async with proxy_before(postgres_storage_url) as (proxy, url), opened(url, pooler=True) as database:
        await database.read_one(Item, "one")
        start = proxy.round_trips
        await database.read_one(Item, "one")
        assert proxy.round_trips - start == 2


async def test_without_a_pooler_statements_stay_prepared(postgres_storage_url: str) -> None:
    """The other half of the test above: the list of prepared statements can be non-empty."""
    async with opened(postgres_storage_url, max_size=1) as database:
        await database.read_one(Item, "backend")
        assert await database.read_all(Text, "prepared") != []
