"""Waiting for processes on every backend."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest
import pytest_asyncio

import lash
from lash.backend.hints import LocalHints, LocalListener
from lash.backend.waiter import SharedProcessWaiter
from lash.errors import InvalidInput, ProcessNotFound, ProcessPruned, StorageClosed, WaitTimedOut
from lash.model.process.event import EventDraft, EventType
from lash.model.process.process import ExternalInput, Recovery, Registration, Success
from lash.stores.hints import Hint
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.backends import TESTS_FOLDER
from tests.base.waiting_kit import changes_of

T = TypeVar("T")

DONE = Success(value={"answer": 42})
TICK = EventDraft(event_type="tick")


def registration(process_id: str = "p") -> Registration:
    """Return an external process whose log accepts ticks."""
    types = (EventType(name="tick"), EventType(name="other"))
    return Registration(process_id=process_id, input=ExternalInput(), recovery=Recovery.EXTERNAL, event_types=types)


async def soon(waiting: Awaitable[T]) -> T:
    """Return the awaited result; a wait that hangs fails the test."""
    return await asyncio.wait_for(waiting, 60)


async def parked(storage: Storage, count: int = 1) -> None:
    """Let the tasks of a test run as far as they can without a hint."""
    for _ in range(200):
        if len(changes_of(storage)._watches) == count:
            break
        await asyncio.sleep(0.005)
    assert len(changes_of(storage)._watches) == count


def without_poll(storage: Storage) -> Storage:
    """Make the storage's waiters depend on hints alone, so that a missing one hangs."""
    changes_of(storage)._poll_s = 3_600
    return storage


@pytest_asyncio.fixture(loop_scope="session")
async def storage(harness: Harness) -> Storage:
    """A storage with one process, whose waiters depend on hints."""
    opened = without_poll(await harness.open())
    await opened.processes.register(registration())
    return opened


async def test_an_event_in_the_log_is_returned_at_once(storage: Storage) -> None:
    """The first event of its type behind the number is returned, whatever else is in the log."""
    for event_type in ("other", "tick", "tick"):
        await storage.events.append("p", EventDraft(event_type=event_type))
    assert (await storage.waiter.wait_event_after("p", "tick")).sequence == 2
    assert (await storage.waiter.wait_event_after("p", "tick", 2)).sequence == 3


async def test_an_outcome_that_is_there_is_returned_at_once(storage: Storage) -> None:
    """A wait that starts after the end returns the outcome."""
    await storage.processes.complete("p", DONE)
    assert await storage.waiter.await_outcome("p") == DONE


async def test_an_append_of_another_task_wakes_the_waiter(storage: Storage) -> None:
    """Events of other types do not end the wait; one of its own type does."""
    waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick"))
    await parked(storage)
    await storage.events.append("p", EventDraft(event_type="other"))
    appended = await storage.events.append("p", TICK)
    assert await soon(waiting) == appended.event


async def test_a_completion_of_another_task_wakes_the_waiter(storage: Storage) -> None:
    """All waiters for the end of a process get its outcome."""
    waiting = [asyncio.create_task(storage.waiter.await_outcome("p")) for _ in range(3)]
    await parked(storage, 3)
    await storage.processes.complete("p", DONE)
    assert await soon(asyncio.gather(*waiting)) == [DONE, DONE, DONE]


async def test_a_signal_wakes_the_waiter(storage: Storage) -> None:
    """A signal wakes waiters like any other event."""
    types = (EventType(name="signal.go"),)
    await storage.processes.register(
        Registration(process_id="s", input=ExternalInput(), recovery=Recovery.EXTERNAL, event_types=types)
    )
    waiting = asyncio.create_task(storage.waiter.wait_event_after("s", "signal.go"))
    await parked(storage)
    await storage.events.signal("s", "go", signal_id="1", payload=7)
    assert (await soon(waiting)).payload == 7


async def test_another_storage_wakes_the_waiter(storage: Storage, harness: Harness) -> None:
    """A write of another storage on the same database wakes waiters here, every time."""
    other = await harness.open()
    for number in (1, 2, 3):
        waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick", number - 1))
        await parked(storage)
        await other.events.append("p", TICK)
        assert (await soon(waiting)).sequence == number


async def test_many_waiters_are_told_apart(storage: Storage, harness: Harness) -> None:
    """300 waiters for 300 processes each get the end of their own process."""
    ids = [f"q{number}" for number in range(300)]
    await asyncio.gather(*(storage.processes.register(registration(each)) for each in ids))
    waiting = [asyncio.create_task(storage.waiter.await_outcome(each)) for each in ids]
    await parked(storage, len(ids))
    other = await harness.open()
    await asyncio.gather(*(other.processes.complete(each, Success(value=each)) for each in ids))
    assert await soon(asyncio.gather(*waiting)) == [Success(value=each) for each in ids]


class _Deaf(LocalListener):
    """A listener that never receives a hint."""

    def __init__(self) -> None:
        super().__init__(LocalHints(), everything=False)

    async def wait(self, timeout_s: float) -> Hint:
        await asyncio.sleep(timeout_s)
        return Hint()


class _LostHints:
    """Hints that never arrive."""

    def listen(self, *, everything: bool = False, work: bool = False, by_session: bool = False) -> LocalListener:
        assert not everything
        return _Deaf()

    def notify(
        self,
        *,
        process: bool = True,
        work: bool = True,
        session_id: str | None = None,
        changed: str | None = None,
        later: bool = False,
    ) -> None: ...

    async def close(self) -> None: ...


async def test_a_lost_hint_is_a_delay(storage: Storage, harness: Harness) -> None:
    """Without any hint, the slow poll finds what was written."""
    waiter = SharedProcessWaiter(storage.events, storage.processes, _LostHints(), poll_s=0.02)
    waiting = asyncio.gather(waiter.wait_event_after("p", "tick"), waiter.await_outcome("p"))
    await asyncio.sleep(0.05)
    other = await harness.open()
    appended = await other.events.append("p", TICK)
    await other.processes.complete("p", DONE)
    event, outcome = await soon(waiting)
    assert (event, outcome) == (appended.event, DONE)


async def test_a_pruned_process_ends_the_wait(storage: Storage, harness: Harness) -> None:
    """Waiters for a pruned process fail."""
    await storage.processes.complete("p", DONE)
    await harness.clock.advance(1_000)
    waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick"))
    await parked(storage)
    await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
    with pytest.raises(ProcessPruned, match="'p'"):
        await soon(waiting)
    with pytest.raises(ProcessPruned, match="'p'"):
        await storage.waiter.await_outcome("p")


async def test_an_unknown_process_is_an_error(storage: Storage) -> None:
    """Waiting for a process that was never registered raises ProcessNotFound."""
    with pytest.raises(ProcessNotFound, match="'missing'"):
        await storage.waiter.wait_event_after("missing", "tick")
    with pytest.raises(ProcessNotFound, match="'missing'"):
        await storage.waiter.await_outcome("missing")


async def test_a_wait_ends_with_its_time(storage: Storage) -> None:
    """A wait that times out leaves nothing behind, and another one finds later events."""
    with pytest.raises(WaitTimedOut, match="'tick'"):
        await storage.waiter.wait_event_after("p", "tick", timeout_s=0.01)
    with pytest.raises(WaitTimedOut, match="end"):
        await storage.waiter.await_outcome("p", timeout_s=0.01)
    await parked(storage, 0)
    await storage.events.append("p", TICK)
    assert (await storage.waiter.wait_event_after("p", "tick", timeout_s=0.01)).sequence == 1


async def test_a_cancelled_wait_leaves_nothing_behind(storage: Storage) -> None:
    """After a wait is cancelled the storage works and closes as before."""
    waiting = asyncio.create_task(storage.waiter.await_outcome("p"))
    await parked(storage)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await parked(storage, 0)
    await storage.processes.complete("p", DONE)
    assert await storage.waiter.await_outcome("p") == DONE


async def test_closing_ends_every_wait(storage: Storage) -> None:
    """Waits under way and later ones raise StorageClosed."""
    waiting = [
        asyncio.create_task(storage.waiter.wait_event_after("p", "tick")),
        asyncio.create_task(storage.waiter.await_outcome("p")),
    ]
    await parked(storage, 2)
    await storage.close()
    for each in waiting:
        with pytest.raises(StorageClosed):
            await soon(each)
    with pytest.raises(StorageClosed):
        await storage.waiter.await_outcome("p")


async def test_the_last_sequences_of_many_take_one_query(harness: Harness) -> None:
    """One query answers for any number of processes; unknown ones are omitted."""
    names: list[str] = []
    storage = await harness.open(on_statement=names.append)
    ids = [f"q{number}" for number in range(250)]
    await asyncio.gather(*(storage.processes.register(registration(each)) for each in ids))
    await storage.events.append("q7", TICK)
    await storage.events.append("q7", TICK)
    names.clear()
    found = await storage.events.last_sequences([*ids, "missing"])
    assert found == {each: 2 if each == "q7" else 0 for each in ids}
    assert names.count("event_last_sequences") == 1
    assert await storage.events.last_sequences([]) == {}
    with pytest.raises(InvalidInput, match="process_ids"):
        await storage.events.last_sequences("q7")


@contextlib.asynccontextmanager
async def appender(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run another operating system process that appends its input to process ``p``."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.proof.concurrency.event_appender", url, "p"),
        cwd=TESTS_FOLDER.parent,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert await soon(child.stdout.readline()) == b"ready\n"
        yield child
        assert child.stdin is not None
        child.stdin.close()
        assert await soon(child.wait()) == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"])
async def test_another_process_wakes_the_waiter(backend_url: str, backend_name: str) -> None:
    """A write of another operating system process wakes waiters here, without a poll."""
    async with await lash.open(backend_url) as storage:
        without_poll(storage)
        await storage.processes.register(registration())
        async with appender(backend_url) as child:
            assert child.stdin is not None
            for number in (1, 2, 3):
                waiting = asyncio.create_task(storage.waiter.wait_event_after("p", "tick", number - 1))
                await parked(storage)
                child.stdin.write(b"tick\n")
                assert (await soon(waiting)).sequence == number
