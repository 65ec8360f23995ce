"""Calls into the loop of another thread whose first step runs in the thread of their caller."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lash.base import in_place
from lash.base.in_place import InPlaceLoop, new_loop
from lash.base.portal import Portal
from tests.runtime.worker_kit import until

PATIENCE_S = 20.0


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Portal]:
    """A portal whose callers wait for their turn for as long as a slow machine needs."""
    monkeypatch.setattr(in_place, "_PATIENCE_S", PATIENCE_S)
    given = Portal("lash-test", new_loop=new_loop)
    given.open()
    yield given
    given.close()


def loop_of(portal: Portal) -> InPlaceLoop:
    loop = portal.call(asyncio.get_running_loop)
    assert isinstance(loop, InPlaceLoop)
    return loop


async def is_waiting(loop: InPlaceLoop) -> None:
    """Return when the loop's own thread waits for events."""

    async def waits() -> bool:
        return loop.is_waiting

    await until(waits)


def eventually(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0)


@pytest.fixture
def thread_changes(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was passed from one thread to the loop of another."""
    passed: list[object] = []
    original = asyncio.BaseEventLoop.call_soon_threadsafe

    def count(loop: asyncio.BaseEventLoop, callback: Callable[..., object], *args: Any, **options: Any) -> object:  # noqa: ANN401 (passed on)
        passed.append(callback)
        return original(loop, callback, *args, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", count)
    return passed


async def test_a_call_that_waits_for_nothing_changes_no_thread(portal: Portal, thread_changes: list[object]) -> None:
    """It runs in the caller's thread as a task of the other loop; the caller's own loop and task are then as before."""
    here, task, loop = asyncio.get_running_loop(), asyncio.current_task(), loop_of(portal)

    async def work() -> tuple[bool, bool, bool]:
        own = asyncio.current_task()
        assert own is not None
        return threading.get_ident() == caller, asyncio.get_running_loop() is loop, own is not task

    caller = threading.get_ident()
    await is_waiting(loop)
    thread_changes.clear()
    for _ in range(10):
        assert await portal.await_in_place(work) == (True, True, True)
        assert asyncio.get_running_loop() is here
        assert asyncio.current_task() is task
        # The next iteration of the caller's loop.
        await asyncio.sleep(0)
    assert thread_changes == []


async def test_a_call_that_waits_goes_on_in_the_loop_s_own_thread(portal: Portal) -> None:
    """Its first step runs here, all others there; the caller's loop goes on meanwhile."""
    threads, caller = [], threading.get_ident()
    event, event_seen = asyncio.Event(), threading.Event()
    here = asyncio.get_running_loop()

    async def goes_on() -> None:
        await event.wait()
        event_seen.set()

    async def work() -> str:
        threads.append(threading.get_ident())
        for _ in range(2):
            await asyncio.sleep(0.001)
            threads.append(threading.get_ident())
        here.call_soon_threadsafe(event.set)
        await asyncio.to_thread(event_seen.wait, PATIENCE_S)
        return "done"

    loop = loop_of(portal)
    own = portal.call(threading.get_ident)
    await is_waiting(loop)
    others = asyncio.create_task(goes_on())
    assert await portal.await_in_place(work) == "done"
    assert threads == [caller, own, own]
    await others


async def test_a_sleeping_loop_wakes_for_what_a_call_has_left(portal: Portal) -> None:
    """Timers, files and callbacks that a call registers in place take effect, though the loop waited without end."""
    loop, ran = loop_of(portal), {name: threading.Event() for name in ("timer", "file", "callback")}
    reading, writing = socket.socketpair()

    async def work() -> None:
        loop.call_later(0.001, ran["timer"].set)
        loop.add_reader(reading, ran["file"].set)
        for _ in range(10):
            loop.call_soon(ran["callback"].set)

    with reading, writing:
        for name, wanted in ran.items():
            for each in ran.values():
                each.clear()
            await is_waiting(loop)
            await portal.await_in_place(work)
            writing.send(b"x")
            assert await asyncio.to_thread(wanted.wait, PATIENCE_S), name
            portal.call(loop.remove_reader, reading)


async def test_a_later_timer_does_not_wake_the_loop(portal: Portal, thread_changes: list[object]) -> None:
    """A timer that is due after the end of the loop's wait takes no change of threads."""
    loop = loop_of(portal)
    first = portal.call(loop.call_later, 3_600, threading.Event().set)
    await is_waiting(loop)
    thread_changes.clear()

    async def work() -> asyncio.TimerHandle:
        return loop.call_later(7_200, threading.Event().set)

    later = await portal.await_in_place(work)
    assert thread_changes == []
    for timer in (first, later):
        portal.call(timer.cancel)


def test_events_of_a_file_that_was_closed_meanwhile_are_forgotten() -> None:
    """A wait returns no event for a file that took the number of the one that the event was about."""
    selector = in_place._WaitingSelector()
    old, writing = socket.socketpair()
    new, _other = socket.socketpair()
    number = old.fileno()
    selector.register(number, selectors.EVENT_READ, "old")
    with ThreadPoolExecutor(1) as pool, old, writing, new, _other:
        events = pool.submit(selector.select, PATIENCE_S)
        eventually(lambda: selector.is_waiting)
        assert selector.turn.acquire(timeout=PATIENCE_S)
        writing.send(b"x")
        eventually(lambda: not selector.is_waiting)
        # The thread has the event of the old file, and waits for its turn.
        selector.unregister(number)
        os.dup2(new.fileno(), number)
        selector.register(number, selectors.EVENT_READ, "new")
        selector.turn.release()
        assert events.result(PATIENCE_S) == []
    selector.close()


async def test_what_was_sent_earlier_starts_earlier(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call does not run in place while something that was sent has not reached the loop's thread."""
    loop, order, held = loop_of(portal), list[str](), list[Callable[[], object]]()
    await is_waiting(loop)
    original = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", held.append)
    portal.send(lambda: order.append("sent"))
    call = asyncio.ensure_future(portal.await_in_place(order.append, "called"))
    await asyncio.sleep(0)
    monkeypatch.setattr(loop, "call_soon_threadsafe", original)
    assert order == []
    for callback in held:
        original(callback)
    await call
    assert order == ["sent", "called"]


async def test_calls_of_several_tasks_come_together(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first in an iteration runs in place; the others go to the thread, as do all while one of them is there."""
    caller, loop = threading.get_ident(), loop_of(portal)

    async def is_here() -> bool:
        return threading.get_ident() == caller

    await is_waiting(loop)
    assert await asyncio.gather(*(portal.await_in_place(is_here) for _ in range(3))) == [True, False, False]
    await asyncio.sleep(0)
    monkeypatch.setattr(in_place, "_TOGETHER_S", PATIENCE_S)
    released = threading.Event()
    waiting = asyncio.ensure_future(portal.await_in_place(asyncio.to_thread, released.wait, PATIENCE_S))
    for _ in range(3):
        await asyncio.sleep(0)
    await is_waiting(loop)
    assert not await portal.await_in_place(is_here)
    released.set()
    assert await waiting
    await is_waiting(loop)
    assert await portal.await_in_place(is_here)


async def test_a_call_that_waits_for_long_keeps_no_other_from_its_place(portal: Portal) -> None:
    """An observer in the loop's thread does not count as a call at the same time."""
    caller, loop = threading.get_ident(), loop_of(portal)

    async def wait() -> None:
        await asyncio.sleep(3_600)

    observer = asyncio.ensure_future(portal.await_call(wait))
    await asyncio.sleep(0.02)

    async def runs_here() -> bool:
        await is_waiting(loop)
        return bool(await portal.await_in_place(threading.get_ident) == caller)

    await until(runs_here)
    observer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await observer


async def test_a_task_that_only_calls_lets_others_run(portal: Portal) -> None:
    """Calls in place end without an iteration of the caller's loop; there is one every few milliseconds."""
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            await asyncio.sleep(0)
            others += 1

    task = asyncio.create_task(other())
    calls = 0
    while others < 3:
        assert calls < 1_000_000
        calls += 1
        await portal.await_in_place(threading.get_ident)
    task.cancel()


async def test_a_loop_that_stopped_in_its_iteration_blocks_no_other(portal: Portal) -> None:
    """The last iteration of a loop never ends; tasks of other loops still call in place."""
    loop = loop_of(portal)
    await is_waiting(loop)

    def other() -> None:
        caller = asyncio.new_event_loop()
        assert caller.run_until_complete(_called(portal)) == threading.get_ident()
        # It is neither run again nor closed before the next call.
        callers.append(caller)

    callers: list[asyncio.AbstractEventLoop] = []
    await asyncio.to_thread(other)
    await asyncio.sleep(0.01)
    await is_waiting(loop)
    assert await portal.await_in_place(threading.get_ident) == threading.get_ident()
    callers[0].close()


async def _called(portal: Portal) -> object:
    return await portal.await_in_place(threading.get_ident)


def test_no_two_threads_use_the_loop_at_once(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops in eight threads change a number without a lock, in place and in the loop's thread; no change is lost."""
    total, rounds, interval = 0, 200, sys.getswitchinterval()
    threads = set()

    async def always(_admission: in_place.Admission) -> bool:
        return True

    monkeypatch.setattr(in_place.Admission, "may_try", always)

    async def add() -> None:
        nonlocal total
        seen = total
        threads.add(threading.get_ident())
        # Another thread gets the interpreter here.
        time.sleep(0)  # noqa: ASYNC251
        total = seen + 1

    async def calls() -> None:
        for _ in range(rounds):
            await portal.await_in_place(add)
            await asyncio.sleep(0)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(asyncio.run, calls()) for _ in range(8)]:
                future.result()
    finally:
        sys.setswitchinterval(interval)
    assert total == 8 * rounds
    assert len(threads) > 1


async def test_an_async_generator_belongs_to_the_loop_in_which_it_began(portal: Portal) -> None:
    """One that is abandoned by a call in place is closed in the loop of the call."""
    loop, closed_in = loop_of(portal), list[object]()
    closed = threading.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            closed_in.append(asyncio.get_running_loop())
            closed.set()

    async def begin() -> None:
        assert await anext(numbers()) == 1

    await is_waiting(loop)
    await portal.await_in_place(begin)
    assert await asyncio.to_thread(closed.wait, PATIENCE_S)
    assert closed_in == [loop]


async def test_an_interrupt_would_not_end_in_the_middle_of_a_call(portal: Portal) -> None:
    """Where Ctrl-C raises KeyboardInterrupt, calls of the main thread go to the loop's thread."""
    assert threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert await portal.await_in_place(threading.get_ident) != threading.get_ident()
    finally:
        signal.signal(signal.SIGINT, handler)


async def test_a_loop_in_debug_mode_is_used_by_its_own_thread_alone(portal: Portal) -> None:
    """In debug mode asyncio checks that its loops are used by one thread."""
    loop = loop_of(portal)
    portal.call(loop.set_debug, True)
    assert await portal.await_in_place(threading.get_ident) != threading.get_ident()


async def test_the_program_chooses_the_kind_of_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of another kind, as of uvloop, are used as they are, and calls change threads."""

    class Chosen(asyncio.SelectorEventLoop):
        """A loop of the program's policy."""

    monkeypatch.setattr(asyncio, "new_event_loop", Chosen)
    portal = Portal("lash-test", new_loop=new_loop)
    portal.open()
    assert isinstance(portal.call(asyncio.get_running_loop), Chosen)
    assert await portal.await_in_place(threading.get_ident) != threading.get_ident()
    portal.close()
