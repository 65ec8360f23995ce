"""Connections are terminated again and again while they are used."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

import lash
from lash.errors import StoreUnavailable
from tests.backends import with_parameters
from tests.proof.faults.chats import Troubles, expected, make_app, said, talk
from tests.proof.faults.disk import EFFORT
from tests.proof.faults.work import OPERATIONS
from tests.raw import raw

pytestmark = pytest.mark.timeout(240 * EFFORT)

ROUNDS = 4 * EFFORT
KILL = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = $1 AND pid <> pg_backend_pid() AND random() < 0.5
"""
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1"


@contextlib.asynccontextmanager
async def killing(url: str, victims: str, *, every_s: float) -> AsyncIterator[list[int]]:
    """Terminate about half of all connections of this name from time to time; gives the numbers."""
    killed: list[int] = []
    connection = await asyncpg.connect(urlsplit(url)._replace(query="").geturl())
    chance = random.Random(8)

    async def kill() -> None:
        while True:
            killed.append(await connection.fetchval(KILL, victims))
            await asyncio.sleep(chance.uniform(0, 2 * every_s))

    task = asyncio.create_task(kill())
    try:
        yield killed
    finally:
        task.cancel()
        await asyncio.wait({task})
        await connection.close()


async def work(storage: lash.Storage) -> int:
    """Run every operation several times, each until it is acknowledged; return the number of retries."""
    repeated = 0
    for number in range(ROUNDS):
        for operation in OPERATIONS.values():
            while True:
                try:
                    await operation(storage, number)
                    break
                except StoreUnavailable:
                    repeated += 1
    return repeated


async def counts(url: str) -> dict[str, int]:
    """Return how many rows each table has."""
    names = [name for (name,) in await raw(url, TABLES)]
    return {name: (await raw(url, f'SELECT count(*) FROM "{name}"'))[0][0] for name in names}


async def test_operations_on_connections_that_die(postgres_storage_url: str, postgres_schema_url: str) -> None:
    """Every operation succeeds in the end, and leaves exactly the rows that it leaves without faults."""
    async with await lash.open(postgres_schema_url) as calm:
        assert await work(calm) == 0
    url = with_parameters(postgres_storage_url, application_name="victim", max_size="3")
    async with await lash.open(url) as storage, killing(postgres_storage_url, "victim", every_s=0.05) as killed:
        await work(storage)
        while sum(killed) < 5 * EFFORT:
            await work(storage)
    assert await counts(postgres_storage_url) == await counts(postgres_schema_url)
    async with await lash.open(postgres_storage_url) as storage:
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean


async def test_a_worker_on_connections_that_die(postgres_storage_url: str) -> None:
    """Messages are still handled once and in order, and none becomes a dead letter."""
    count = 10 * EFFORT
    url = with_parameters(postgres_storage_url, application_name="victim")
    async with make_app(url, Troubles()) as app:
        async with killing(postgres_storage_url, "victim", every_s=0.2) as killed, asyncio.TaskGroup() as group:
            for name in ("a", "b"):
                group.create_task(talk(app, name, count, []))
            for name in ("a", "b"):
                assert await said(app, name, count) == expected(name, count)
        assert sum(killed) > 0
        assert await app.storage.queue.dead() == ()
