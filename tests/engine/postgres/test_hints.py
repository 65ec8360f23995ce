"""Hints between storages on one PostgreSQL schema."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

import lash
from lash.model.process.event import EventDraft, EventType, ProcessEvent
from lash.model.process.process import ExternalInput, Recovery, Registration
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.hints import channel_of
from lash.postgres.storage import PostgresStorage
from lash.stores.hints import NO_HINT
from lash.stores.storage import Storage
from tests.backends import with_parameters
from tests.base.waiting_kit import changes_of
from tests.contract.queue_state import late
from tests.engine.postgres.kit import raw_connection
from tests.engine.postgres.proxy import proxy_before
from tests.factories.process import DONE, NEWS, external, news, process, process_lease
from tests.factories.session import created, owner

TICK = EventDraft(event_type="tick")
_LISTENERS = """
    SELECT pid FROM pg_stat_activity
    WHERE query = 'LISTEN "' || $1::text || '"' AND pid <> pg_backend_pid()
"""


def registration(process_id: str = "p") -> Registration:
    types = (EventType(name="tick"),)
    return Registration(process_id=process_id, input=ExternalInput(), recovery=Recovery.EXTERNAL, event_types=types)


_CUT_LISTENERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE query LIKE 'LISTEN %' AND datname = current_database()
"""


@asynccontextmanager
async def opened(url: str, *, poll_s: float = 3_600) -> AsyncIterator[Storage]:
    """Open a storage with a process ``p`` whose waiters poll at this interval only."""
    async with await lash.open(url) as storage:
        await storage.processes.register(registration())
        changes_of(storage)._poll_s = poll_s
        yield storage


async def soon(waiting: Awaitable[ProcessEvent]) -> int:
    """Return the number of the awaited event; a wait that hangs fails the test."""
    return (await asyncio.wait_for(waiting, 60)).sequence


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds; fail the test if it never does."""
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 (the server sends no event)
            await asyncio.sleep(0.01)


async def listeners(url: str) -> list[int]:
    """Return the server processes that serve listening connections of the schema."""
    async with raw_connection(url) as connection:
        rows = await connection.fetch(_LISTENERS, channel_of(PostgresOptions.from_url(url).schema))
    return [row["pid"] for row in rows]


async def some_listener(url: str, *, other_than: int = 0) -> int:
    """Wait for a listening connection, and return its server process."""
    found: list[int] = []

    async def is_there() -> bool:
        found[:] = [pid for pid in await listeners(url) if pid != other_than]
        return bool(found)

    await until(is_there)
    return found[0]


class Overheard:
    """The notifications on the channel of a schema."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], channel: str) -> None:
        self._connection = connection
        self._channel = channel
        self.said: list[object] = []

    async def so_far(self) -> list[object]:
        """Return the notifications since the last call."""
        mark = uuid.uuid4().hex
        await self._connection.execute("SELECT pg_notify($1, $2)", self._channel, mark)

        async def is_heard() -> bool:
            return mark in self.said

        await until(is_heard)
        said, self.said[:] = self.said[: self.said.index(mark)], []
        return said

    async def something(self) -> None:
        """Wait for a notification."""

        async def is_heard() -> bool:
            return bool(self.said)

        await until(is_heard)


@asynccontextmanager
async def overheard(url: str) -> AsyncIterator[Overheard]:
    """Listen on a separate connection of the test."""
    channel = channel_of(PostgresOptions.from_url(url).schema)
    async with raw_connection(url) as connection:
        heard = Overheard(connection, channel)
        await connection.add_listener(channel, lambda _connection, _pid, _channel, text: heard.said.append(text))
        yield heard


async def test_a_lost_listener_is_replaced(postgres_storage_url: str) -> None:
    """After the server cut the listening connection, hints arrive again on a new one."""
    url = postgres_storage_url
    async with opened(url) as storage, await lash.open(url) as other:
        waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick"))
        first = await some_listener(url)
        async with raw_connection(url) as connection:
            await connection.execute("SELECT pg_terminate_backend($1)", first)
        await some_listener(url, other_than=first)
        await other.events.append("p", TICK)
        assert await soon(waiting) == 1


async def test_a_worker_beats_after_a_lost_connection(postgres_storage_url: str) -> None:
    """The notification that another worker left may be among the lost ones, so a worker looks at the fleet."""
    url = postgres_storage_url
    async with await lash.open(url) as storage, raw_connection(url) as connection:
        with storage.hints.listen(work=True) as listener:

            async def is_receiving() -> bool:
                await listener.wait(0.001)
                return storage.hints.is_receiving and storage.hints.channel is not None

            async def is_cut() -> bool:
                cut = await connection.fetch(_CUT_LISTENERS)
                return bool(cut)

            await until(is_receiving)
            while (await listener.wait(0.1)) != NO_HINT:
                pass
            await until(is_cut)
            async with asyncio.timeout(30):
                while not (await listener.wait(1)).beat:
                    pass


async def test_an_unexpected_error_ends_no_sending(postgres_storage_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint whose sending raises an error of no kind that lash knows is lost; the next one is sent."""
    url = postgres_storage_url
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    async with opened(url) as storage, overheard(url) as heard:
        assert isinstance(storage, PostgresStorage)
        database, failed = storage._database, asyncio.Event()
        send = database.send_quietly

        async def fail(name: str, *args: object) -> None:
            if not failed.is_set():
                failed.set()
                raise MemoryError("made for the test")
            await send(name, *args)

        monkeypatch.setattr(database, "send_quietly", fail)
        await storage.events.append("p", TICK)
        await asyncio.wait_for(failed.wait(), 60)
        await asyncio.sleep(0)
        await storage.events.append("p", TICK)
        await heard.something()


async def test_what_was_written_while_nobody_listened_is_found(postgres_storage_url: str) -> None:
    """A new listening connection is itself a hint, because earlier ones were missed."""
    url = postgres_storage_url
    async with opened(url) as storage, await lash.open(url) as other:
        waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick"))
        first = await some_listener(url)
        async with raw_connection(url) as connection:
            await connection.execute("SELECT pg_terminate_backend($1)", first)
            await other.events.append("p", TICK)
        assert await soon(waiting) == 1


async def test_nobody_listens_before_somebody_waits(postgres_storage_url: str) -> None:
    """The connection outside the pool is opened once, for the first listener, and closed with the storage."""
    url = postgres_storage_url
    async with opened(url) as storage:
        await storage.events.append("p", TICK)
        assert (await storage.waiter.wait_event_after("p", "tick")).sequence == 1
        assert await listeners(url) == []
        waiting = [asyncio.create_task(storage.waiter.wait_event_after("p", "tick", number)) for number in (1, 2)]
        only = await some_listener(url)
        await storage.events.append("p", TICK)
        await storage.events.append("p", TICK)
        assert [await soon(each) for each in waiting] == [2, 3]
        assert await listeners(url) == [only]

    async def nobody_listens() -> bool:
        return await listeners(url) == []

    await until(nobody_listens)


async def test_all_listeners_share_a_connection(postgres_storage_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All listeners share one connection; it closes some time after the last of them, and reopens with the next."""
    url = postgres_storage_url
    monkeypatch.setattr("lash.postgres.hints._LINGER_S", 0.05)

    async def nobody_listens() -> bool:
        return await listeners(url) == []

    async with opened(url) as storage:
        for _ in range(2):
            heard = [storage.hints.listen(everything=bool(number % 2)) for number in range(20)]
            assert await listeners(url) == []
            waiting = [asyncio.create_task(listener.wait(3_600)) for listener in heard]
            only = await some_listener(url)
            await asyncio.wait_for(asyncio.gather(*waiting), 60)
            assert await listeners(url) == [only]
            for listener in heard[1:]:
                listener.close()
            assert await listeners(url) == [only]
            heard[0].close()
            await until(nobody_listens)


async def test_telling_leaves_the_connection_as_it_was(postgres_storage_url: str) -> None:
    """A hint does not wait for the disk, but later writes on the same connection do."""
    async with opened(postgres_storage_url) as storage, overheard(postgres_storage_url) as heard:
        assert isinstance(storage, PostgresStorage)
        async with storage._database.transaction() as transaction:
            lent = transaction._connection.get_server_pid()
            await transaction._connection.execute("SET synchronous_commit = on")
        storage.hints.notify(process=False)
        await heard.something()
        await asyncio.sleep(0.05)
        async with storage._database.transaction() as transaction:
            assert transaction._connection.get_server_pid() == lent
            assert await transaction._connection.fetchval("SHOW synchronous_commit") == "on"


async def test_a_burst_is_told_once(postgres_storage_url: str) -> None:
    """A hundred hints at once become one notification."""
    url = postgres_storage_url
    async with opened(url):
        pass
    async with await lash.open(url) as storage, overheard(url) as heard:
        for _ in range(100):
            storage.hints.notify()
        await heard.something()
        assert len(await heard.so_far()) == 1


async def test_closing_tells_the_last_write(postgres_storage_url: str) -> None:
    """A program that writes and closes at once still sends its hint."""
    url = postgres_storage_url
    async with opened(url) as storage:
        waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick"))
        await some_listener(url)
        async with overheard(url) as heard:
            async with await lash.open(url) as other:
                await other.events.append("p", TICK)
            assert len(await heard.so_far()) == 1
        assert await soon(waiting) == 1


async def test_a_storage_does_not_answer_itself(postgres_storage_url: str) -> None:
    """A storage's own write causes one query for its waiters, and no second one when its notification arrives."""
    url, names = postgres_storage_url, list[str]()
    async with await lash.open(url, on_statement=names.append) as storage, overheard(url) as heard:
        await storage.processes.register(registration("p"))
        await storage.processes.register(registration("q"))
        changes_of(storage)._poll_s = 3_600
        waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick"))
        await some_listener(url)
        await asyncio.sleep(0.1)
        await heard.so_far()
        await asyncio.sleep(0.1)
        names.clear()
        await storage.events.append("q", TICK)
        await heard.something()
        await asyncio.sleep(0.1)
        assert names.count("event_last_sequences") == 0
        storage.hints.notify()
        await heard.something()
        while "event_last_sequences" not in names:  # noqa: ASYNC110 (nothing signals it)
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        assert names.count("event_last_sequences") == 1
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_claims_and_ends_let_no_worker_look(postgres_storage_url: str) -> None:
    """A listener for work gets no hint for a process that is claimed, shown or ended, here or elsewhere."""
    url = postgres_storage_url
    async with await lash.open(url) as storage, await lash.open(url) as other:
        await storage.sessions.create("s")
        await storage.processes.register(process("p"))
        with storage.hints.listen(work=True) as here, other.hints.listen(work=True) as there:
            waiting = [asyncio.create_task(each.wait(3_600)) for each in (here, there)]
            await asyncio.sleep(0.3)
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)
            for listener in (here, there):
                # Drop the hints received so far.
                await listener.wait(0.1)
            waiting = [asyncio.create_task(each.wait(3_600)) for each in (here, there)]
            lease = process_lease(await storage.process_leases.claim("p", owner("ann"), ttl_ms=60_000))
            await storage.process_leases.complete(lease.fence, DONE)
            await asyncio.sleep(0.3)
            assert [each.done() for each in waiting] == [False, False]
            await storage.processes.register(process("q"))
            await asyncio.wait_for(asyncio.gather(*waiting), 60)


@pytest.mark.parametrize("own_pool", [False, True])
async def test_without_listening_the_slow_poll_remains(postgres_storage_url: str, own_pool: bool) -> None:  # noqa: FBT001
    """Behind a pooler, and on a pool of the caller, no connection listens; the poll finds writes of other storages."""
    url = postgres_storage_url
    dsn = PostgresOptions.from_url(url).dsn
    async with asyncpg.create_pool(dsn, min_size=0) as pool, opened(url) as other:
        place = url if own_pool else with_parameters(url, pooler="transaction")
        async with await lash.open(place, pool=pool if own_pool else None) as storage:
            changes_of(storage)._poll_s = 0.05
            waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick"))
            await asyncio.sleep(0.1)
            assert await listeners(url) == []
            await other.events.append("p", TICK)
            assert await soon(waiting) == 1


async def test_idle_waiters_cost_less_than_two_round_trips_a_second(postgres_storage_url: str) -> None:
    """A hundred idle waiters share one query a second, and send no other."""
    async with proxy_before(postgres_storage_url) as (proxy, url), await lash.open(url) as storage:
        ids = [f"p{number}" for number in range(100)]
        for each in ids:
            await storage.processes.register(registration(each))
        waiting = [asyncio.create_task(storage.waiter.wait_event_after(each, "tick")) for each in ids]
        await some_listener(postgres_storage_url)

        async def all_have_looked() -> bool:
            watches = changes_of(storage)._watches
            return len(watches) == 100 and all(watch.state is not None for watch in watches)

        await until(all_have_looked)
        await asyncio.sleep(0.3)
        proxy.round_trips, began = 0, time.monotonic()
        await asyncio.sleep(1.5)
        # A query and the return of its connection each second, of one second more than has passed.
        assert 1 <= proxy.round_trips <= 2 * (time.monotonic() - began + 1)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


@pytest.mark.parametrize("schema", ["public", "s" * 63, 'odd "name"; --', "ä" * 31])
def test_the_channel_fits(schema: str) -> None:
    """The channel name needs no quotes and fits into an identifier, whatever the schema name is."""
    channel = channel_of(schema)
    assert channel.isidentifier()
    assert channel.isascii()
    assert channel == channel.lower()
    assert len(channel) <= 63
    assert channel != channel_of(schema + "x")


async def test_another_storage_is_told_which_session_has_work(postgres_storage_url: str) -> None:
    """A hint carries the tag of the session that received a message or a wake, and none for two sessions."""
    name = "a name, with spaces: \u00e9\u4e2d"
    tag = hashlib.sha256(name.encode()).hexdigest()[:4]
    async with await lash.open(postgres_storage_url) as sender, await lash.open(postgres_storage_url) as other:
        for session_id in (name, "s"):
            await created(sender, session_id)
        await sender.processes.register(external("source", NEWS, wake_session_id=name))
        with other.hints.listen(everything=True) as hints:

            async def heard(*writes: Callable[[], Awaitable[object]]) -> str | None:
                while True:
                    waiting = asyncio.create_task(hints.wait(3_600))
                    if not (await asyncio.wait({waiting}, timeout=0.1))[0]:
                        break
                await asyncio.gather(*(write() for write in writes))
                return (await asyncio.wait_for(waiting, 60)).ready

            assert await heard(lambda: sender.queue.enqueue(late("x", session_id=name))) == tag
            assert await heard(lambda: sender.events.append("source", news("1", key="1"))) == tag

            async def two() -> None:
                for session_id in (name, "s"):
                    sender.hints.notify(process=False, session_id=session_id)

            assert await heard(two) is None
