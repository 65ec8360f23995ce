"""The contract of limits on concurrency: places are held by live leases, and given in the order of the requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import lash
from lash.errors import InvalidInput, LeaseLost
from lash.model.lease import LeaseFence, ResourceKind, session_resource
from lash.model.limit import LimitState, PlaceState, Rate
from lash.model.process.process import ProcessAcquired
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.process import registered
from tests.factories.session import acquired, owner

TTL = 60_000
ANN = owner("ann")


async def _sessions(storage: Storage, *names: str, ttl_ms: int = TTL) -> list[LeaseFence]:
    """Return the fences of new sessions."""
    fences = []
    for name in names:
        await storage.sessions.create(name)
        fences.append(acquired(await storage.leases.claim(name, ANN, ttl_ms=ttl_ms)).fence)
    return fences


async def _take(storage: Storage, fence: LeaseFence, concurrency: int = 1, *, key: str = "", step: str = "") -> bool:
    return await storage.limits.take("api", key, concurrency=concurrency, fence=fence, step=step)


async def _line(storage: Storage, key: str = "") -> list[tuple[str, str]]:
    return [(each.resource.id, each.state.value) for each in await storage.limits.places("api", key)]


async def test_places_are_given_in_order(harness: Harness) -> None:
    """So many as the limit permits hold a place; the others wait, and get theirs in the order in which they asked."""
    storage, other = await harness.open(), await harness.open()
    a, b, c, d = await _sessions(storage, "a", "b", "c", "d")
    assert [await _take(storage, each, 2) for each in (a, b, c, d)] == [True, True, False, False]
    assert await _line(other) == [("a", "held"), ("b", "held"), ("c", "waiting"), ("d", "waiting")]
    assert await other.limits.leave("api", fence=b) is True
    assert await other.limits.leave("api", fence=b) is False
    assert await _line(storage) == [("a", "held"), ("c", "offered"), ("d", "waiting")]
    # A place that is offered is kept for its run.
    assert await _take(storage, d, 2) is False
    assert await _take(storage, c, 2) is True
    await storage.limits.leave("api", fence=a)
    await storage.limits.leave("api", fence=c)
    assert await _take(storage, d, 2) is True
    await storage.limits.leave("api", fence=d)
    assert await _line(storage) == []


async def test_a_place_belongs_to_a_step(harness: Harness) -> None:
    """Taking it again changes nothing; another step, key or name has another place."""
    storage = await harness.open()
    (a,) = await _sessions(storage, "a")
    assert [await _take(storage, a, step=step) for step in ("x", "x", "y")] == [True, True, False]
    assert await _take(storage, a, key="ann", step="x") is True
    assert await storage.limits.take("other", concurrency=1, fence=a, step="x") is True
    assert await _line(storage) == [("a", "held"), ("a", "waiting")]
    assert await storage.limits.leave("api", fence=a, step="x") is True
    assert await _take(storage, a, step="y") is True


async def test_a_parked_run_is_woken(harness: Harness) -> None:
    """A parked process that is offered a place is on the work list, and takes it when it runs again."""
    storage = await harness.open()
    (a,) = await _sessions(storage, "a")
    await registered(storage, "p")
    got = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
    assert isinstance(got, ProcessAcquired)
    assert await _take(storage, a) is True
    assert await _take(storage, got.lease.fence) is False
    await storage.process_leases.park(got.lease.fence, wake_seq=got.wake_seq, until_ms=None)
    poll = await storage.work.poll(sessions=1, processes=1, owner=ANN)
    assert poll.process_ids == ()
    await storage.limits.leave("api", fence=a)
    poll = await storage.work.poll(sessions=1, processes=1, owner=ANN)
    assert poll.process_ids == ("p",)
    again = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
    assert isinstance(again, ProcessAcquired)
    assert await _take(storage, again.lease.fence) is True
    (place,) = await storage.limits.places("api")
    assert (place.resource.kind, place.state) == (ResourceKind.PROCESS, PlaceState.HELD)


@pytest.mark.parametrize("how", ["expired", "released", "deleted", "lost"])
async def test_a_place_ends_with_the_lease(harness: Harness, how: str) -> None:
    """A holder whose lease is gone holds nothing, however it went; a check passes its place on at the latest."""
    storage = await harness.open()
    a, b = await _sessions(storage, "a", "b")
    await storage.leases.renew(b, ttl_ms=10 * TTL)
    assert [await _take(storage, each) for each in (a, b)] == [True, False]
    assert await storage.limits.pass_on() == 0
    if how == "released":
        await storage.leases.release(a)
    elif how == "deleted":
        await storage.sessions.delete("a")
    elif how == "lost":
        await storage.leases.release(a)
        acquired(await storage.leases.claim("a", owner("bob"), ttl_ms=10 * TTL))
    await harness.clock.advance(TTL)
    poll = await storage.work.poll(sessions=0, processes=0, owner=ANN)
    assert poll.timers_due
    assert await storage.limits.pass_on() == 1
    assert await _line(storage) == [("b", "offered")]
    assert await _take(storage, b) is True
    assert await storage.limits.pass_on() == 0


async def test_a_renewed_lease_keeps_its_place(harness: Harness) -> None:
    """A check that comes while the holder lives changes nothing, and is due again when the lease would expire."""
    storage = await harness.open()
    a, b = await _sessions(storage, "a", "b")
    assert [await _take(storage, each) for each in (a, b)] == [True, False]
    await harness.clock.advance(TTL - 1)
    await storage.leases.renew(a, ttl_ms=TTL)
    await harness.clock.advance(1)
    assert await storage.limits.pass_on() == 1
    assert await _line(storage) == [("a", "held"), ("b", "waiting")]
    poll = await storage.work.poll(sessions=0, processes=0, owner=ANN)
    assert (poll.timers_due, poll.next_at_ms) == (False, harness.clock.now_ms() + TTL - 1)


async def test_a_later_run_keeps_the_place(harness: Harness) -> None:
    """A run that continues after a crash has the place of the one before it, unless it was passed on."""
    storage = await harness.open()
    a, b = await _sessions(storage, "a", "b")
    assert [await _take(storage, each) for each in (a, b)] == [True, False]
    await storage.leases.release(a)
    later = acquired(await storage.leases.claim("a", ANN, ttl_ms=TTL)).fence
    assert await _take(storage, later) is True
    # The run before it must not give back what this one holds.
    assert await storage.limits.leave("api", fence=a) is False
    with pytest.raises(LeaseLost):
        await _take(storage, a)
    assert await _line(storage) == [("a", "held"), ("b", "waiting")]


async def test_an_offer_has_an_end(harness: Harness) -> None:
    """A run that does not take an offered place loses it to the next, and may come again behind all others."""
    storage = await harness.open()
    a, b, c = await _sessions(storage, "a", "b", "c", ttl_ms=10 * TTL)
    assert [await _take(storage, each) for each in (a, b, c)] == [True, False, False]
    await storage.limits.leave("api", fence=a)
    await harness.clock.advance(29_999)
    assert await storage.limits.pass_on() == 0
    await harness.clock.advance(1)
    assert await storage.limits.pass_on() == 1
    assert await _line(storage) == [("c", "offered")]
    assert await _take(storage, b) is False
    assert await _take(storage, c) is True
    assert await _line(storage) == [("c", "held"), ("b", "waiting")]


async def test_a_run_can_stop_waiting(harness: Harness) -> None:
    """Leaving the line gives the place to the next; an offer that is not wanted is passed on at once."""
    storage = await harness.open()
    a, b, c, d = await _sessions(storage, "a", "b", "c", "d")
    assert [await _take(storage, each) for each in (a, b, c, d)] == [True, False, False, False]
    assert await storage.limits.leave("api", fence=b) is True
    await storage.limits.leave("api", fence=a)
    assert await _line(storage) == [("c", "offered"), ("d", "waiting")]
    assert await storage.limits.leave("api", fence=c) is True
    assert await _line(storage) == [("d", "offered")]


async def test_another_concurrency_counts_for_those_that_wait(harness: Harness) -> None:
    """A larger one gives places at once; with a smaller one the holders finish, and then fewer run."""
    storage = await harness.open()
    a, b, c, d = await _sessions(storage, "a", "b", "c", "d")
    assert [await _take(storage, each) for each in (a, b, c)] == [True, False, False]
    assert await _take(storage, d, 3) is False
    assert await _line(storage) == [("a", "held"), ("b", "offered"), ("c", "offered"), ("d", "waiting")]
    assert [await _take(storage, each, 3) for each in (b, c)] == [True, True]
    assert await _take(storage, d, 1) is False
    for each in (a, b):
        await storage.limits.leave("api", fence=each)
    assert await _line(storage) == [("c", "held"), ("d", "waiting")]
    await storage.limits.leave("api", fence=c)
    assert await _take(storage, d, 1) is True


async def test_a_caller_waits_in_memory(harness: Harness) -> None:
    """A caller that waits for an offer returns when it comes, from another storage too."""
    storage, other = await harness.open(), await harness.open()
    a, b = await _sessions(storage, "a", "b")
    assert [await _take(storage, each) for each in (a, b)] == [True, False]
    waiting = asyncio.create_task(storage.limits.offered("api", fence=b))
    await asyncio.sleep(0)
    await other.limits.leave("api", fence=a)
    async with asyncio.timeout(60):
        await waiting
    assert await _take(storage, b) is True
    # There is nothing to wait for.
    await storage.limits.offered("api", fence=a)


async def test_many_take_places_at_once(harness: Harness) -> None:
    """However many ask at the same time, no more than the limit permits hold a place, and each gets one in the end."""
    storages = [await harness.open() for _ in range(3)]
    fences = await _sessions(storages[0], *(f"s{number}" for number in range(12)))
    left = list(fences)
    while left:
        shared = zip(left, storages * 12, strict=False)
        got = await asyncio.gather(*(_take(storage, fence, 3) for fence, storage in shared))
        holders = [fence for fence, held in zip(left, got, strict=True) if held]
        assert len(holders) == min(3, len(left))
        await asyncio.gather(*(storages[1].limits.leave("api", fence=fence) for fence in holders))
        left = [fence for fence in left if fence not in holders]
    assert await _line(storages[2]) == []


async def test_lines_are_listed_and_pruned(harness: Harness) -> None:
    """A list has how many hold and wait, beside the rate of the same name; an empty line is pruned after an hour."""
    storage = await harness.open()
    a, b = await _sessions(storage, "a", "b", ttl_ms=100 * TTL)
    now = harness.clock.now_ms()
    assert [await _take(storage, each) for each in (a, b)] == [True, False]
    await storage.limits.reserve("api", rate=Rate(count=1, period_ms=1_000))
    await storage.limits.take("zoo", "k", concurrency=5, fence=a)
    rated = LimitState(name="api", key="", interval_us=1_000_000, burst=1, next_at_ms=now + 1_000)
    first = LimitState(**{**_fields(rated), "concurrency": 1, "held": 1, "waiting": 1})
    second = LimitState(name="zoo", key="k", concurrency=5, held=1)
    assert await storage.limits.list() == (first, second)
    assert await storage.limits.list(limit=1) == (first,)
    assert await storage.limits.list(after=("api", "")) == (second,)
    places = await storage.limits.places("api")
    assert [each.since_ms for each in places] == [now, now]
    assert await storage.limits.places("api", after=places[0].number) == places[1:]
    assert await storage.limits.places("api", limit=1) == places[:1]
    await storage.limits.leave("zoo", "k", fence=a)
    await harness.clock.advance(3_600_001)
    assert await storage.limits.prune() == 2
    assert [each.name for each in await storage.limits.list()] == ["api"]


@pytest.mark.parametrize(
    "given",
    [
        {"name": ""},
        {"key": " "},
        {"concurrency": 0},
        {"concurrency": 10_001},
        {"concurrency": "4"},
        {"fence": session_resource("a")},
        {"step": None},
    ],
    ids=str,
)
async def test_bad_requests_are_refused(harness: Harness, given: dict[str, Any]) -> None:
    """An invalid name, key, number or step is refused before any write."""
    storage = await harness.open()
    (a,) = await _sessions(storage, "a")
    arguments = {"name": "api", "key": "", "concurrency": 1, "fence": a, "step": "", **given}
    with pytest.raises(InvalidInput):
        await storage.limits.take(**arguments)
    assert await storage.limits.list() == ()


async def test_a_place_is_one_transaction(backend_url: str, backend_name: str) -> None:
    """Taking and giving back a place are one transaction each; with 200 waiting it is as many statements as with 10."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        a, b = await _sessions(storage, "a", "b")
        names.clear()
        assert await _take(storage, a) is True
        assert names.count("commit") == 1
        assert len(names) <= (9 if backend_name != "postgres" else 6)
        counts = []
        for first, last in ((0, 10), (10, 200)):
            for number in range(first, last):
                await _take(storage, b, step=f"{number}")
            names.clear()
            assert await _take(storage, a, step="own") is False
            await storage.limits.leave("api", fence=a, step="own")
            counts.append(sorted(names))
        assert counts[1] == counts[0]
        assert counts[0].count("commit") == 2


def _fields(state: LimitState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in state.__struct_fields__}
