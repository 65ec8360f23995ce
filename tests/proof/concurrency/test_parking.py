"""Two storages race parking against wakes: no reason to run is lost, and no ended process is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias

import pytest
import pytest_asyncio

import lash
from lash.model.process.process import ProcessAcquired
from lash.stores.storage import Storage
from tests.contract.work_state import ANN, BOB, child, park, ready, run
from tests.factories.process import DONE, GO, NOTE, process

ROUNDS: Final = {"sqlite": 60, "postgres": 300}
"""On PostgreSQL both storages write concurrently; on SQLite one after the other, in varying order."""
Race: TypeAlias = Callable[[Storage, str], Awaitable[object]]
Pair: TypeAlias = tuple[Storage, Storage]

pytestmark = [pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True), pytest.mark.timeout(120)]


@pytest_asyncio.fixture
async def pair(backend_url: str) -> AsyncIterator[Pair]:
    """Two storages on one database."""
    async with await lash.open(backend_url) as one, await lash.open(backend_url) as two:
        yield one, two


async def _child_ends(storage: Storage, process_id: str) -> None:
    held = await run(storage, f"{process_id}-child", BOB)
    await storage.process_leases.complete(held.lease.fence, DONE)


WAKERS: Final[dict[str, Race]] = {
    "a child ends under its lease": _child_ends,
    "a child is ended": lambda storage, process_id: storage.processes.complete(f"{process_id}-child", DONE),
    "a signal": lambda storage, process_id: storage.events.signal(process_id, "go", signal_id="1"),
}


@pytest.mark.parametrize("waker", WAKERS)
async def test_parking_loses_no_reason_to_run(pair: Pair, backend_name: str, waker: str) -> None:
    """In either order, the process is ready afterwards, and a run of it sees the reason."""
    mine, theirs = pair
    for number in range(ROUNDS[backend_name]):
        process_id = await _parent(mine, number)
        held = await run(mine, process_id, ANN)
        racers: list[Awaitable[object]] = [park(mine, held), WAKERS[waker](theirs, process_id)]
        # Every third round starts at the same moment, the others a step apart.
        await asyncio.gather(*(_after(number % 3 * place, racer) for place, racer in enumerate(racers)))
        assert process_id in await ready(mine), number
        again = await run(mine, process_id, ANN)
        assert (again.wake_seq, again.lease.fencing) == (1, held.lease.fencing + 1)
        await mine.process_leases.complete(again.lease.fence, DONE)
        if process_id + "-child" in await ready(mine):
            await mine.processes.complete(process_id + "-child", DONE)


@pytest.mark.parametrize("racer", ["child", "park"])
async def test_what_ended_is_never_ready(pair: Pair, backend_name: str, racer: str) -> None:
    """A process whose end races the end of its child, or its own parking, is not on the work list."""
    mine, theirs = pair
    for number in range(ROUNDS[backend_name]):
        process_id = await _parent(mine, number)
        held = await run(mine, process_id, ANN)
        if racer == "child":
            other: Awaitable[object] = mine.processes.complete(f"{process_id}-child", DONE)
        else:
            await mine.processes.complete(f"{process_id}-child", DONE)
            other = park(mine, held, 0)
        await asyncio.gather(other, theirs.processes.complete(process_id, DONE))
        assert await ready(mine) == [], number


async def test_a_burst_wakes_a_process_that_parks_again_and_again(pair: Pair, backend_name: str) -> None:
    """A process that parks whenever its log holds nothing new has read every signal in the end."""
    mine, theirs = pair
    await mine.processes.register(process("p", NOTE, GO))
    count, read = 200, 0

    async def send() -> None:
        for number in range(count):
            await theirs.events.signal("p", "go", signal_id=f"{number}")

    sending = asyncio.create_task(send())
    while read < count:
        held = await mine.process_leases.claim("p", ANN, ttl_ms=60_000)
        assert isinstance(held, ProcessAcquired)
        read = await mine.events.count_through("p", "signal.go", 2**62)
        parked = await park(mine, held)
        if parked and sending.done() and read < count:
            # All are sent: a signal neither seen nor counted as a reason would leave the process parked.
            assert await ready(mine) == ["p"]
    await sending
    assert read == count


async def _parent(storage: Storage, number: int) -> str:
    """Register a process and a child that it started."""
    process_id = f"p{number}"
    await storage.processes.register(process(process_id, NOTE, GO))
    await storage.processes.register(child(f"{process_id}-child", process_id))
    return process_id


async def _after(steps: int, call: Awaitable[object]) -> object:
    for _ in range(steps):
        await asyncio.sleep(0)
    return await call
