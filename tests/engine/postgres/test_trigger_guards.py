"""Locks between emissions, changes of subscriptions and deletions of sessions on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from tests.factories.process import DONE, scope, stored
from tests.factories.session import created
from tests.factories.trigger import HOST, by_session, pressed, subscribed, the, trigger

_GATE = """
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END';
CREATE TRIGGER gate AFTER INSERT OR UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION gate();
"""
_WAITING = """
SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.datname = current_database()
WHERE NOT l.granted AND (l.database = d.oid OR l.locktype = 'transactionid')
"""


class Gate:
    """Blocks transactions that write to a table until it is opened."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def until_waiting(self, count: int, *tasks: asyncio.Task[object]) -> bool:
        """Return True once this many transactions wait; False if one of the tasks ends first."""
        while True:
            if any(task.done() for task in tasks):
                return False
            if await self._connection.fetchval(_WAITING) >= count:
                return True
            await asyncio.sleep(0.005)

    async def open(self) -> None:
        await self._connection.execute("SELECT pg_advisory_unlock_all()")


@asynccontextmanager
async def gate_on(url: str, table: str) -> AsyncIterator[Gate]:
    """Install a closed gate, which later writes must pass."""
    options = PostgresOptions.from_url(url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        await connection.execute(_GATE.format(table=table))
        await connection.execute("SELECT pg_advisory_lock(4711)")
        yield Gate(connection)
    finally:
        await connection.execute("SELECT pg_advisory_unlock_all()")
        await connection.execute("SET lock_timeout = '30s'; DROP FUNCTION gate CASCADE")
        await connection.close()


@pytest.fixture
def url(postgres_storage_url: str) -> str:
    return postgres_storage_url


async def test_the_end_of_a_session_waits_for_an_emission(url: str) -> None:
    """A session deleted while an emission starts processes for it leaves neither grant nor wake target."""
    async with await lash.open(url) as storage, gate_on(url, "lash_trigger_deliveries") as gate:
        await created(storage)
        await subscribed(storage, owner=by_session(), wake_session_id="s")
        emitting = asyncio.create_task(storage.occurrences.emit(pressed()))
        assert await gate.until_waiting(1, emitting)
        deleting = asyncio.create_task(storage.sessions.delete("s"))
        assert await gate.until_waiting(2, deleting), "the session went while a process for it was being started"
        await gate.open()
        report = await emitting
        assert await deleting
        assert await storage.grants.list(scope("s")) == ()
        assert (await stored(storage, the(report.deliveries).process_id)).wake_session_id is None
        assert (await storage.triggers.list()).subscriptions == ()


async def test_the_end_of_a_session_waits_for_a_registration(url: str) -> None:
    """A subscription created while its session is deleted is deleted with it."""
    async with await lash.open(url) as storage, gate_on(url, "lash_trigger_subscriptions") as gate:
        await created(storage)
        registering = asyncio.create_task(storage.triggers.register(trigger(owner=by_session())))
        assert await gate.until_waiting(1, registering)
        deleting = asyncio.create_task(storage.sessions.delete("s"))
        assert await gate.until_waiting(2, deleting), "the session went while it got a subscription"
        await gate.open()
        assert (await registering).created
        assert await deleting
        assert (await storage.triggers.list()).subscriptions == ()


async def test_a_registration_waits_for_the_end_of_a_session(url: str) -> None:
    """Registering a subscription of a session that is being deleted is refused."""
    async with await lash.open(url) as storage:
        await created(storage)
        async with gate_on(url, "lash_session_ids") as gate:
            deleting = asyncio.create_task(storage.sessions.delete("s"))
            assert await gate.until_waiting(1, deleting)
            registering = asyncio.create_task(storage.triggers.register(trigger(owner=by_session())))
            assert await gate.until_waiting(2, registering)
            await gate.open()
            assert await deleting
            with pytest.raises(lash.SessionDeleted):
                await registering


@pytest.mark.parametrize("change", ["disable", "delete"])
async def test_a_change_waits_for_an_emission(url: str, change: str) -> None:
    """After a subscription is disabled or deleted, an emission that matched it before starts nothing."""
    async with await lash.open(url) as storage, gate_on(url, "lash_trigger_deliveries") as gate:
        await subscribed(storage)
        emitting = asyncio.create_task(storage.occurrences.emit(pressed()))
        assert await gate.until_waiting(1, emitting)
        changing = asyncio.create_task(getattr(storage.triggers, change)(HOST, "k", revision=1))
        assert await gate.until_waiting(2, changing), "acknowledged while an emission was starting a process"
        await gate.open()
        assert len((await emitting).started_process_ids) == 1
        await changing


async def test_an_equal_emission_waits_for_the_first(url: str) -> None:
    """The second of two concurrent emissions gets the report of the first, without an error or a second process."""
    async with await lash.open(url) as storage, gate_on(url, "lash_trigger_deliveries") as gate:
        await subscribed(storage)
        first = asyncio.create_task(storage.occurrences.emit(pressed()))
        assert await gate.until_waiting(1, first)
        second = asyncio.create_task(storage.occurrences.emit(pressed()))
        assert await gate.until_waiting(2, second)
        await gate.open()
        assert await first == await second
        assert len((await storage.processes.list()).processes) == 1


async def test_pruning_leaves_what_is_being_retried(url: str) -> None:
    """An occurrence is not pruned while a delivery of it is being started."""
    async with await lash.open(url) as storage:
        (subscription,) = await subscribed(storage, payload_schema={"type": "string"})
        report = await storage.occurrences.emit(pressed())
        await storage.triggers.update(trigger(), revision=1)
        async with gate_on(url, "lash_processes") as gate:
            names = (report.occurrence_id, subscription.subscription_id)
            retrying = asyncio.create_task(storage.occurrences.retry_delivery(*names))
            assert await gate.until_waiting(1, retrying)
            assert (await storage.occurrences.prune(before_ms=2**62)).occurrence_ids == ()
            await gate.open()
            delivery = await retrying
        assert (await storage.occurrences.prune(before_ms=2**62)).occurrence_ids == ()
        await storage.processes.complete(delivery.process_id, DONE)
        assert (await storage.occurrences.prune(before_ms=2**62)).occurrence_ids == (report.occurrence_id,)
