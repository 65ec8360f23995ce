"""A call that is cancelled while a connection opens leaves nothing in the log and nothing open."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

import lash
from lash.postgres.storage import PostgresStorage

ITERATIONS = 40
"""More event loop iterations than opening a connection takes."""


@contextlib.asynccontextmanager
async def silent(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Fail if the event loop reports an exception that was not retrieved, or if anything is logged."""
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reported.append(context))
    with caplog.at_level(logging.WARNING):
        yield
        await settle()
    loop.set_exception_handler(None)
    assert reported == []
    assert caplog.records == []


async def settle() -> None:
    """Let everything in the background end, and collect what it left."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)
    for _ in range(5):
        await asyncio.sleep(0)
        gc.collect()


async def cancelled_after(iterations: int, call: Callable[[], Coroutine[None, None, None]]) -> None:
    """Start the call, let so many iterations of the event loop pass, and cancel it."""
    task = asyncio.create_task(call())
    for _ in range(iterations):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_opening_a_storage(backend_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled at any iteration of the event loop, opening a storage reports nothing."""

    async def call() -> None:
        async with await lash.open(backend_url):
            pass

    async with silent(caplog):
        for iterations in range(ITERATIONS):
            await cancelled_after(iterations, call)


async def test_a_call_that_needs_another_connection(backend_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled at any iteration, a call that opens a connection reports nothing, and the next call succeeds."""
    async with silent(caplog):
        for iterations in range(0, ITERATIONS, 2):
            async with await lash.open(backend_url) as storage:

                async def call(storage: lash.Storage = storage) -> None:
                    await asyncio.gather(*(storage.sessions.open(f"s{number}") for number in range(3)))

                await cancelled_after(iterations, call)
                assert await storage.sessions.open("s") is None


async def test_a_server_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled while the server is silent, or has closed the connection, opening reports nothing."""
    answered = asyncio.Event()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answered.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def call() -> None:
        await lash.open(f"postgresql://ada@127.0.0.1:{port}/none")

    async with server, silent(caplog):
        for iterations in range(ITERATIONS):
            await cancelled_after(iterations, call)
        answered.set()


async def test_a_transaction_that_begins(postgres_schema_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled while the server begins a transaction, the next caller does not get a connection inside of it."""
    async with silent(caplog), await lash.open(postgres_schema_url) as storage:
        assert isinstance(storage, PostgresStorage)
        database = storage._database

        async def call() -> None:
            async with database.transaction():
                pass

        for iterations in range(ITERATIONS):
            await cancelled_after(iterations, call)
            assert await storage.sessions.open("s") is None
