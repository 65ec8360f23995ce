"""Connections: a pool of our own, or the caller's, used in the same way."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final, TypeAlias

from lash.errors import ConfigError
from lash.postgres.engine.driver import asyncpg
from lash.postgres.engine.errors import DRIVER_ERRORS
from lash.postgres.engine.options import PostgresOptions

if TYPE_CHECKING:
    # The stubs make these generic; at run time they are plain classes.
    from asyncpg.pool import PoolConnectionProxy

    AnyPool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    PlainConnection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    PooledConnection: TypeAlias = PoolConnectionProxy[asyncpg.Record]

OLDEST_MAJOR = 15
_PREPARED_STATEMENTS = 1000
_RELEASE_LIMIT_S = 5.0
_CLOSE_LIMIT_S = 10.0
_KEEP_S: Final = 1.0
"""How often connections that were kept for the next caller go back to the driver, which closes those long idle."""


class Connections:
    """Lends connections and takes them back; a caller that is cancelled does not wait for the return.

    The driver's pool takes two tasks, two timers and several turns of the event loop for each statement. A connection
    of our own pool whose statement went well is therefore kept for the next caller, unless somebody waits for one.
    """

    def __init__(self, options: PostgresOptions, pool: AnyPool | None) -> None:
        self._options = options
        self._owned = pool is None
        self._pool = _make_pool(options) if pool is None else pool
        self._returning: set[asyncio.Task[None]] = set()
        self._renew_at = self._next_renewal()
        self._kept: list[PooledConnection] = []
        self._may_be_kept: set[PooledConnection] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._queueing = 0

    async def start(self) -> None:
        """Make our pool ready and open the connections of ``min_size``; may be tried again after a failure."""
        if not self._owned:
            return
        if self._pool.is_closing():
            # The driver closes a pool whose first connections failed.
            self._pool = _make_pool(self._options)
        await self._pool

    async def acquire(self) -> PooledConnection:
        """Lend a connection that is open as far as can be known without asking the server."""
        if self._needs_renewal():
            # The driver bounds idle time only. From here each present connection is replaced when it is next used, so
            # none grows older than one period.
            self._renew_at = self._next_renewal()
            self._let_go(for_good=True)
            await self._pool.expire_connections()
        self._queueing += 1
        try:
            connection = await self._pool.acquire(timeout=self._options.acquire_timeout_s)
        finally:
            self._queueing -= 1
        if self._owned:
            self._may_be_kept.add(connection)
        return connection

    def take_kept(self) -> PooledConnection | None:
        """Lend a connection that came back a moment ago, if there is one that is open."""
        while self._kept and not self._needs_renewal():
            connection = self._kept.pop()
            if not _is_closed(connection):
                return connection
            self.soon(self.release(connection))
        return None

    async def give_back(self, connection: PooledConnection) -> None:
        """Take back a connection on which nothing is under way and nothing went wrong."""
        if self._queueing or connection not in self._may_be_kept:
            await self.release(connection)
            return
        self._kept.append(connection)
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(_KEEP_S, self._let_go)

    async def release(self, connection: PooledConnection) -> None:
        """Take a connection back. What was asked of it is already decided, so a failure here concerns nobody."""
        self._may_be_kept.discard(connection)
        with contextlib.suppress(*DRIVER_ERRORS):
            await self._pool.release(connection, timeout=_RELEASE_LIMIT_S)

    def soon(self, returning: Coroutine[None, None, None]) -> None:
        """Take a connection back without making its caller wait; :meth:`close` waits for it."""
        task = asyncio.get_running_loop().create_task(returning)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    @property
    def can_listen(self) -> bool:
        """Whether a connection beside the pool reaches the same database and can LISTEN.

        A pooler in transaction mode forgets who listens, and how a pool of the caller connects only the caller knows.
        """
        return self._owned and not self._options.pooler

    async def connect_beside_pool(self) -> PlainConnection:
        """Open a connection that belongs to the caller, with the address and the name of our own pool."""
        options = self._options
        settings = {"application_name": options.application_name}
        return await asyncpg.connect(options.dsn, timeout=options.connect_timeout_s, server_settings=settings)

    async def close(self) -> None:
        """Wait for the connections lent out, then close ours; a pool of the caller stays open."""
        self._let_go(for_good=True)
        if self._returning:
            await asyncio.gather(*self._returning)
        if not self._owned:
            return
        try:
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await self._pool.close()
        except DRIVER_ERRORS:
            self._pool.terminate()

    def terminate(self) -> None:
        """Drop our connections without a word to the server."""
        if self._owned:
            with contextlib.suppress(*DRIVER_ERRORS):
                self._pool.terminate()

    def _let_go(self, *, for_good: bool = False) -> None:
        """Hand what was kept to the driver; for good, those that are lent now will go there too."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if for_good:
            self._may_be_kept.clear()
        while self._kept:
            self.soon(self.release(self._kept.pop()))

    def _needs_renewal(self) -> bool:
        return self._owned and self._options.lifetime_s > 0 and time.monotonic() >= self._renew_at

    def _next_renewal(self) -> float:
        # Spread, so that the workers of one deployment do not all reconnect at once.
        return time.monotonic() + self._options.lifetime_s * random.uniform(0.9, 1.0)  # noqa: S311 (no secret)


def _is_closed(connection: PooledConnection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        # The driver's pool took it back when it died.
        return True


def check_server(*, major: int, encoding: str, address: str) -> None:
    """Refuse a server on which lash is not known to keep its promises."""
    if major < OLDEST_MAJOR:
        raise ConfigError(f"{address} runs PostgreSQL {major}; lash needs {OLDEST_MAJOR} or newer")
    if encoding.upper().replace("-", "") != "UTF8":
        raise ConfigError(f"the database on {address} has the encoding {encoding}; lash needs UTF8")


def _make_pool(options: PostgresOptions) -> AnyPool:
    settings = {"application_name": options.application_name}
    if not options.pooler:
        settings["lock_timeout"] = str(options.lock_timeout_ms)
        settings["statement_timeout"] = str(options.statement_timeout_ms)
        settings.update(PLANNING)
    return asyncpg.create_pool(
        options.dsn,
        min_size=options.min_size,
        max_size=options.max_size,
        max_inactive_connection_lifetime=options.idle_lifetime_s,
        timeout=options.connect_timeout_s,
        server_settings=settings,
        reset=_keep_as_it_is,
        # Every named statement stays prepared, however long its text: an unprepared one costs a second round trip.
        statement_cache_size=0 if options.pooler else _PREPARED_STATEMENTS,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
    )


PLANNING: Final = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
"""How the server plans: each statement once for each connection, and by its indexes. Planning a commit for its very
arguments takes many times as long as running it, and none of our statements has a better plan for some arguments than
for others. A plan that was made while a table was empty must still be good when it has grown."""


async def _keep_as_it_is(_connection: object) -> None:
    """Do nothing when a connection comes back.

    The driver's own reset costs a round trip for each statement. Leaving it out demands that no statement of ours
    changes the session: no SET (only SET LOCAL), no session-wide advisory lock, no temporary table, no open cursor, no
    LISTEN. A transaction left open is rolled back by the driver all the same.
    """
