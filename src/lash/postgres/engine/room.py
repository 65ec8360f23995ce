"""How many connections a pool may use on a server that many programs share."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from lash.postgres.engine.driver import asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    PooledConnection: TypeAlias = PoolConnectionProxy[asyncpg.Record]
    AnyConnection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PooledConnection

_PATIENCE_S: Final = 0.05
"""A further connection is opened if no call has ended for this long; while calls end, they look for room first."""
_PAUSE_S: Final = 5.0
"""How long a pool that found the server nearly full opens no further connection."""
_GROWTH: Final = (0.5, 0.75)
"""Below half of the server's connections every pool may grow, above three quarters none."""


class ConnectionUse(msgspec.Struct, frozen=True, array_like=True):
    """How many connections of a server ordinary users have, and how many are in use."""

    limit: int
    used: int

    @property
    def is_nearly_full(self) -> bool:
        """Whether less than a quarter is left for the first connections of programs that start later."""
        return 4 * self.used > 3 * self.limit


class ServerNearlyFull(Exception):
    """A further connection of a pool was given up, because other programs may need it more."""


async def has_room(connection: AnyConnection, statement: str, timeout_s: float) -> bool:
    """Return whether the server can spare a further connection; ``statement`` reads the use of its connections.

    The fuller it is, the fewer of the pools that look at the same moment get one: together they must not use it up.
    """
    found = await connection.fetchrow(statement, timeout=timeout_s)
    if found is None:
        return False
    use = ConnectionUse(*found)
    return not use.is_nearly_full and use.used <= use.limit * random.uniform(*_GROWTH)  # noqa: S311 (no secret)


class Room:
    """Admits as many calls to a pool as it may have connections, and lets that number grow one by one.

    A pool may always have one connection. A further one is for calls that wait, and only while the server has room, so
    a fleet of any size runs on what the server has. A call that ends hands its connection to the one that has waited
    longest: a busy machine is slow in every event loop iteration, and the driver's pool would take several.
    """

    def __init__(
        self, first: int, most: int, connected: Callable[[], int], spare: Callable[[PooledConnection], None]
    ) -> None:
        """Admit ``first`` calls, later up to ``most``; ``spare`` takes a connection whose new caller was cancelled."""
        self._limit = first
        self._most = most
        self._connected = connected
        self._spare = spare
        self._no_growth_until = 0.0
        self._left_at = 0.0
        self._waiting: deque[asyncio.Future[PooledConnection | None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self.used = 0

    async def enter(self) -> PooledConnection | None:
        """Take a place, after all calls that wait for one already; return the connection that was handed over."""
        if self.used < self._limit and not self._waiting:
            self.used += 1
            return None
        place: asyncio.Future[PooledConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._watch()
        try:
            return await place
        except asyncio.CancelledError:
            if place.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiting.remove(place)
            elif (connection := place.result()) is None:
                self.leave()
            elif not self.hand_over(connection):
                self._spare(connection)
            raise

    def hand_over(self, connection: PooledConnection) -> bool:
        """Pass a connection and its place on to the call that has waited longest; return False if none waits."""
        self._left_at = time.monotonic()
        return self._serve(connection)

    def leave(self) -> None:
        """Pass the place on to the call that has waited longest, or give it back."""
        self.used -= 1
        self._left_at = time.monotonic()
        self._admit()

    @property
    def has_waiting(self) -> bool:
        """Whether calls may wait for a place."""
        return bool(self._waiting)

    @property
    def is_wanted(self) -> bool:
        """Whether calls wait for a place that a further connection would give them."""
        return bool(self._waiting) and self.may_grow

    @property
    def may_grow(self) -> bool:
        """Whether a further connection may be opened: one at a time, and none soon after the server had no room."""
        return (
            self._limit < self._most and self._limit <= self._connected() and time.monotonic() > self._no_growth_until
        )

    def grow(self) -> None:
        """Admit one more, unless that was done while the caller looked for room."""
        if self.may_grow:
            self._limit += 1
            self._admit()

    def shrink(self) -> None:
        """Admit no more than use the connections that the pool has; one is always admitted."""
        self._limit = max(1, self._connected())
        self._no_growth_until = time.monotonic() + _PAUSE_S

    def _admit(self) -> None:
        while self.used < self._limit and self._serve(None):
            self.used += 1

    def _serve(self, connection: PooledConnection | None) -> bool:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(connection)
                return True
        return False

    def _watch(self) -> None:
        """Open a further connection if no call ends for a while; one timer for all that wait."""
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(_PATIENCE_S, self._check)

    def _check(self) -> None:
        self._alarm = None
        if self.is_wanted and time.monotonic() - self._left_at >= _PATIENCE_S:
            self.grow()
        if self._waiting:
            self._watch()
