"""Waiting for the end of a task."""

from __future__ import annotations

import asyncio

import pytest

from lash.base.tasks import ended


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_caller_goes_on_after_the_callbacks_of_a_task(is_over: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    """Callbacks added before run first, also if the task had ended when the wait began."""
    seen: list[str] = []

    async def work() -> None:
        seen.append("work")

    task = asyncio.create_task(work())
    if is_over:
        await asyncio.sleep(0)
        assert task.done()
    task.add_done_callback(lambda _: seen.append("callback"))
    await ended(task)
    assert seen == ["work", "callback"]


async def test_an_error_and_a_cancellation_stay_in_the_task() -> None:
    """The caller gets neither; the task keeps them."""

    async def fail() -> None:
        raise LookupError

    failing, cancelled = asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(3_600))
    await asyncio.sleep(0)
    cancelled.cancel()
    await ended(failing)
    await ended(cancelled)
    assert isinstance(failing.exception(), LookupError)
    assert cancelled.cancelled()


async def test_cancelling_the_caller_leaves_the_task_alone() -> None:
    """The caller ends at once; the task ends when its own work does."""
    go_on = asyncio.Event()
    task = asyncio.create_task(go_on.wait())
    caller = asyncio.create_task(ended(task))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not task.done()
    go_on.set()
    assert await task is True
