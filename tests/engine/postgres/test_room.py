"""Pools of many programs on a server with few connections."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

import lash
from lash.postgres.engine.room import ConnectionUse, Room
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.backends import run_sql
from tests.cli.kit import run
from tests.contract.test_worker import beat as announced
from tests.engine.postgres.kit import RUNNING, Item, opened, raw_connection, until_count

if TYPE_CHECKING:
    from lash.postgres.engine.pool import PooledConnection

_WORKERS = 3
_BY_USER = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1"
_BY_TYPE = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = $1"
_ALL = _WORKERS + 1 + (1 if sys.platform == "linux" else _WORKERS + 1)
"""A connection of each worker and of the caller; on Linux one more that listens for all, elsewhere one for each."""
_BELOW = f"SELECT greatest(0, {_ALL} - count(*)) FROM pg_stat_activity WHERE usename = $1"
_ABOVE = f"SELECT greatest(0, count(*) - {max(_ALL, 7)}) FROM pg_stat_activity WHERE usename = $1"
"""Pools grow until three quarters of the nine connections are in use."""


def _unused(_connection: object) -> None:
    raise AssertionError("no connection is left over")


@pytest.fixture(scope="module")
def small_server() -> Iterator[PostgresServer]:
    """A server with nine connections for ordinary users, and three for superusers."""
    with PostgresServer(settings={"max_connections": "12"}, binaries=find_binaries()) as server:
        yield server


def _ordinary_url(server: PostgresServer) -> str:
    run_sql(
        server.url,
        "CREATE ROLE ordinary LOGIN PASSWORD 'secret'",
        "GRANT ALL ON SCHEMA public TO ordinary",
    )
    return f"postgresql://ordinary:secret@{server.url.rpartition('@')[2]}"


def _worker(url: str, *, worker: bool) -> lash.App:
    app = lash.App(url, worker=worker)

    @app.agent
    async def slow(turn: lash.Turn) -> str:
        await turn.step("wait", asyncio.sleep, 0.01)
        return f"reply to {turn.text}"

    return app


async def test_workers_with_default_options_share_the_connections_of_a_small_server(
    small_server: PostgresServer,
) -> None:
    """Three workers and a caller answer 24 conversations with one connection each, and one that listens for all."""
    url = _ordinary_url(small_server)
    async with contextlib.AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(raw_connection(small_server.url))
        for _ in range(_WORKERS):
            await stack.enter_async_context(_worker(url, worker=True))
        caller = await stack.enter_async_context(_worker(url, worker=False))
        asking = asyncio.create_task(caller.session("first").ask("hello"))
        await until_count(watcher, _BELOW, "ordinary", 0)
        await asking

        async def converse(number: int) -> None:
            for said in ("one", "two"):
                assert await caller.session(f"s{number}").ask(said, timeout_s=60) == f"reply to {said}"

        async with asyncio.TaskGroup() as group:
            for number in range(24):
                group.create_task(converse(number))
        await until_count(watcher, _ABOVE, "ordinary", 0)


async def test_a_role_without_rights_counts_the_connections_of_others(small_server: PostgresServer) -> None:
    """Six connections of another role leave a pool of an ordinary role one; `lash doctor` counts the same."""
    run_sql(small_server.url, "CREATE ROLE blind LOGIN PASSWORD 'secret'", "GRANT ALL ON SCHEMA public TO blind")
    url = f"postgresql://blind:secret@{small_server.url.rpartition('@')[2]}"
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(6):
            await stack.enter_async_context(raw_connection(small_server.url))
        database = await stack.enter_async_context(opened(url))
        calls = [asyncio.create_task(database.read_one(Item, "sleep", 0.01)) for _ in range(8)]
        assert await asyncio.gather(*calls) == [Item(1, 2)] * 8
        watcher = await stack.enter_async_context(raw_connection(small_server.url))
        assert await watcher.fetchval(_BY_USER, "blind") == 1
        await until_count(watcher, _BY_TYPE, "client backend", 8)
        assert await database.read_one(ConnectionUse, "connection_use") == ConnectionUse(limit=9, used=8)


async def test_a_pool_waits_for_its_own_connection_while_the_server_is_nearly_full(
    small_server: PostgresServer,
) -> None:
    """Eight calls at once use one connection, because other programs have three quarters of the others."""
    async with contextlib.AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(raw_connection(small_server.url))
        for _ in range(6):
            await stack.enter_async_context(raw_connection(small_server.url))
        database = await stack.enter_async_context(opened(small_server.url, application_name="polite"))
        calls = [asyncio.create_task(database.read_one(Item, "sleep", 0.01)) for _ in range(8)]
        assert await asyncio.gather(*calls) == [Item(1, 2)] * 8
        assert await watcher.fetchval(RUNNING, "polite") == 1


async def test_a_full_server_leaves_a_pool_the_connection_that_it_has(small_server: PostgresServer) -> None:
    """A refused further connection is no error: the call waits for the pool's own one."""
    async with contextlib.AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(small_server.url))
        for _ in range(11):
            await stack.enter_async_context(raw_connection(small_server.url))
        calls = [asyncio.create_task(database.read_one(Item, "sleep", 0.01)) for _ in range(4)]
        assert await asyncio.gather(*calls) == [Item(1, 2)] * 4


async def test_a_cancelled_call_passes_its_place_on() -> None:
    """Of two calls that wait for the only place, the second gets it if the first is cancelled."""
    room = Room(1, 1, lambda: 1, _unused)
    await room.enter()
    first, second = asyncio.create_task(room.enter()), asyncio.create_task(room.enter())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    room.leave()
    first.cancel()
    await asyncio.wait_for(second, 60)
    assert first.cancelled()
    assert room.used == 1


async def test_calls_get_their_places_in_order() -> None:
    """A call that comes while others wait is served after them, even if it comes when a place is given back."""
    room, served = Room(1, 1, lambda: 1, _unused), list[int]()
    await room.enter()

    async def call(number: int) -> None:
        await room.enter()
        served.append(number)
        room.leave()

    waiting = [asyncio.create_task(call(number)) for number in range(3)]
    await asyncio.sleep(0)
    room.leave()
    waiting.append(asyncio.create_task(call(3)))
    await asyncio.gather(*waiting)
    assert served == [0, 1, 2, 3]
    assert room.used == 0


async def test_a_connection_goes_to_the_call_that_has_waited_longest() -> None:
    """A call that ends hands its connection over; a cancelled call passes it on, and the last one gives it back."""
    spared = list[object]()
    room, connection = Room(1, 1, lambda: 1, spared.append), cast("PooledConnection", object())
    assert await room.enter() is None
    assert not room.hand_over(connection)
    waiting = [asyncio.create_task(room.enter()) for _ in range(4)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    assert room.hand_over(connection)
    waiting[1].cancel()
    await asyncio.wait(waiting[:3])
    assert [each.cancelled() for each in waiting[:2]] == [True, True]
    assert waiting[2].result() is connection
    assert room.hand_over(connection)
    waiting[3].cancel()
    await asyncio.wait(waiting)
    assert spared == [connection]
    assert room.used == 1


async def test_calls_that_find_room_at_the_same_time_open_one_connection() -> None:
    """A pool grows one by one and not beyond its size, however many calls found room."""
    connected = 1
    room = Room(1, 3, lambda: connected, _unused)
    await room.enter()
    waiting = [asyncio.create_task(room.enter()) for _ in range(8)]
    await asyncio.sleep(0)
    for used in (2, 3, 3):
        for _ in range(5):
            room.grow()
        assert room.used == used
        connected = used
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)


async def test_a_call_does_not_wait_for_a_long_one(small_server: PostgresServer) -> None:
    """A call that finds all connections in long use gets a further one."""
    async with opened(small_server.url) as database:
        long = asyncio.create_task(database.read_one(Item, "sleep", 20))
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(database.read_one(Item, "one"), 10) == Item(1, 2)
        assert not long.done()
        long.cancel()


async def test_the_doctor_warns_of_workers_that_do_not_fit(small_server: PostgresServer) -> None:
    """Eight workers on two machines need ten connections, and a server of twelve has nine for ordinary users."""
    async with await lash.open(small_server.url) as storage:
        for number in range(8):
            beat = announced(f"w{number}", beat_ms=600_000, host=f"host{number % 2}")
            await storage.work.poll(sessions=0, processes=0, owner=beat.owner, beat=beat)
    done = await asyncio.to_thread(run, "doctor", url=small_server.url)
    assert "of 9 in use; 8 live workers need at least 10: raise max_connections" in done.stdout
