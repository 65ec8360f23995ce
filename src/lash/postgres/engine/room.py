"""How many connections a pool may use on a server that many programs share."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from lash.postgres.engine.driver import asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    AnyConnection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

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
    a fleet of any size runs on what the server has.
    """

    def __init__(self, first: int, most: int, connected: Callable[[], int]) -> None:
        self._limit = first
        self._most = most
        self._connected = connected
        self._no_growth_until = 0.0
        self._left_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.used = 0

    async def enter(self) -> None:
        """Take a place, after all calls that wait for one already."""
        if self.used < self._limit and not self._waiting:
            self.used += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            while not place.done():
                await asyncio.wait({place}, timeout=_PATIENCE_S)
                if self.is_wanted and time.monotonic() - self._left_at >= _PATIENCE_S:
                    self.grow()
        except asyncio.CancelledError:
            if place.done():
                self.leave()
            else:
                self._waiting.remove(place)
            raise

    def leave(self) -> None:
        """Pass the place on to the call that has waited longest, or give it back."""
        self.used -= 1
        self._left_at = time.monotonic()
        self._admit()

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
        """Admit one more."""
        self._limit += 1
        self._admit()

    def shrink(self) -> None:
        """Admit no more than use the connections that the pool has; one is always admitted."""
        self._limit = max(1, self._connected())
        self._no_growth_until = time.monotonic() + _PAUSE_S

    def _admit(self) -> None:
        while self._waiting and self.used < self._limit:
            self.used += 1
            self._waiting.popleft().set_result(None)
