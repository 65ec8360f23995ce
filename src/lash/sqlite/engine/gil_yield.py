"""Makes a busy event loop yield the interpreter (GIL) to the threads that work for it.

A thread that waits for the GIL asks the holder to drop it after 5 ms. An event loop drops the GIL for microseconds in
every iteration, when it polls its sockets, and that restarts the 5 ms: a loop that is never idle can delay a commit by
seconds. So, while a thread has work, the loop blocks for a moment in each iteration. The thread gets the GIL and often
finishes within that moment.

The lock is used in an unconventional way: as a signal, not for mutual exclusion. It is held from the start. The loop
waits for it by acquiring it with a timeout; a thread that is done releases it, which ends the wait early. A lock is
the cheapest wait with a timeout that Python has; an Event takes several of them.

Outcomes come back through a deque. A loop that is about to block and look at the deque needs no wake-up through its
socket, which would cost a system call on each side; only a loop that is not about to look is woken that way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_FIRST_WAIT_S: Final = 0.0005
"""The first wait for a new job: as long as a commit takes on a fast disk, so that it often ends with the outcome."""
_LATER_WAIT_S: Final = 0.0001
"""Later waits: enough for the thread to get the GIL, and short for the other tasks of the loop."""
_EAGER_ITERATIONS: Final = 100
"""In how many iterations the loop yields at once; a job that takes longer waits for a disk or another process."""
_CALM_PAUSE_S: Final = 0.001
"""How often the loop yields after that; an otherwise idle loop need not spin."""


class GilYield:
    """Counts the jobs that threads run for one event loop, and makes the loop yield while there are any."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, enabled: bool) -> None:
        self._loop = loop
        self._enabled = enabled
        self._done = threading.Lock()
        self._done.acquire()
        self._in_flight = 0
        self._is_scheduled = False
        self._iterations = 0
        self._outcomes: deque[Callable[[], None]] = deque()
        self._collects_soon = False

    def expect(self) -> None:
        """Count a job that was handed to a thread. Only on the loop's thread."""
        if not self._in_flight:
            self._iterations = 0
        self._in_flight += 1
        # A closed loop cannot yield; the thread finishes its jobs without it.
        if self._enabled and not self._is_scheduled and not self._loop.is_closed():
            self._is_scheduled = True
            self._schedule()

    def finished(self, count: int) -> None:
        """Count jobs that have come back. Only on the loop's thread."""
        self._in_flight -= count
        self._iterations = 0

    def deliver(self, callback: Callable[[], None]) -> None:
        """Run the callback on the loop, soon and in order; it calls `finished`. From any thread."""
        self._outcomes.append(callback)
        self.end_wait()
        # Read after the append: a loop that stops collecting collects once more after it has cleared this.
        if not self._collects_soon:
            # A closed loop has no caller left that waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._collect)

    def end_wait(self) -> None:
        """End the loop's present wait. From any thread."""
        # Releasing a lock that is not held raises RuntimeError: then the loop is not waiting, or was signalled.
        with contextlib.suppress(RuntimeError):
            self._done.release()

    def _yield(self) -> None:
        if self._in_flight:
            is_later = 0 < self._iterations < _EAGER_ITERATIONS
            self._done.acquire(timeout=_LATER_WAIT_S if is_later else _FIRST_WAIT_S)
            self._iterations += 1
            self._collect()
        if not self._in_flight:
            self._is_scheduled = self._collects_soon = False
        elif self._iterations < _EAGER_ITERATIONS:
            self._schedule()
            return
        else:
            self._collects_soon = False
            self._loop.call_later(_CALM_PAUSE_S, self._yield)
        self._collect()

    def _schedule(self) -> None:
        self._collects_soon = True
        self._loop.call_soon(self._yield)

    def _collect(self) -> None:
        while self._outcomes:
            self._outcomes.popleft()()
