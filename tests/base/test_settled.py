"""Writes that end before their caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from lash.adapters.settled import settled

_HERE = pytest.mark.parametrize("starts_here", [False, True])


async def _steps(seen: list[str], error: Exception | None = None) -> str:
    """A write that waits several times."""
    seen.append("began")
    await asyncio.sleep(0)
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.01))
    seen.append("ended")
    if error is not None:
        raise error
    return "written"


@_HERE
async def test_the_result_or_the_error_of_a_write_is_that_of_the_call(*, starts_here: bool) -> None:
    """Both of a write that waits and of one that does not."""

    async def at_once(error: Exception | None = None) -> str:
        if error is not None:
            raise error
        return "written"

    for write in (_steps([]), at_once()):
        assert await settled(write, starts_here=starts_here) == "written"
    for write in (_steps([], ValueError("no")), at_once(ValueError("no"))):
        with pytest.raises(ValueError, match="no"):
            await settled(write, starts_here=starts_here)


@_HERE
async def test_a_cancelled_caller_waits_for_the_write(*, starts_here: bool) -> None:
    """Also if it is cancelled twice; an error of the write is then not reported."""
    for error in (None, ValueError("no")):
        seen: list[str] = []
        caller = asyncio.create_task(settled(_steps(seen, error), starts_here=starts_here))
        for _ in range(3):
            await asyncio.sleep(0)
        assert seen == ["began"]
        for _ in range(2):
            caller.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert seen == ["began", "ended"]


async def test_a_write_that_does_not_wait_takes_no_iteration_of_the_event_loop() -> None:
    """It ends before anything else in the event loop runs."""
    iterations: list[int] = []
    asyncio.get_running_loop().call_soon(iterations.append, 1)

    async def at_once() -> str:
        return "written"

    assert await settled(at_once(), starts_here=True) == "written"
    assert not iterations


async def test_writes_that_start_here_share_a_lock() -> None:
    """A write that has to wait continues in a task of its own, in the order in which they came."""
    lock, order = asyncio.Lock(), list[int]()

    async def write(number: int) -> int:
        async with lock:
            await asyncio.sleep(0)
            order.append(number)
        return number

    calls = (settled(write(number), starts_here=True) for number in range(5))
    assert await asyncio.gather(*calls) == order == [0, 1, 2, 3, 4]
