"""Making a busy event loop share the interpreter with the threads that work for it.

CPython lets a thread that waits for the interpreter in after 5 ms, but an event loop gives it up for
microseconds on every turn, which restarts that clock: a loop that is never idle can hold a commit up for
seconds. So, while work is in flight, the loop blocks for a moment on each of its turns, on a lock that
the thread opens when it is done: for longer when a batch is new, which is often all that it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

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

    def expect(self) -> None:
        """Something was handed to a thread. Only on the loop's thread."""
        if not self._in_flight:
            self._turns = 0
        self._in_flight += 1
        if self._enabled and not self._lending:
            self._lending = True
            self._loop.call_soon(self._lend)

    def settled(self, count: int) -> None:
        """So much has come back. Only on the loop's thread."""
        self._in_flight -= count
        self._turns = 0

    def call_back(self) -> None:
        """End the loop's present wait: a thread has an answer for it. From any thread."""
        with contextlib.suppress(RuntimeError):
            self._done.release()

    def _lend(self) -> None:
        if not self._in_flight:
            self._lending = False
            return
        self._done.acquire(timeout=_LATER_WAIT if 0 < self._turns < _EAGER_TURNS else _FIRST_WAIT)
        self._turns += 1
        if self._turns < _EAGER_TURNS:
            self._loop.call_soon(self._lend)
        else:
            # Whatever takes this long waits for a disk or another process: an idle loop need not spin for it.
            self._loop.call_later(_CALM_PAUSE, self._lend)
