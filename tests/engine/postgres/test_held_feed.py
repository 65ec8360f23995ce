"""Transactions of other databases hold the change feed back, and are named when they last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import asyncpg
import pytest

import lash
from lash.postgres.rows.process import change
from lash.runtime.observe.stream import current_cursor, observe
from lash.testing.postgres_server import PostgresServer
from tests.backends import fresh_schema, run_sql, scratch_database
from tests.engine.postgres.copies import plain_role
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


async def only_warning(caplog: pytest.LogCaptureFixture, owner: str, read: Callable[[], Awaitable[object]]) -> str:
    """Read until a warning names the owner of a transaction, and three times more; return the only such warning.

    Without patience, a transaction of another test on the same server may be named before it.
    """

    def warnings() -> list[str]:
        return [record.message for record in caplog.records if owner in record.message]

    async with asyncio.timeout(LIMIT_S):
        while not warnings():
            await read()
    for _ in range(3):
        await read()
    (warning,) = warnings()
    return warning


async def test_a_lasting_transaction_of_another_database_is_named(
    postgres_server: PostgresServer,
    postgres_storage_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An observer sees the change when that transaction ends; meanwhile one warning says where to look."""
    monkeypatch.setattr(change, "_PATIENCE_S", 0.0)
    with scratch_database(postgres_server.url) as other:
        async with asyncio.timeout(LIMIT_S), await lash.open(postgres_storage_url) as storage:
            await started(storage)
            cursor = await current_cursor(storage, "s")
            async with aclosing(observe(storage, "s", cursor)) as stream:
                with caplog.at_level(logging.WARNING, _LOGGER):
                    async with writing_elsewhere(other) as stranger:
                        pid = stranger.get_server_pid()
                        await storage.processes.register(process("p", wake_session_id="s"))
                        waiting = asyncio.ensure_future(anext(stream))

                        async def read() -> None:
                            assert (await storage.events.changes()).changes == ()
                            await storage.activity.read("s")

                        warning = await only_warning(caplog, f"pid {pid},", read)
                        assert not waiting.done()
                shown = await waiting
            assert isinstance(shown, lash.ProcessChanged)
            await storage.events.append("p", event())
            assert len((await storage.events.changes()).changes) == 2
    name = urlsplit(other).path.strip("/")
    assert f"pid {pid}, database '{name}', user 'postgres', application 'stranger', idle in transaction" in warning
    assert f"pg_terminate_backend({pid})" in warning


async def test_a_role_with_few_rights_names_it_too(
    postgres_server: PostgresServer,
    postgres_storage_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server hides the state of sessions of other roles, but not where they come from."""
    monkeypatch.setattr(change, "_PATIENCE_S", 0.0)
    await (await lash.open(postgres_storage_url)).close()
    with scratch_database(postgres_server.url) as other:
        async with plain_role(postgres_storage_url) as url, await lash.open(url, migrate=False) as storage:
            with caplog.at_level(logging.WARNING, _LOGGER):
                async with writing_elsewhere(other) as stranger:
                    await storage.processes.register(process("p"))
                    pid = stranger.get_server_pid()
                    warning = await only_warning(caplog, f"pid {pid},", storage.events.changes)
    assert f"pid {pid}, database {urlsplit(other).path.strip('/')!r}" in warning
    assert f"application {_STRANGER!r};" in warning


async def test_a_forgotten_prepared_transaction_is_named(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It belongs to no session, so it is named by its own name."""
    monkeypatch.setattr(change, "_PATIENCE_S", 0.0)
    await asyncio.to_thread(run_sql, own_server.url, "ALTER SYSTEM SET max_prepared_transactions = 2")
    await asyncio.to_thread(own_server.restart)
    with scratch_database(own_server.url) as other, fresh_schema(own_server.url) as url:
        async with await lash.open(url) as storage:
            connection = await asyncpg.connect(other)
            try:
                for statement in ("BEGIN", "CREATE TABLE mine (a int)", "PREPARE TRANSACTION 'forgotten'"):
                    await connection.execute(statement)
                await storage.processes.register(process("p"))
                with caplog.at_level(logging.WARNING, _LOGGER):
                    for _ in range(3):
                        assert (await storage.events.changes()).changes == ()
                await connection.execute("ROLLBACK PREPARED 'forgotten'")
            finally:
                await connection.close()
            assert len((await storage.events.changes()).changes) == 1
    (record,) = caplog.records
    assert "prepared transaction 'forgotten', database" in record.message


async def test_a_transaction_that_holds_nothing_back_is_not_named(
    postgres_server: PostgresServer,
    postgres_storage_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No warning is logged unless a change waits, and none within five seconds."""
    with scratch_database(postgres_server.url) as other:
        async with await lash.open(postgres_storage_url) as storage:
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
