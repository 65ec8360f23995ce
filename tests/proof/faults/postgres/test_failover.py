"""The primary dies and its standby takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import lash
from lash.errors import StoreUnavailable
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.contract.queue_state import late
from tests.factories.process import event, registered
from tests.proof.faults.disk import EFFORT
from tests.proof.faults.postgres.servers import StandbyServer, both_hosts, follow_synchronously
from tests.raw import raw
from tests.runtime.worker_kit import until

pytestmark = pytest.mark.timeout(240 * EFFORT)


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, StandbyServer]]:
    """A server and its synchronous standby."""
    with PostgresServer(durable=True, binaries=find_binaries()) as primary, StandbyServer(primary) as standby:
        follow_synchronously(primary)
        yield primary, standby


async def send(storage: lash.Storage, session_id: str, sent: list[str], enough: asyncio.Event) -> None:
    """Send numbered messages, each retried until it is acknowledged."""
    number = 0
    while not enough.is_set():
        key = f"{session_id} {number}"
        try:
            await storage.queue.enqueue(late(key, session_id=session_id, source_key=key))
        except StoreUnavailable:
            await asyncio.sleep(0.02)
            continue
        sent.append(key)
        number += 1


async def test_acknowledged_writes_are_on_the_new_primary(pair: tuple[PostgresServer, StandbyServer]) -> None:
    """While callers write, the primary is killed and its standby promoted: they go on there, and no write is lost."""
    primary, standby = pair
    url = both_hosts(primary, standby)
    sent: list[str] = []
    enough = asyncio.Event()
    async with await lash.open(f"{url}&schema=public") as storage:
        names = [f"s{number}" for number in range(4)]
        for name in names:
            await storage.sessions.create(name)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(send(storage, name, sent, enough))
            await until(lambda: len(sent) >= 100)
            await asyncio.to_thread(primary.stop, immediate=True)
            before = len(sent)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(standby.promote)
            await until(lambda: len(sent) >= before + 100)
            enough.set()
    found = [
        key for (key,) in await raw(f"{standby.url}?schema=public", "SELECT source_key FROM lash_batches ORDER BY seq")
    ]
    assert sorted(found) == sorted(sent)
    for name in names:
        own = [key for key in found if key.startswith(f"{name} ")]
        assert own == [f"{name} {number}" for number in range(len(own))]


async def test_a_primary_that_takes_no_writes_is_left(pair: tuple[PostgresServer, StandbyServer]) -> None:
    """The primary is demoted and keeps its connections, as some services do: writes go on at the new primary."""
    primary, standby = pair
    async with await lash.open(f"{both_hosts(primary, standby)}&schema=public") as storage:
        await storage.sessions.create("before")
        await raw(f"{primary.url}?schema=public", "ALTER SYSTEM SET default_transaction_read_only = on")
        await raw(f"{primary.url}?schema=public", "SELECT pg_reload_conf()")
        await _until_found(
            f"{primary.url}?schema=public", "SELECT 1 WHERE current_setting('transaction_read_only')::bool"
        )
        with pytest.raises(lash.StorageFailure, match="target_session_attrs=read-write"):
            await _write_until_refused(storage)
        await asyncio.to_thread(standby.promote)
        await _written_at_last(storage, "after", tries=200)
    found = await raw(f"{standby.url}?schema=public", "SELECT session_id FROM lash_sessions")
    assert ("after",) in found


async def _write_until_refused(storage: lash.Storage) -> None:
    """Write until the open connection has the new setting too, which takes a moment."""
    for number in range(1_000):
        await storage.sessions.create(f"not yet {number}")


async def _written_at_last(storage: lash.Storage, session_id: str, *, tries: int) -> None:
    """Create a session with so many tries at most."""
    for left in reversed(range(tries)):
        try:
            await storage.sessions.create(session_id)
        except (StoreUnavailable, lash.StorageFailure):
            if not left:
                raise
            await asyncio.sleep(0.1)
        else:
            return


async def test_cursors_survive_a_failover(pair: tuple[PostgresServer, StandbyServer]) -> None:
    """On the promoted standby a cursor continues without a gap, and sees each later change once."""
    primary, standby = pair
    async with await lash.open(f"{primary.url}?schema=public") as storage:
        await registered(storage)
        cursor = (await storage.events.changes()).cursor
    await asyncio.to_thread(primary.stop, immediate=True)
    await asyncio.to_thread(standby.promote)
    async with await lash.open(f"{standby.url}?schema=public") as storage:
        await storage.events.append("p", event())
        page = await storage.events.changes(cursor)
        assert ([change.sequence for change in page.changes], page.gap) == ([1], None)


async def test_a_cursor_of_a_lost_change_gets_a_gap() -> None:
    """A change that an asynchronous standby never got is lost; readers that saw it get a gap."""
    with PostgresServer(durable=True, binaries=find_binaries()) as primary, StandbyServer(primary) as standby:
        async with await lash.open(f"{primary.url}?schema=public") as storage:
            await registered(storage)
            kept = (await storage.events.changes()).cursor
            await _stop_following(primary, standby)
            for number in range(40):
                await storage.events.append("p", event(payload=number))
            lost = (await storage.events.changes()).cursor
        await asyncio.to_thread(primary.stop, immediate=True)
        await asyncio.to_thread(standby.promote)
        async with await lash.open(f"{standby.url}?schema=public") as storage:
            assert (await storage.events.changes(lost)).gap is lash.GapReason.UNAVAILABLE
            # More changes than were lost: the new position is beyond the cursor.
            for number in range(60):
                await storage.events.append("p", event(payload=number))
            page = await storage.events.changes(lost)
            assert (page.changes, page.gap) == ((), lash.GapReason.UNAVAILABLE)
            page = await storage.events.changes(kept)
            assert ([change.sequence for change in page.changes], page.gap) == (list(range(1, 61)), None)


async def _stop_following(primary: PostgresServer, standby: StandbyServer) -> None:
    """Wait until the standby has everything, and cut it off."""
    here, there = f"{primary.url}?schema=public", f"{standby.url}?schema=public"
    ((written,),) = await raw(here, "SELECT pg_current_wal_flush_lsn()::text")
    await _until_found(there, f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{written}'")
    await raw(there, "ALTER SYSTEM SET primary_conninfo = ''")
    await raw(there, "SELECT pg_reload_conf()")
    await _until_found(there, "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM pg_stat_wal_receiver)")


async def _until_found(url: str, statement: str) -> None:
    while True:
        if await raw(url, statement):
            return
        await asyncio.sleep(0.02)
