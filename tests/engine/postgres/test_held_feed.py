"""Transactions of other databases hold the change feed back, and are named when they last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import asyncpg
import pytest

import lash
from lash.postgres.rows.process import change
from lash.runtime.observe.stream import current_cursor, observe
from lash.testing.postgres_server import PostgresServer
from tests.backends import scratch_database
from tests.factories.process import event, process
from tests.factories.session import started

LIMIT_S: Final = 30
_LOGGER: Final = "lash.postgres"
_STRANGER: Final = "stranger"


@asynccontextmanager
async def writing_elsewhere(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Hold a transaction open that has written to another database of the server."""
    connection = await asyncpg.connect(url, server_settings={"application_name": _STRANGER})
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("CREATE TABLE mine (a int)")
        yield connection
        await transaction.rollback()
    finally:
        await connection.close()


async def test_a_lasting_transaction_of_another_database_is_named(
    postgres_server: PostgresServer,
    postgres_schema_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An observer sees the change when that transaction ends; meanwhile one warning says where to look."""
    monkeypatch.setattr(change, "_PATIENCE_S", 0.0)
    with scratch_database(postgres_server.url) as other:
        async with asyncio.timeout(LIMIT_S), await lash.open(postgres_schema_url) as storage:
            await started(storage)
            cursor = await current_cursor(storage, "s")
            async with aclosing(observe(storage, "s", cursor)) as stream:
                with caplog.at_level(logging.WARNING, _LOGGER):
                    async with writing_elsewhere(other) as stranger:
                        pid = stranger.get_server_pid()
                        await storage.processes.register(process("p", wake_session_id="s"))
                        waiting = asyncio.ensure_future(anext(stream))
                        for _ in range(3):
                            assert (await storage.events.changes()).changes == ()
                            await storage.activity.read("s")
                        assert not waiting.done()
                shown = await waiting
            assert isinstance(shown, lash.ProcessChanged)
            await storage.events.append("p", event())
            assert len((await storage.events.changes()).changes) == 2
    (record,) = caplog.records
    name = urlsplit(other).path.strip("/")
    assert (
        f"pid {pid}, database '{name}', user 'postgres', application 'stranger', idle in transaction" in record.message
    )
    assert f"pg_terminate_backend({pid})" in record.message


async def test_a_transaction_that_holds_nothing_back_is_not_named(
    postgres_server: PostgresServer,
    postgres_schema_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a change that waits, or before five seconds have passed, there is no warning."""
    with scratch_database(postgres_server.url) as other:
        async with await lash.open(postgres_schema_url) as storage:
            await started(storage)
            with caplog.at_level(logging.WARNING, _LOGGER):
                async with writing_elsewhere(other):
                    with monkeypatch.context() as patch:
                        patch.setattr(change, "_PATIENCE_S", 0.0)
                        for _ in range(3):
                            await storage.activity.read("s")
                    await storage.processes.register(process("p", wake_session_id="s"))
                    for _ in range(3):
                        await storage.activity.read("s")
    assert caplog.records == []
