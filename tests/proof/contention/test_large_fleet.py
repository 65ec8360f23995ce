"""32 worker processes with default options on a server with ``max_connections = 100``, under load and idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

import lash
from benchmarks.kit.server_log import PREFIX, ServerLog
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.backends import run_sql
from tests.runtime.worker_kit import Crew, crew, until

WORKERS: Final = 32
CONVERSATIONS: Final = 96
SAID: Final = ("one", "two", "three")
IDLE_S: Final = 15.0
IDLE_LIMIT: Final = 2.0
"""Transactions a second that the whole idle fleet may make."""
SETTLED_S: Final = 3.0
"""After this time without work a worker has announced its free slots."""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server with the default number of connections, which logs each statement and each refused connection."""
    settings = {"max_connections": "100", "log_statement": "all", "log_line_prefix": PREFIX}
    settings["log_parameter_max_length"] = "0"
    with PostgresServer(settings=settings, binaries=find_binaries()) as running:
        yield running


def _ordinary_url(server: PostgresServer) -> str:
    """Return the URL of a role that cannot use the connections that are reserved for superusers."""
    run_sql(server.url, "CREATE ROLE ordinary LOGIN PASSWORD 'secret'", "GRANT ALL ON SCHEMA public TO ordinary")
    return f"postgresql://ordinary:secret@{server.url.rpartition('@')[2]}"


@asynccontextmanager
async def _fleet(url: str, directory: Path) -> AsyncIterator[tuple[Crew, lash.App]]:
    """Yield registered, listening worker processes, and a caller."""
    async with lash.App(url, worker=False) as caller:
        with crew(url, directory) as hired:
            for _ in range(WORKERS):
                hired.hire(app="plain")

            async def all_listen() -> bool:
                listed = await caller.storage.workers.list()
                return sum(each.beat.channel is not None for each in listed) == WORKERS

            await until(all_listen, patience_s=200)
            yield hired, caller


async def _converse(caller: lash.App, number: int) -> None:
    session = caller.session(f"s{number}")
    for text in SAID:
        assert await session.ask(text, timeout_s=120) == text


async def test_32_workers_share_a_hundred_connections_and_cost_little_when_idle(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Every message is answered, no connection is refused, and the idle fleet makes at most 2 transactions a second."""
    url = _ordinary_url(server)
    log = ServerLog(server, url.rpartition("/")[2])
    async with _fleet(url, tmp_path) as (hired, caller):
        async with asyncio.TaskGroup() as group:
            for number in range(CONVERSATIONS):
                group.create_task(_converse(caller, number))
        assert not [hired.log(worker) for worker in hired.workers if worker.poll() is not None]
        assert not [hired.log(worker) for worker in hired.workers if "connection" in hired.log(worker)]
        assert "FATAL" not in server.log
        await asyncio.sleep(SETTLED_S)
        log.mark()
        await asyncio.sleep(IDLE_S)
        assert log.count().transactions <= IDLE_LIMIT * IDLE_S
