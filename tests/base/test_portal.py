"""Calls into the event loop of another thread, from tasks of other event loops."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator

import pytest

from lash.base.in_place import new_loop
from lash.base.portal import Portal
from lash.errors import ConfigError, InvalidInput, StorageClosed

PATIENCE_S = 20.0


Calls = Callable[..., Awaitable[object]]


@pytest.fixture(params=["threads", "in place"])
def portal(request: pytest.FixtureRequest) -> Iterator[Portal]:
    """A portal that changes threads for each call, and one that runs first steps in place."""
    given = Portal("lash-test", new_loop=new_loop) if request.param == "in place" else Portal("lash-test")
    given.open()
    yield given
    given.close()


@pytest.fixture(params=["await_call", "await_in_place"])
def call(request: pytest.FixtureRequest, portal: Portal) -> Calls:
    method: Calls = getattr(portal, request.param)
    return method


async def test_a_task_awaits_a_call_in_the_other_loop(call: Calls) -> None:
    """The result arrives, the caller's context variables are seen, and the caller's loop goes on meanwhile."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("the caller's")
    here, ran = asyncio.get_running_loop(), asyncio.Event()

    async def work(number: int, *, add: int) -> tuple[int, str, bool]:
        # Ends only if the caller's loop runs while it waits.
        here.call_soon_threadsafe(ran.set)
        return number + add, variable.get(), asyncio.get_running_loop() is here

    assert await call(work, 1, add=2) == (3, "the caller's", False)
    await ran.wait()


async def test_a_cancelled_call_has_ended_when_the_caller_continues(call: Calls) -> None:
    """The function is cancelled in its loop; CancelledError is raised in the caller after its clean-up."""
    started, events = threading.Event(), []

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            await asyncio.sleep(0.02)
            events.append("cleaned up")

    async def caller() -> None:
        try:
            await call(work)
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    task = asyncio.create_task(caller())
    await asyncio.to_thread(started.wait, PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["cleaned up", "cancelled"]


async def test_a_call_that_survives_its_cancellation_does_not_hide_it(call: Calls) -> None:
    """A function that returns in spite of its cancellation does not make asyncio.timeout miss its end."""

    async def stubborn() -> str:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            return "done"
        return "slept"

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await call(stubborn)


async def test_errors_are_raised_and_leave_no_cycle(call: Calls) -> None:
    """The error is the same object; nothing keeps it alive after the caller has dropped it."""

    class Marked(InvalidInput):
        """An error that can be watched."""

    async def fail() -> None:
        raise Marked("no further")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(Marked) as caught:
            await call(fail)
        watched = weakref.ref(caught.value)
        del caught
        for _ in range(3):
            await call(asyncio.sleep, 0)
        assert watched() is None
    finally:
        gc.enable()


async def test_a_call_that_the_end_of_the_loop_cancels_is_refused(portal: Portal, call: Calls) -> None:
    """Closing the portal ends calls in flight with StorageClosed, and refuses later ones."""
    started = threading.Event()

    async def work() -> None:
        started.set()
        await asyncio.sleep(3_600)

    task = asyncio.ensure_future(call(work))
    await asyncio.to_thread(started.wait, PATIENCE_S)
    await asyncio.to_thread(portal.close)
    with pytest.raises(StorageClosed):
        await task
    with pytest.raises(StorageClosed):
        await call(work)


async def test_a_call_from_inside_the_loop_is_refused(portal: Portal, call: Calls) -> None:
    """The loop cannot wait for itself."""

    async def outer() -> None:
        await call(asyncio.sleep, 0)

    def blocking() -> None:
        portal.call(asyncio.sleep, 0)

    for inside in (outer, blocking):
        with pytest.raises(ConfigError, match="would block the event loop"):
            await call(inside)


def test_a_loop_that_is_closed_meanwhile_cancels_its_calls(portal: Portal) -> None:
    """A loop that ends without waiting for its task leaves no call running, and no log entry."""
    started, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            cancelled.set()

    loop = asyncio.new_event_loop()
    call = portal.await_call(work)
    task = loop.create_task(call)
    loop.run_until_complete(asyncio.sleep(0))
    started.wait(PATIENCE_S)
    # What happens to a pending task when its closed loop is collected.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    call.close()
    loop.close()
    assert cancelled.wait(PATIENCE_S)


def test_what_is_sent_runs_before_later_calls(portal: Portal) -> None:
    """A function that is sent without a wait has run when a later call starts."""
    order: list[int] = []
    for number in range(3):
        portal.send(lambda number=number: order.append(number))  # type: ignore[misc]
    assert portal.call(lambda: list(order)) == [0, 1, 2]
