"""Making a busy event loop share the interpreter with the threads that work for it.

CPython lets a thread that waits for the interpreter in after 5 ms, but an event loop gives it up for
microseconds on every turn, which restarts that clock: a loop that is never idle can hold a commit up for
seconds. So, while work is in flight, the loop blocks for a moment on each of its turns, on a lock that
the thread opens when it is done: for longer when a batch is new, which is often all that it needs. What the
thread has to say is then taken up at once; only a loop that is not about to look is woken through its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable

_FIRST_WAIT = 0.0005
_LATER_WAIT = 0.0001
_EAGER_TURNS = 100
_CALM_PAUSE = 0.001


class Lender:
    """Counts what is in flight for one event loop, and lends while it is anything."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, enabled: bool) -> None:
        self._loop = loop
        self._enabled = enabled
        self._done = threading.Lock()
        self._done.acquire()
        self._in_flight = 0
        self._lending = False
        self._turns = 0
        self._answers: deque[Callable[[], None]] = deque()
        self._looks_soon = False

    def expect(self) -> None:
        """Something was handed to a thread. Only on the loop's thread."""
        if not self._in_flight:
            self._turns = 0
        self._in_flight += 1
        # A loop that was closed lends nothing; what it had asked for is done all the same.
        if self._enabled and not self._lending and not self._loop.is_closed():
            self._lending = True
            self._lend_soon()

    def settled(self, count: int) -> None:
        """So much has come back. Only on the loop's thread."""
        self._in_flight -= count
        self._turns = 0

    def answer(self, settle: Callable[[], None]) -> None:
        """Have this called on the loop, soon and in order; it says what has `settled`. From any thread."""
        self._answers.append(settle)
        self.call_back()
        # Read after the append: a loop that stops looking looks once more after it has said so.
        if not self._looks_soon:
            # A loop that was closed has nobody left to answer.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._collect)

    def call_back(self) -> None:
        """End the loop's present wait. From any thread."""
        with contextlib.suppress(RuntimeError):
            self._done.release()

    def _lend(self) -> None:
        if self._in_flight:
            self._done.acquire(timeout=_LATER_WAIT if 0 < self._turns < _EAGER_TURNS else _FIRST_WAIT)
            self._turns += 1
            self._collect()
        if not self._in_flight:
            self._lending = self._looks_soon = False
        elif self._turns < _EAGER_TURNS:
            self._lend_soon()
            return
        else:
            # Whatever takes this long waits for a disk or another process: an idle loop need not spin for it.
            self._looks_soon = False
            self._loop.call_later(_CALM_PAUSE, self._lend)
        self._collect()

    def _lend_soon(self) -> None:
        self._looks_soon = True
        self._loop.call_soon(self._lend)

    def _collect(self) -> None:
        while self._answers:
            self._answers.popleft()()
