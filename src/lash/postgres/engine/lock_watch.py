"""Names the transaction that a statement waits for, so that a stuck worker does not stay unnoticed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

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


class LockWatch:
    """Watches the statements in flight of one database, with one timer for all of them."""

    def __init__(self, find: Callable[[], Awaitable[list[LockHolder]]]) -> None:
        self._find = find
        self._loop = asyncio.get_running_loop()
        self._running: dict[object, tuple[str, float]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._reported: dict[int, float] = {}

    def begin(self, connection: object, name: str) -> None:
        """Note that a statement was sent on a connection."""
        self._running[connection] = (name, self._loop.time())
        if self._alarm is None:
            self._alarm = self._loop.call_later(_PATIENCE_S, self._check)

    def end(self, connection: object) -> None:
        """Note that its answer has come, or that the connection is given up."""
        self._running.pop(connection, None)

    def report(self, what: str, *, with_idle: bool) -> None:
        """Log what blocks others now, and ``with_idle`` what is idle with locks; in the background, one at a time."""
        if self._reporting is None or self._reporting.done():
            self._reporting = self._loop.create_task(self._report(what, with_idle=with_idle), name="lash-lock-watch")

    async def close(self) -> None:
        """Stop watching."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._running.clear()
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait({self._reporting})

    def _check(self) -> None:
        self._alarm = None
        if not self._running:
            return
        self._alarm = self._loop.call_later(_PATIENCE_S, self._check)
        name, began = min(self._running.values(), key=lambda each: each[1])
        waited_s = self._loop.time() - began
        if waited_s >= _PATIENCE_S:
            self.report(f"{name!r} has waited for {waited_s:.1f} s", with_idle=False)

    async def _report(self, what: str, *, with_idle: bool) -> None:
        try:
            holders = await self._find()
        except (LashError, *DRIVER_ERRORS):
            # The statement that waits gets an error of its own.
            return
        now = self._loop.time()
        self._reported = {pid: at for pid, at in self._reported.items() if now - at < _REPEAT_S}
        for holder in holders:
            if holder.pid not in self._reported and (holder.waiting or with_idle):
                self._reported[holder.pid] = now
                _LOG.warning("%s; locks are held by %s", what, holder.description)
