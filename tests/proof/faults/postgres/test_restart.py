"""A server that stops during work and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

import lash
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.proof.faults.chats import Troubles, expected, make_app, said, talk
from tests.proof.faults.disk import EFFORT
from tests.raw import raw
from tests.runtime.worker_kit import until

pytestmark = pytest.mark.timeout(240 * EFFORT)

SESSIONS = ("a", "b", "c")
ENDED = "SELECT count(*) FROM lash_processes WHERE status = 'completed'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A durable server."""
    with PostgresServer(durable=True, binaries=find_binaries()) as server:
        yield server


async def test_a_worker_outlives_its_server(server: PostgresServer) -> None:
    """Killed and restarted under load, the server loses nothing: each message is handled once and in order."""
    url = f"{server.url}?schema=public"
    restarts, count = 2 * EFFORT, 25 * EFFORT
    troubles = Troubles()
    progress: list[str] = []
    async with make_app(url, troubles) as app, asyncio.TaskGroup() as group:
        for name in SESSIONS:
            group.create_task(talk(app, name, count, progress))
        for restart in range(restarts):
            enough = (restart + 1) * len(SESSIONS) * count // (restarts + 1)
            await until(partial(has, progress, enough))
            await asyncio.to_thread(server.stop, immediate=True)
            await asyncio.sleep(0.1)
            await asyncio.to_thread(server.start)
        for name in SESSIONS:
            assert await said(app, name, count) == expected(name, count)
        await processes_end(url, len(SESSIONS) * count)
        assert await app.storage.queue.dead() == ()
    assert troubles.heard["worker.failed"] == 0


def has(progress: list[str], enough: int) -> bool:
    return len(progress) >= enough


async def processes_end(url: str, count: int) -> None:
    """Wait until all processes have ended well."""

    async def ended() -> bool:
        return await raw(url, ENDED) == [(count,)]

    await until(ended)


async def test_a_server_that_is_away_is_unavailable(server: PostgresServer) -> None:
    """While the server is down each call raises a lash error, reads and writes alike; afterwards all work again."""
    async with await lash.open(f"{server.url}?schema=public") as storage:
        await storage.sessions.create("s")
        await asyncio.to_thread(server.stop, immediate=True)
        try:
            with pytest.raises(lash.StoreUnavailable):
                await storage.sessions.create("t")
            with pytest.raises(lash.StoreUnavailable):
                await storage.session("s").head()
            with pytest.raises(lash.StoreUnavailable):
                await storage.sessions.delete("s")
        finally:
            await asyncio.to_thread(server.start)
        assert await storage.sessions.delete("s")
    await asyncio.to_thread(server.stop)
    try:
        with pytest.raises(lash.StoreUnavailable):
            await lash.open(server.url)
    finally:
        await asyncio.to_thread(server.start)
