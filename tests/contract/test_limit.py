"""The contract of named limits: reservations are spaced by the rate, over all callers of a storage."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final

import pytest

import lash
from lash.errors import InvalidInput
from lash.model.limit import LimitState, Rate, Reservation
from lash.stores.storage import Storage
from lash.testing.harness import Harness

MINUTE: Final = Rate(count=60, period_ms=60_000)
"""One a second."""


async def _waits(storage: Storage, count: int, key: str = "", rate: Rate = MINUTE) -> list[int]:
    return [(await storage.limits.reserve("api", key, rate=rate)).wait_ms for _ in range(count)]


async def test_reservations_are_spaced(harness: Harness) -> None:
    """The first starts now, each further one an interval later; an unused limit starts now again."""
    storage = await harness.open()
    now = harness.clock.now_ms()
    assert await storage.limits.reserve("api", rate=MINUTE) == Reservation(at_ms=now, now_ms=now)
    assert await _waits(storage, 3) == [1_000, 2_000, 3_000]
    await harness.clock.advance(3_500)
    assert await _waits(storage, 2) == [500, 1_500]
    await harness.clock.advance(100_000)
    assert await _waits(storage, 2) == [0, 1_000]


async def test_a_burst_starts_at_once(harness: Harness) -> None:
    """After a pause as many as the burst start now; then the interval counts, and unused time adds at most a burst."""
    storage = await harness.open()
    rate = Rate(count=10, period_ms=1_000, burst=3)
    assert await _waits(storage, 5, rate=rate) == [0, 0, 0, 100, 200]
    await harness.clock.advance(500)
    assert await _waits(storage, 4, rate=rate) == [0, 0, 0, 100]


async def test_keys_and_names_are_separate(harness: Harness) -> None:
    """Each key of each name has moments of its own."""
    storage = await harness.open()
    assert await _waits(storage, 2) == [0, 1_000]
    assert await _waits(storage, 2, key="ann") == [0, 1_000]
    assert (await storage.limits.reserve("other", "ann", rate=MINUTE)).wait_ms == 0


async def test_an_interval_is_rounded_up(harness: Harness) -> None:
    """A rate that does not divide its period is never exceeded."""
    storage = await harness.open()
    waits = await _waits(storage, 8, rate=Rate(count=7, period_ms=1_000))
    assert waits == [0, 143, 286, 429, 572, 715, 858, 1_001]


async def test_a_changed_rate_decides_from_then_on(harness: Harness) -> None:
    """Earlier reservations keep their moments; later ones follow them at the new rate."""
    storage = await harness.open()
    assert await _waits(storage, 3) == [0, 1_000, 2_000]
    assert await _waits(storage, 2, rate=Rate(count=10, period_ms=1_000)) == [3_000, 3_100]


async def test_concurrent_callers_share_a_limit(harness: Harness) -> None:
    """Several storages that reserve at once get moments that are all different and an interval apart."""
    storages = [await harness.open() for _ in range(4)]
    reserved = await asyncio.gather(*(each.limits.reserve("api", rate=MINUTE) for each in storages * 5))
    moments = sorted(each.at_ms for each in reserved)
    assert [later - earlier for earlier, later in itertools.pairwise(moments)] == [1_000] * 19


async def test_limits_in_use_are_listed(harness: Harness) -> None:
    """A list has the interval, how many wait, and the next moment; pages follow each other by name and key."""
    storage = await harness.open()
    now = harness.clock.now_ms()
    await _waits(storage, 1)
    await _waits(storage, 3, key="ann")
    await _waits(storage, 2, key="bob", rate=Rate(count=1, period_ms=1_000, burst=2))
    first = LimitState(name="api", key="", interval_us=1_000_000, burst=1, waiting=0, next_at_ms=now + 1_000)
    second = LimitState(name="api", key="ann", interval_us=1_000_000, burst=1, waiting=2, next_at_ms=now + 3_000)
    third = LimitState(name="api", key="bob", interval_us=1_000_000, burst=2, waiting=0, next_at_ms=now + 1_000)
    assert await storage.limits.list() == (first, second, third)
    assert await storage.limits.list(limit=1, after=("api", "")) == (second,)
    assert await storage.limits.list(after=("api", "bob")) == ()
    await harness.clock.advance(1_500)
    assert [(each.waiting, (each.next_at_ms or 0) - now) for each in await storage.limits.list()] == [
        (0, 1_500),
        (1, 3_000),
        (0, 1_500),
    ]


async def test_unused_limits_are_pruned(harness: Harness) -> None:
    """Pruning removes what no reservation uses any more, and changes no later moment."""
    storage = await harness.open()
    for key in ("a", "b", "c"):
        await _waits(storage, 1, key=key)
    await _waits(storage, 3, key="d")
    await harness.clock.advance(1_000)
    assert await storage.limits.prune(limit=2) == 2
    assert await storage.limits.prune() == 1
    assert [each.key for each in await storage.limits.list()] == ["d"]
    assert (await _waits(storage, 1, key="a"), await _waits(storage, 1, key="d")) == ([0], [2_000])


@pytest.mark.parametrize(
    "given",
    [
        {"name": ""},
        {"name": 1},
        {"key": " "},
        {"key": None},
        {"rate": "60/minute"},
        {"rate": Rate(count=0, period_ms=1)},
        {"rate": Rate(count=1, period_ms=0)},
        {"rate": Rate(count=1, period_ms=86_400_001)},
        {"rate": Rate(count=1_000_001, period_ms=1)},
        {"rate": Rate(count=1, period_ms=1, burst=0)},
    ],
    ids=str,
)
async def test_bad_reservations_are_refused(harness: Harness, given: dict[str, Any]) -> None:
    """An invalid name, key or rate is refused before any write."""
    storage = await harness.open()
    arguments = {"name": "api", "key": "", "rate": MINUTE, **given}
    with pytest.raises(InvalidInput):
        await storage.limits.reserve(**arguments)
    assert await storage.limits.list() == ()


async def test_a_reservation_is_one_write(backend_url: str, backend_name: str) -> None:
    """A reservation is one statement on PostgreSQL, and one statement in a transaction on SQLite."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        await storage.limits.reserve("api", rate=MINUTE)
        names.clear()
        await storage.limits.reserve("api", rate=MINUTE)
        assert [name for name in names if name not in {"begin", "commit"}] == ["limit_reserve"]
        assert backend_name == "postgres" or names.count("commit") == 1
