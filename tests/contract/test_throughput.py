"""The contract of throughput: what ended in each interval."""

from __future__ import annotations

from typing import Any

import pytest

from lash.errors import InvalidInput
from lash.model.maintenance import Throughput
from lash.model.process.process import Failure, Success
from lash.model.queue import Boundary, Claim
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, TTL, late
from tests.factories.process import external
from tests.factories.session import acquired, chain, commit, created, owner

MINUTE = 60_000


async def _buried(storage: Storage) -> None:
    """Enqueue a message and give it up."""
    await storage.queue.enqueue(late("hello"))
    lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=LONG))
    claim = await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=1)
    assert isinstance(claim, Claim)
    await storage.queue.bury(claim, reason="no")


async def test_what_ended_is_counted_by_interval_in_one_statement(harness: Harness) -> None:
    """Intervals without anything are there too; the last one contains now."""
    names: list[str] = []
    storage = await harness.open(on_statement=names.append)
    await created(storage)
    clock = harness.clock
    await clock.advance(MINUTE - clock.now_ms() % MINUTE)
    start = clock.now_ms()
    await storage.session("s").commit(commit(0, *chain("a"), turn_id="t1"))
    await storage.session("s").commit(commit(1, *chain("b", after="a"), turn_id="t2"))
    await _buried(storage)
    await clock.advance(2 * MINUTE)
    for name, outcome in (("good", Success(value=1)), ("bad", Failure(code="no", message="no"))):
        await storage.processes.register(external(name))
        await storage.processes.complete(name, outcome)
    names.clear()
    found = await storage.throughput(since_ms=start + 5)
    assert [name for name in names if name.startswith("maintenance")] == ["maintenance_throughput"]
    assert found == (
        Throughput(at_ms=start, turns=2, dead=1),
        Throughput(at_ms=start + MINUTE),
        Throughput(at_ms=start + 2 * MINUTE, processes=2, failed=1),
    )
    assert [each.failures for each in found] == [1, 0, 1]
    assert await storage.throughput(since_ms=start, until_ms=start + MINUTE) == found[:1]
    assert await storage.throughput(since_ms=start, until_ms=start) == ()
    whole = await storage.throughput(since_ms=start, interval_ms=1_000 * MINUTE)
    assert [(each.turns, each.dead, each.processes, each.failed) for each in whole] == [(2, 1, 2, 1)]


@pytest.mark.parametrize(
    "bad", [{"since_ms": -1}, {"interval_ms": 0}, {"until_ms": "now"}, {}, {"until_ms": 10**9}], ids=str
)
async def test_bad_ranges_are_refused(harness: Harness, bad: dict[str, Any]) -> None:
    """A range has at most 10,000 intervals, also if it ends now."""
    storage = await harness.open()
    with pytest.raises(InvalidInput):
        await storage.throughput(**({"since_ms": 0, "interval_ms": MINUTE} | bad))
