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
from tests.runtime.worker_kit import until
from tests.warm_programs import Program, start

WORKERS: Final = 32
CONVERSATIONS: Final = 96
SAID: Final = ("one", "two", "three")
IDLE_S: Final = 12.0
IDLE_LIMIT: Final = 2.0
"""Transactions a second that the whole idle fleet may make."""
SETTLED_S: Final = 25.0
"""After this time without work each worker has announced its free slots, also one that had withdrawn."""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server with the default number of connections, which logs each statement."""
    settings = {"max_connections": "100", "log_statement": "all", "log_line_prefix": PREFIX}
    with PostgresServer(settings=settings | {"log_parameter_max_length": "0"}, binaries=find_binaries()) as running:
        yield running


def _ordinary_url(server: PostgresServer) -> str:
    """Return the URL of a role that cannot use the connections that are reserved for superusers."""
    run_sql(server.url, "CREATE ROLE ordinary LOGIN PASSWORD 'secret'", "GRANT ALL ON SCHEMA public TO ordinary")
    return f"postgresql://ordinary:secret@{server.url.rpartition('@')[2]}"


@asynccontextmanager
async def _fleet(url: str, directory: Path) -> AsyncIterator[tuple[list[Program], lash.App]]:
    """Yield registered, listening worker processes, and a caller."""
    workers: list[Program] = []
    async with lash.App(url, worker=False) as caller:

        async def all_listen() -> bool:
            listed = await caller.storage.workers.list()
            return sum(each.beat.channel is not None for each in listed) == WORKERS

        try:
            workers += [start("tests.proof.contention.plain_worker", url, str(directory)) for _ in range(WORKERS)]
            await until(all_listen, patience_s=200)
            yield workers, caller
        finally:
            for worker in workers:
                worker.kill()
            for worker in workers:
                await asyncio.to_thread(worker.communicate)


def _logs(directory: Path) -> list[str]:
    """Return what each worker has logged."""
    texts = [path.read_text() for path in directory.glob("*.log")]
    assert len(texts) == WORKERS
    return texts


async def _converse(caller: lash.App, number: int) -> None:
    session = caller.session(f"s{number}")
    for text in SAID:
        assert await session.ask(text, timeout_s=120) == text


async def test_32_workers_share_a_hundred_connections_and_cost_little_when_idle(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Every message is answered, no worker lacks a connection, and the idle fleet makes at most 2 transactions/s."""
    url = _ordinary_url(server)
    log = ServerLog(server, url.rpartition("/")[2])
    async with _fleet(url, tmp_path) as (workers, caller):
        async with asyncio.TaskGroup() as group:
            for number in range(CONVERSATIONS):
                group.create_task(_converse(caller, number))
        assert all(worker.poll() is None for worker in workers)
        assert not [text for text in _logs(tmp_path) if "connection" in text]
        await asyncio.sleep(SETTLED_S)
        log.mark()
        await asyncio.sleep(IDLE_S)
        made = log.count().transactions
        print(f"{made / IDLE_S:.2f} transactions a second")  # noqa: T201 - a figure of the run
        assert made <= IDLE_LIMIT * IDLE_S
