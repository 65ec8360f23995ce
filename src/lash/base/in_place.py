"""An event loop that callers in other threads may use while its own thread waits for events.

A call into the loop of another thread changes threads twice, which takes 40 to 60 µs. A short read takes less. So the
caller's thread runs the first step of the call, *in place*, if the loop's own thread waits for events. A few iterations
of the loop follow, if few callbacks were scheduled. A call that has not ended then goes on in the loop's own thread.

One lock, the *turn*, is held by the thread that uses the loop. The loop's own thread releases it only while it waits
for events. So callbacks still run one at a time, and an object that belongs to the loop needs no other lock. A caller
waits for the turn no longer than a change of threads takes; then the call goes to the loop's thread.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import signal
import sys
import threading
import time
from asyncio.tasks import _enter_task, _leave_task
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Ts = TypeVarTuple("Ts")

_PATIENCE_S: Final = 0.0001
"""For how long a call waits for a callback of the loop to end, such as a timer; a change of threads takes as long."""
_CHECK_SIGNALS_S: Final = 0.1
"""How often the handler of Ctrl-C is looked up, which takes some microseconds."""
_FEW: Final = 4
"""Up to so many callbacks that the first step schedules run in place: waking the loop's thread for them costs more."""
_ROUNDS: Final = 4
"""How many iterations of the loop follow the first step in place: enough for a write that takes a quick thread."""
_MAX_HOLD_S: Final = 0.002
"""For how long one task may make calls in place without a pause, before other tasks of its loop run."""
_TOGETHER_S: Final = 0.02
"""Calls that are in the loop's thread for longer wait for something, and share nothing with later ones."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, in which calls may run in place unless the program has chosen another kind of loop."""
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop:
        return loop
    loop.close()
    return InPlaceLoop()


class InPlaceLoop(asyncio.SelectorEventLoop):
    """An event loop whose callbacks other threads may run while it waits for events."""

    def __init__(self) -> None:
        self._waiting = _WaitingSelector()
        self._here: deque[asyncio.Handle] | None = None
        """While a call runs in place, the callbacks that were scheduled meanwhile."""
        self._must_wake = False
        super().__init__(self._waiting)

    @property
    def is_waiting(self) -> bool:
        """Whether the loop's own thread waits for events. From any thread."""
        return self._waiting.is_waiting

    def try_in_place(self, begin: Callable[[], asyncio.Task[Any] | None]) -> bool:
        """Run the first step of the task that ``begin`` creates in the calling thread, which runs another event loop.

        Return False, with nothing done, if the loop is in use, or if ``begin`` has returned None.
        """
        waiting = self._waiting
        if self.get_debug() or not waiting.turn.acquire(timeout=_PATIENCE_S):
            return False
        try:
            # The loop's thread may want its turn back, and must not wait for one caller after the other.
            return waiting.is_waiting and self._run_as_running_loop(begin)
        finally:
            waiting.turn.release()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback; only in the thread that uses the loop."""
        if self._here is None:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        self._here.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for a time; only in the thread that uses the loop."""
        if self._here is not None and when < self._waiting.until:
            self._must_wake = True
        return super().call_at(when, callback, *args, context=context)

    def _run_as_running_loop(self, begin: Callable[[], asyncio.Task[Any] | None]) -> bool:
        caller, task, hooks = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()
        self._must_wake = False
        self._here = deque()
        if task is not None:
            _leave_task(caller, task)
        asyncio._set_running_loop(self)  # noqa: SLF001 (documented for event loops)
        sys.set_asyncgen_hooks(*self._waiting.asyncgen_hooks)
        try:
            return self._run_first_step(begin, self._here)
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(caller)  # noqa: SLF001
            if task is not None:
                _enter_task(caller, task)
            self._leave_the_rest()

    def _run_first_step(self, begin: Callable[[], asyncio.Task[Any] | None], here: deque[asyncio.Handle]) -> bool:
        # The task is not kept: its error refers to this frame, as to all below it.
        if begin() is None:
            return False
        for _ in range(_ROUNDS):
            if len(here) > _FEW:
                break
            _run(here)
        return True

    def _leave_the_rest(self) -> None:
        """Give the loop's own thread the callbacks that have not run, and wake it if it would sleep for too long."""
        handles, self._here = self._here or (), None
        for handle in handles:
            super().call_soon(_run_handle, handle)
        if handles or self._must_wake or self._waiting.has_changed:
            self.call_soon_threadsafe(_do_nothing)


class _WaitingSelector(selectors.DefaultSelector):
    """Releases the turn while it waits for events."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = threading.Lock()
        self.turn.acquire()
        self.is_waiting = False
        self.until = 0.0
        """When the wait ends if no event comes."""
        self.has_changed = False
        """Whether files were registered differently during the wait."""
        self.asyncgen_hooks = sys.get_asyncgen_hooks()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events, and return those of the files that are registered now."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        self.until = math.inf if timeout is None else time.monotonic() + timeout
        self.asyncgen_hooks = sys.get_asyncgen_hooks()
        self.has_changed = False
        self.is_waiting = True
        self.turn.release()
        try:
            events = super().select(timeout)
        finally:
            # Callers that get the turn first give it back.
            self.is_waiting = False
            self.turn.acquire()
        # An event may be about a file that was closed meanwhile, and its number may belong to another file now.
        return super().select(0) if self.has_changed else events

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        self.has_changed = True
        return super().register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        self.has_changed = True
        return super().unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        self.has_changed = True
        return super().modify(fileobj, events, data)


class Admission:
    """Chooses the calls that may run in place.

    Calls that several tasks make at once go to the loop's thread, where they share transactions and statements. A task
    that makes many calls in place gives the other tasks of its loop their turn.
    """

    def __init__(self) -> None:
        self._iteration: _Iteration | None = None
        self._in_thread: set[object] = set()
        """The calls that are left to the loop's thread and have not ended."""
        self._went_at = 0.0
        self._may_be_interrupted = False
        self._check_signals_at = 0.0

    async def may_try(self) -> bool:
        """Return whether the caller's thread may run the first step of its next call."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        if (self._in_thread and now < self._went_at + _TOGETHER_S) or self._is_interruptible(now):
            return False
        caller, current = id(asyncio.current_task(loop)), self._iteration
        # The iteration of another loop may never end, because that loop was stopped.
        if current is None or (current.loop is not loop and now > current.began + _MAX_HOLD_S):
            self._iteration = current = _Iteration(loop, caller, now)
            loop.call_soon(self._end, current)
            return True
        if current.caller != caller:
            return False
        if now > current.began + _MAX_HOLD_S:
            await asyncio.sleep(0)
            return await self.may_try()
        return True

    def note_gone(self, call: object) -> None:
        """Note that a call ends in the loop's thread."""
        self._in_thread.add(call)
        self._went_at = time.monotonic()

    def note_ended(self, call: object) -> None:
        """Note that a call has ended."""
        self._in_thread.discard(call)

    def _is_interruptible(self, now: float) -> bool:
        """Return whether Ctrl-C would raise KeyboardInterrupt in the middle of a call; `asyncio.run` prevents that."""
        if threading.get_ident() != threading.main_thread().ident:
            return False
        if now >= self._check_signals_at:
            self._may_be_interrupted = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            self._check_signals_at = now + _CHECK_SIGNALS_S
        return self._may_be_interrupted

    def _end(self, iteration: _Iteration) -> None:
        if self._iteration is iteration:
            self._iteration = None


class _Iteration(NamedTuple):
    """The iteration of a loop in which a task has made a call, and when."""

    loop: asyncio.AbstractEventLoop
    caller: int
    began: float


def _run(handles: deque[asyncio.Handle]) -> None:
    """Run the callbacks that are there, and leave the ones that they schedule."""
    for _ in range(len(handles)):
        _run_handle(handles.popleft())


def _run_handle(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()  # noqa: SLF001 (what an event loop does with its handles)
    # The error of a task refers to this frame; deleting this avoids a reference cycle.
    del handle


def _do_nothing() -> None:
    """Wake the loop's thread."""
