"""Observing a session: values, their order, cursors, and gaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest
import pytest_asyncio

import lash
from lash.errors import InvalidInput, StorageClosed
from lash.model.activity import (
    ActivityDraft,
    ActivityPage,
    Committed,
    Gap,
    ObserveCursor,
    Observed,
    ProcessChanged,
    QueueChanged,
    QueueMark,
    TurnActivity,
)
from lash.model.gap import GapReason
from lash.model.process.process import ChangeKind
from lash.model.value import JSON
from lash.runtime.observe.stream import current_cursor, observe
from lash.stores.storage import Storage
from tests.contract.queue_state import late, queued
from tests.factories.process import DONE, event, process
from tests.factories.session import commit, created, node, started
from tests.raw import raw

LIMIT_S = 20


@pytest_asyncio.fixture
async def storage(backend_url: str) -> AsyncIterator[Storage]:
    async with await lash.open(backend_url) as opened:
        yield opened


async def show(storage: Storage, *payloads: JSON, session_id: str = "s") -> int:
    return await storage.activity.append(session_id, [ActivityDraft(turn_id="t", payload=each) for each in payloads])


async def until(
    storage: Storage, cursor: str | None, last: Callable[[Observed], bool], *, session_id: str = "s"
) -> list[Observed]:
    """Observe up to and including the first wanted value."""
    told: list[Observed] = []
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, session_id, cursor)) as stream:
        async for observed in stream:
            told.append(observed)
            if last(observed):
                break
    return told


def shows(payload: JSON) -> Callable[[Observed], bool]:
    return lambda observed: isinstance(observed, TurnActivity) and observed.payload == payload


def payloads(told: list[Observed]) -> list[JSON]:
    return [observed.payload for observed in told if isinstance(observed, TurnActivity)]


async def eventful(storage: Storage) -> None:
    """Make everything happen in session s that can be observed."""
    session = storage.session("s")
    await show(storage, "a", "b")
    await session.commit(commit(1, node("n1", "a")))
    await show(storage, "c")
    await queued(storage, late("hello"))
    await storage.processes.register(process("p", wake_session_id="s"))
    await storage.processes.register(process("hidden"))
    await storage.events.append("p", event())
    await storage.processes.complete("p", DONE)
    await show(storage, "end")


def is_end_of_p(observed: Observed) -> bool:
    return isinstance(observed, ProcessChanged) and observed.sequence == 2


async def test_everything_is_told(storage: Storage) -> None:
    """Activity, commits, the queue and processes are observed, activity and commits in order."""
    await started(storage)
    cursor = await current_cursor(storage, "s")
    await eventful(storage)
    told = await until(storage, cursor, is_end_of_p)
    assert [type(each) for each in told] == [
        *(TurnActivity, TurnActivity, Committed, TurnActivity, TurnActivity, QueueChanged),
        *(ProcessChanged, ProcessChanged, ProcessChanged),
    ]
    assert payloads(told) == ["a", "b", "c", "end"]
    assert [each.revision for each in told if isinstance(each, Committed)] == [2]
    (queue,) = [each.queue for each in told if isinstance(each, QueueChanged)]
    assert (queue.queued, queue.claimed, queue.dead) == (1, 0, 0)
    changes = [each for each in told if isinstance(each, ProcessChanged)]
    assert [(each.process_id, each.kind, each.sequence) for each in changes] == [
        ("p", ChangeKind.REGISTERED, None),
        ("p", ChangeKind.EVENT, 1),
        ("p", ChangeKind.EVENT, 2),
    ]
    assert len({each.cursor for each in told}) == len(told)


async def test_every_cursor_goes_on_without_a_hole(storage: Storage) -> None:
    """An observer that reconnects with any cursor gets exactly the rest."""
    await started(storage)
    cursor = await current_cursor(storage, "s")
    await eventful(storage)
    told = await until(storage, cursor, is_end_of_p)
    for index, observed in enumerate(told[:-1]):
        assert await until(storage, observed.cursor, is_end_of_p) == told[index + 1 :]
    await show(storage, "later")
    assert payloads(await until(storage, told[-1].cursor, shows("later"))) == ["later"]


async def test_an_observer_is_told_while_it_waits(storage: Storage) -> None:
    """Past values come first, then new ones, without a gap between them."""
    await started(storage)
    cursor = await current_cursor(storage, "s")
    await show(storage, "before")
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, "s", cursor)) as stream:
        assert shows("before")(await anext(stream))
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await show(storage, "live")
        assert shows("live")(await waiting)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await storage.session("s").commit(commit(1, node("n", "a")))
        told = await waiting
        assert isinstance(told, Committed)
        assert told.revision == 2


async def test_without_a_cursor_it_begins_now(storage: Storage) -> None:
    """Values from before the first request are not yielded."""
    await started(storage)
    await show(storage, "before")
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, "s")) as stream:
        waiting = asyncio.ensure_future(anext(stream))
        first = asyncio.ensure_future(_show_until(storage, waiting))
        told = await waiting
        await first
    assert isinstance(told, TurnActivity)
    assert isinstance(told.payload, int)


async def _show_until(storage: Storage, done: asyncio.Future[Observed]) -> None:
    number = 0
    while not done.done():
        await show(storage, number)
        number += 1


async def test_a_session_that_does_not_exist_yet_is_waited_for(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observer that starts before the first message misses nothing."""
    cursor = await current_cursor(storage, "s")
    read, both_wait, waiting = storage.session_waiter.read, asyncio.Event(), set[ObserveCursor | None]()

    async def noted_read(session_id: str, after: ObserveCursor | None) -> ActivityPage:
        try:
            return await read(session_id, after)
        finally:
            waiting.add(after)
            if len(waiting) == 2:
                both_wait.set()

    monkeypatch.setattr(storage.session_waiter, "read", noted_read)
    watching = asyncio.ensure_future(until(storage, cursor, shows("a")))
    without_cursor = asyncio.ensure_future(until(storage, None, shows("a")))
    await asyncio.wait_for(both_wait.wait(), LIMIT_S)
    await started(storage)
    await show(storage, "a")
    assert payloads(await watching) == payloads(await without_cursor) == ["a"]


async def test_a_deleted_session_ends_the_stream(storage: Storage) -> None:
    """Observers that start after the deletion end too."""
    await started(storage)
    cursor = await current_cursor(storage, "s")
    await show(storage, "a")
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, "s", cursor)) as stream:
        assert shows("a")(await anext(stream))
        await storage.sessions.delete("s")
        assert [observed async for observed in stream] == []
    assert [observed async for observed in observe(storage, "s", cursor)] == []


async def test_another_life_of_the_session_is_a_gap(storage: Storage) -> None:
    """The cursor of a deleted session yields a gap on its successor, then values from now on."""
    await started(storage)
    await show(storage, "old")
    cursor = await current_cursor(storage, "s")
    await storage.sessions.delete("s")
    await created(storage)
    await show(storage, "x", "y", "z")
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, "s", cursor)) as stream:
        gap = await anext(stream)
        assert isinstance(gap, Gap)
        assert gap.reason is GapReason.UNAVAILABLE
        await show(storage, "new")
        assert shows("new")(await anext(stream))
    assert payloads(await until(storage, gap.cursor, shows("new"))) == ["new"]


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_activity_that_the_database_lost_is_a_gap(storage: Storage, backend_url: str) -> None:
    """After a crash of PostgreSQL the unlogged activity is empty and restarts; the observer gets a gap."""
    await started(storage)
    await show(storage, "a", "b")
    cursor = await current_cursor(storage, "s")
    await raw(backend_url, "DELETE FROM lash_activity")
    await raw(backend_url, "DELETE FROM lash_activity_tails")
    assert await show(storage, "c", "d", "e") == 3
    told = await until(storage, cursor, lambda _observed: True)
    assert [type(each) for each in told] == [Gap]


@pytest.mark.parametrize("cursor", ["", "x", "lashsc1:1:1:s", 7])
async def test_what_is_no_cursor_is_refused_at_once(storage: Storage, cursor: str) -> None:
    """An invalid cursor is refused before anything is read, even if the session does not exist."""
    with pytest.raises(InvalidInput):
        observe(storage, "never", cursor)


async def test_a_cursor_of_another_session_is_refused_at_once(storage: Storage) -> None:
    """The error names both sessions."""
    await created(storage, "other")
    with pytest.raises(InvalidInput, match="'other', not to 's'"):
        observe(storage, "s", await current_cursor(storage, "other"))


async def test_a_slow_observer_gets_a_gap_and_slows_nobody(storage: Storage) -> None:
    """Appends continue while an observer is idle; it then gets a gap, and continues from now."""
    await started(storage)
    cursor = await current_cursor(storage, "s")
    await show(storage, "first")
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, "s", cursor)) as stream:
        assert shows("first")(await anext(stream))
        for number in range(6):
            await show(storage, *[number] * 500)
        gap = await anext(stream)
        assert isinstance(gap, Gap)
        assert (gap.reason, gap.revision) == (GapReason.TRIMMED, 1)
        await show(storage, "newest")
        assert shows("newest")(await anext(stream))


async def test_pruned_changes_of_processes_are_a_gap(storage: Storage) -> None:
    """An observer that was away while the change feed was pruned gets a gap."""
    await started(storage)
    cursor = await current_cursor(storage, "s")
    await storage.processes.register(process("p", wake_session_id="s"))
    await storage.processes.prune(ended_before_ms=0, through_cursor=(await storage.activity.read("s")).newest.change)
    (gap,) = await until(storage, cursor, lambda _observed: True)
    assert isinstance(gap, Gap)
    assert gap.reason is GapReason.TRIMMED
    await storage.events.append("p", event())
    (change,) = await until(storage, gap.cursor, lambda _observed: True)
    assert isinstance(change, ProcessChanged)


async def test_the_queue_is_told_as_it_stands(storage: Storage) -> None:
    """An observer sees each state of the queue that it reads, and none of them twice."""
    await started(storage)
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, "s", await current_cursor(storage, "s"))) as stream:
        (batch,) = await queued(storage, late("a"))
        told = await anext(stream)
        assert isinstance(told, QueueChanged)
        assert told.queue == QueueMark(queued=1, newest_seq=batch.seq)
        await storage.queue.cancel("s", batch.batch_id)
        told = await anext(stream)
        assert isinstance(told, QueueChanged)
        assert told.queue == QueueMark()


async def test_many_observers_see_the_same(storage: Storage) -> None:
    """Each observer gets everything, independently of the others."""
    await started(storage)
    cursor = await current_cursor(storage, "s")
    watching = [asyncio.ensure_future(until(storage, cursor, shows(99))) for _ in range(20)]
    for number in range(100):
        await show(storage, number)
    for told in await asyncio.gather(*watching):
        assert payloads(told) == list(range(100))


async def test_closing_the_storage_ends_the_stream(backend_url: str) -> None:
    """It raises StorageClosed instead of hanging."""
    storage = await lash.open(backend_url)
    await started(storage)
    stream = observe(storage, "s")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.05)
    await storage.close()
    with pytest.raises(StorageClosed):
        async with asyncio.timeout(LIMIT_S):
            await waiting
