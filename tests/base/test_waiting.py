"""The hub of waiters, on a log and hints made by hand."""

from __future__ import annotations

import asyncio
import pickle
from typing import Protocol

import msgspec
import pytest

from lash.backend.waiter import SharedProcessWaiter
from lash.errors import (
    Advice,
    CorruptData,
    InvalidInput,
    ProcessNotFound,
    ProcessPruned,
    StorageClosed,
    StoreUnavailable,
    WaitTimedOut,
)
from lash.model.process.process import ProcessStatus, Projection, Success
from tests.base.waiting_kit import DONE, Log, made


class Wait(Protocol):
    """One of the two kinds of waits."""

    async def __call__(
        self, waiter: SharedProcessWaiter, process_id: str = "p", *, timeout_s: float | None = None
    ) -> object: ...


async def event(waiter: SharedProcessWaiter, process_id: str = "p", *, timeout_s: float | None = None) -> object:
    """Wait for the first event and return its number."""
    return (await waiter.wait_event_after(process_id, "tick", timeout_s=timeout_s)).sequence


async def outcome(waiter: SharedProcessWaiter, process_id: str = "p", *, timeout_s: float | None = None) -> object:
    """Wait for the end and return the outcome."""
    ended = await waiter.await_outcome(process_id, timeout_s=timeout_s)
    assert isinstance(ended, Success)
    return ended.value


both = pytest.mark.parametrize(("wait", "fact"), [(event, 1), (outcome, "done")], ids=["event", "outcome"])


def started(wait: Wait, waiter: SharedProcessWaiter, process_id: str = "p") -> asyncio.Task[object]:
    return asyncio.create_task(wait(waiter, process_id))


async def soon(task: asyncio.Task[object]) -> object:
    """Return the task's result; a wait that hangs fails the test."""
    return await asyncio.wait_for(task, 60)


async def at_rest(log: Log) -> None:
    """Wait until the hub waits for a hint and nothing else is left to run."""
    await asyncio.wait_for(log.hints.resting.wait(), 60)
    for _ in range(5):
        await asyncio.sleep(0)


def hubs() -> int:
    """Return how many hubs run."""
    return sum(task.get_name() == "lash-change-waiter" for task in asyncio.all_tasks())


@both
async def test_what_is_there_is_returned_at_once(wait: Wait, fact: object) -> None:
    """A fact that is in the log costs one read, and no task."""
    waiter, log = made("p")
    log.append("p")
    assert await wait(waiter) == fact
    assert (log.looks, log.queries, log.hints.waits) == (1, [], 0)


@both
async def test_a_waiter_is_woken_by_a_hint(wait: Wait, fact: object) -> None:
    """An event appended during a wait is returned, and the hub ends with the last waiter."""
    waiter, log = made("p")
    waiting = started(wait, waiter)
    await at_rest(log)
    assert hubs() == 1
    log.append("p")
    assert await soon(waiting) == fact
    await asyncio.sleep(0)
    assert hubs() == 0


async def test_who_waits_for_an_end_is_told_without_a_look() -> None:
    """A storage that ends a process wakes its own waiters directly; each gets its own copy of the outcome."""
    waiter, log = made("p", "q")
    waiting = [asyncio.create_task(waiter.await_outcome("p")) for _ in range(2)]
    other = asyncio.create_task(waiter.await_outcome("q"))
    await at_rest(log)
    looks = log.looks
    running = await log.get("p")
    assert running is not None
    projection = Projection(status=ProcessStatus.COMPLETED, outcome=Success(value={"a": [1]}))
    ended = msgspec.structs.replace(running, projection=projection)
    waiter.deliver_end(ended)
    first, second = [await asyncio.wait_for(each, 60) for each in waiting]
    assert isinstance(first, Success)
    assert isinstance(second, Success)
    assert first.value == second.value == {"a": [1]}
    assert first.value is not second.value
    assert log.looks == looks + 1
    waiter.deliver_end(ended)
    await asyncio.sleep(0)
    assert not other.done()
    assert waiter._ends.keys() == {"q"}
    other.cancel()
    await asyncio.wait({other})
    assert not waiter._ends


async def test_what_runs_here_is_not_asked_for() -> None:
    """While this storage holds the lease, waiting for the end costs no read, and hints no query."""
    waiter, log = made("p", "q", poll_s=3_600)
    waiter.note_lease("p", 60_000)
    waiting = asyncio.create_task(waiter.await_outcome("p"))
    await at_rest(log)
    log.hints.notify()
    await at_rest(log)
    assert (log.looks, log.queries) == (0, [])
    other = asyncio.create_task(waiter.await_outcome("q"))
    await at_rest(log)
    log.append("q")
    assert await soon(other) == DONE
    assert all(asked == {"q"} for asked in log.queries)
    waiter.note_free("p")
    log.append("p")
    assert await soon(waiting) == DONE


@pytest.mark.parametrize("ttl_ms", [60_000, 1])
async def test_the_end_of_what_ran_here_is_found_if_nobody_tells(ttl_ms: int) -> None:
    """An end by another storage is found at the next poll, or at once where the lease has expired."""
    waiter, log = made("p", minds_time=True, poll_s=0.05)
    waiter.note_lease("p", ttl_ms)
    waiting = asyncio.create_task(waiter.await_outcome("p"))
    await asyncio.sleep(0)
    log.append("p")
    assert await soon(waiting) == DONE


async def test_old_leases_are_forgotten() -> None:
    """Leases that were never released do not accumulate."""
    waiter, _ = made("p")
    for number in range(3_000):
        waiter.note_lease(f"gone-{number}", 0)
    waiter.note_lease("p", 60_000)
    assert len(waiter._leases) <= 1_000
    assert waiter._holds_lease("p")


@both
@pytest.mark.parametrize("number", [1, 2])
async def test_nothing_is_lost_between_looking_and_waiting(wait: Wait, fact: object, number: int) -> None:
    """An event right after a read, with the only hint there will be, wakes the waiter."""
    waiter, log = made("p")

    async def append(looks: int) -> None:
        if looks == number:
            log.append("p")

    log.during_look = append
    assert await soon(started(wait, waiter)) == fact


@both
async def test_a_wake_during_a_look_counts(wait: Wait, fact: object) -> None:
    """If the hub used up the only hint before a read's outdated answer arrived, the waiter reads again."""
    waiter, log = made("p")

    async def append(looks: int) -> None:
        if looks == 2:
            log.append("p")
            await at_rest(log)

    log.during_look = append
    assert await soon(started(wait, waiter)) == fact


@both
async def test_nothing_is_lost_while_the_hub_asks(wait: Wait, fact: object) -> None:
    """A hint during a query, too late for its answer, leads to another query."""
    waiter, log = made("p")
    waiting = started(wait, waiter)
    await at_rest(log)
    asked = len(log.queries)
    log.after_query = lambda queries: log.append("p") if queries == asked + 1 else None
    log.hints.notify()
    assert await soon(waiting) == fact


@both
async def test_a_lost_hint_is_a_delay(wait: Wait, fact: object) -> None:
    """Without any hint the slow poll finds what was appended."""
    waiter, log = made("p", minds_time=True)
    waiting = started(wait, waiter)
    await at_rest(log)
    log.append("p", hint=False)
    assert await soon(waiting) == fact


async def test_a_thousand_waiters_cost_one_query() -> None:
    """A hint leads to one query for all, and only waiters whose process moved read again."""
    ids = [f"p{number}" for number in range(1_000)]
    waiter, log = made(*ids)
    waiting = {each: started(outcome, waiter, each) for each in ids}
    await at_rest(log)
    looks, queries = log.looks, len(log.queries)

    log.hints.notify()
    await at_rest(log)
    assert (log.looks, log.queries[queries:]) == (looks, [set(ids)])

    log.append("p7")
    assert await soon(waiting["p7"]) == "done"
    await at_rest(log)
    assert (log.looks, len(log.queries)) == (looks + 1, queries + 2)
    await waiter.close()
    await asyncio.gather(*waiting.values(), return_exceptions=True)


async def test_event_waiters_do_not_look_on_every_tick() -> None:
    """Hints about other processes cost no read, even for waiters that do not know their process's position."""
    waiter, log = made("p", "q")
    waiting = started(event, waiter)
    await at_rest(log)
    log.hints.notify()
    await at_rest(log)
    looks = log.looks
    log.append("q")
    await at_rest(log)
    log.append("q")
    await at_rest(log)
    assert log.looks == looks
    log.append("p")
    assert await soon(waiting) == 1


async def test_waiters_of_one_process_ask_for_it_once() -> None:
    """The query names each process once, however many waiters it has, and all of them are woken."""
    waiter, log = made("p")
    waiting = [started(wait, waiter) for wait in (event, outcome, event)]
    await at_rest(log)
    log.append("p")
    assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [1, "done", 1]
    assert {frozenset(query) for query in log.queries} == {frozenset({"p"})}


@both
async def test_a_cancelled_waiter_leaves_nothing_behind(wait: Wait, fact: object) -> None:
    """The hub no longer queries the process of a cancelled waiter, and ends with the last one."""
    waiter, log = made("p", "q")
    staying, leaving = started(wait, waiter, "p"), started(wait, waiter, "q")
    await at_rest(log)
    leaving.cancel()
    await asyncio.wait({leaving})
    queries = len(log.queries)
    log.hints.notify()
    await at_rest(log)
    assert log.queries[queries:] == [{"p"}]
    staying.cancel()
    await asyncio.wait({staying})
    await asyncio.sleep(0)
    assert (leaving.cancelled(), staying.cancelled(), hubs()) == (True, True, 0)


@both
async def test_waiting_works_again_after_the_hub_ended(wait: Wait, fact: object) -> None:
    """The first waiter after a pause starts a new hub."""
    waiter, log = made("p", "q")
    for process_id in ("p", "q"):
        waiting = started(wait, waiter, process_id)
        await at_rest(log)
        log.append(process_id)
        assert await soon(waiting) == fact


@both
async def test_a_query_that_fails_for_now_is_repeated(wait: Wait, fact: object) -> None:
    """A retryable error is retried without another hint, and the waiter does not see it."""
    waiter, log = made("p")
    waiting = started(wait, waiter)
    await at_rest(log)
    queries = len(log.queries)
    log.failures = [StoreUnavailable("busy"), StoreUnavailable("busy")]
    log.append("p")
    assert await soon(waiting) == fact
    assert len(log.queries) == queries + 3


@both
async def test_a_query_that_fails_for_good_ends_the_waits(wait: Wait, fact: object) -> None:
    """On a broken store each waiter gets its own error, and may wait again."""
    waiter, log = made("p", "q")
    waiting = [started(wait, waiter, each) for each in ("p", "q")]
    await at_rest(log)
    log.failures = [CorruptData("broken")]
    log.hints.notify()
    first, second = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
    assert isinstance(first, CorruptData)
    assert isinstance(second, CorruptData)
    assert first is not second

    again = started(wait, waiter)
    await at_rest(log)
    log.append("p")
    assert await soon(again) == fact


@both
async def test_a_process_that_vanishes_ends_the_wait(wait: Wait, fact: object) -> None:
    """A waiter for a pruned process gets an error."""
    waiter, log = made("p")
    waiting = started(wait, waiter)
    await at_rest(log)
    log.prune("p")
    with pytest.raises(ProcessPruned, match="'p'"):
        await soon(waiting)


@both
async def test_an_unknown_process_is_an_error(wait: Wait, fact: object) -> None:
    """Waiting for a process that was never registered raises."""
    waiter, log = made()
    with pytest.raises(ProcessNotFound, match="'p'"):
        await wait(waiter)
    assert log.hints.waits == 0


@both
@pytest.mark.parametrize("timeout_s", [0, 0.001])
async def test_the_time_of_a_wait_ends(wait: Wait, fact: object, timeout_s: float) -> None:
    """A wait that times out raises a retryable error that names what was awaited, and leaves no task."""
    waiter, _log = made("p")
    with pytest.raises(WaitTimedOut, match="'p'") as caught:
        await wait(waiter, timeout_s=timeout_s)
    await asyncio.sleep(0)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.advice, caught.value.timeout_s, hubs()) == (Advice.RETRY, timeout_s, 0)


@both
async def test_the_last_look_is_at_the_end_of_the_time(wait: Wait, fact: object) -> None:
    """An event that is in the log at the deadline is returned, even if its hint was lost."""
    waiter, log = made("p")
    waiting = asyncio.create_task(wait(waiter, timeout_s=0.25))
    await at_rest(log)
    log.append("p", hint=False)
    assert await soon(waiting) == fact


@both
@pytest.mark.parametrize("timeout_s", [-1, float("nan")])
async def test_a_time_that_is_none_is_refused(wait: Wait, fact: object, timeout_s: float) -> None:
    """A negative number, or a value that is not a number, is refused."""
    waiter, log = made("p")
    with pytest.raises(InvalidInput, match="timeout_s"):
        await wait(waiter, timeout_s=timeout_s)
    assert log.looks == 0


@both
async def test_closing_ends_every_wait(wait: Wait, fact: object) -> None:
    """Waits under way and later ones raise StorageClosed."""
    waiter, log = made("p")
    waiting = started(wait, waiter)
    await at_rest(log)
    await waiter.close()
    await waiter.close()
    for each in (waiting, started(wait, waiter)):
        with pytest.raises(StorageClosed):
            await soon(each)
    assert hubs() == 0


def test_a_timeout_crosses_into_another_process() -> None:
    """A pickled WaitTimedOut keeps its message and its fields."""
    error = WaitTimedOut("p", "end", 1.5)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), {"process_id": "p", "awaited": "end", "timeout_s": 1.5})
