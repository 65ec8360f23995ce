"""Watches the statements in flight, with one timer for all of them.

It names the transaction that a statement waits for, so that a stuck worker does not stay unnoticed, and ends the wait
for an answer that the network lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec

from lash.errors import LashError
from lash.postgres.engine.errors import DRIVER_ERRORS

_LOG: Final = logging.getLogger("lash.postgres")
_PATIENCE_S: Final = 1.0
"""A statement without an answer for this long probably waits for a lock."""
_REPEAT_S: Final = 10.0
"""How often the same holder is reported."""


class LockHolder(msgspec.Struct, frozen=True, array_like=True):
    """A transaction with locks on the tables of a schema that blocks others, or is idle."""

    pid: int
    application: str
    client: str
    state: str
    state_s: float
    transaction_s: float
    waiting: int
    """How many server connections wait for it."""

    @property
    def description(self) -> str:
        """What an operator needs to find the client."""
        at = f" from {self.client}" if self.client else ""
        name = f" ({self.application}{at})" if self.application or at else ""
        return (
            f"pid {self.pid}{name}: {self.state} for {self.state_s:.1f} s, "
            f"in a transaction for {self.transaction_s:.1f} s, {self.waiting} waiting"
        )


_InFlight: TypeAlias = tuple[float, str, asyncio.Task[object] | None, int]
"""When a statement began, its name, the task that waits for it, and how many cancellations the task had before."""


class StatementWatch:
    """Watches the statements in flight of one database.

    ``limit_s`` is how long a statement may take that begins with its task, and up to a second more.
    """

    def __init__(self, find: Callable[[], Awaitable[list[LockHolder]]], limit_s: float) -> None:
        self.limit_s = limit_s
        self._find = find
        self._loop = asyncio.get_running_loop()
        self._running: dict[object, _InFlight] = {}
        self._late: set[object] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._reported: dict[int, float] = {}
        self._closed = False

    def begin(self, connection: object, name: str, task: asyncio.Task[object] | None = None) -> None:
        """Note that a statement is sent on a connection. The limit cancels the task, if there is one.

        A timer for each statement costs more than a tenth of the instructions of a short one.
        """
        # A plain tuple: this runs for each statement.
        self._running[connection] = (time.monotonic(), name, task, 0 if task is None else task.cancelling())
        if self._alarm is None:
            self._alarm = self._loop.call_later(_PATIENCE_S, self._check)

    def end(self, connection: object) -> None:
        """Note that its answer has come, or that the connection is given up."""
        self._running.pop(connection, None)

    def was_late(self, connection: object) -> bool:
        """Return whether the limit, and nothing else, cancelled the task of the statement; its cancellation is over."""
        if connection not in self._late:
            return False
        self._late.discard(connection)
        _, _, task, cancelling = self._running[connection]
        return task is not None and task.uncancel() <= cancelling

    def report(self, what: str, *, with_idle: bool) -> None:
        """Log what blocks others now, and ``with_idle`` what is idle with locks; in the background, one at a time."""
        if self._reporting is None or self._reporting.done():
            self._reporting = self._loop.create_task(self._report(what, with_idle=with_idle), name="lash-lock-watch")

    async def close(self) -> None:
        """Report nothing more; the limit holds for statements in flight."""
        self._closed = True
        if self._alarm is not None and not self._running:
            self._alarm.cancel()
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait({self._reporting})

    def _check(self) -> None:
        self._alarm = None
        if not self._running:
            return
        self._alarm = self._loop.call_later(_PATIENCE_S, self._check)
        began, name, _, _ = min(self._running.values(), key=itemgetter(0))
        waited_s = time.monotonic() - began
        if waited_s >= _PATIENCE_S and not self._closed:
            self.report(f"{name!r} has waited for {waited_s:.1f} s", with_idle=False)
        if waited_s >= self.limit_s:
            # After the answers that have come already: this process may have been stopped.
            self._loop.call_soon(self._end_late)

    def _end_late(self) -> None:
        began_before = time.monotonic() - self.limit_s
        for connection, (began, _, task, _) in self._running.items():
            if began <= began_before and task is not None and connection not in self._late:
                self._late.add(connection)
                task.cancel()

    async def _report(self, what: str, *, with_idle: bool) -> None:
        try:
            holders = await self._find()
        except (LashError, *DRIVER_ERRORS):
            # The statement that waits gets an error of its own.
            return
        now = time.monotonic()
        self._reported = {pid: at for pid, at in self._reported.items() if now - at < _REPEAT_S}
        for holder in holders:
            if holder.pid not in self._reported and (holder.waiting or with_idle):
                self._reported[holder.pid] = now
                _LOG.warning("%s; locks are held by %s", what, holder.description)
