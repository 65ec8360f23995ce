"""The connection pool: lash's own, or the caller's, used in the same way."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final, TypeAlias

from lash.errors import ConfigError
from lash.postgres.engine.driver import asyncpg
from lash.postgres.engine.errors import DRIVER_ERRORS, is_refused_setting, is_server_full
from lash.postgres.engine.keepalive import keep_alive, server_keepalive
from lash.postgres.engine.opening import Opening
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.password import driver_password
from lash.postgres.engine.pooler import switches_backends
from lash.postgres.engine.room import Room, ServerNearlyFull, has_room

if TYPE_CHECKING:
    # Generic in the stubs, plain classes at run time.
    from asyncpg.pool import PoolConnectionProxy

    AnyPool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    PlainConnection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    PooledConnection: TypeAlias = PoolConnectionProxy[asyncpg.Record]

OLDEST_MAJOR: Final = 15
"""The oldest PostgreSQL that the tests cover."""
_PREPARED_STATEMENTS: Final = 1000
"""More than there are named statements, so that each stays prepared."""
_RELEASE_LIMIT_S: Final = 5.0
"""How long the driver may take to reset a connection before it is closed."""
_CLOSE_LIMIT_S: Final = 10.0
"""How long closing waits for calls in flight before it closes their connections."""
_KEEP_S: Final = 1.0
"""How often unused kept connections go back to the driver, which closes connections that were idle for too long."""
_LOOK_EVERY_S: Final = 1.0
"""How often all connections are replaced while no server takes writes."""

_SET: Final = "SELECT set_config(s.name, s.value, false) FROM unnest($1::text[], $2::text[]) AS s (name, value)"


class Connections:
    """Hands out connections and takes them back; a cancelled caller does not wait for the return.

    The driver's pool takes two tasks, two timers and several event loop iterations for each statement. A connection of
    lash's own pool whose statement succeeded is therefore handed to the caller that has waited longest, or kept for the
    next one.
    """

    def __init__(self, options: PostgresOptions, pool: AnyPool | None, use_statement: str) -> None:
        """Make connections of a new pool or of the caller's; ``use_statement`` counts the connections of the server."""
        self._options = options
        self._use_statement = use_statement
        self._owned = pool is None
        self._sets_after_connecting = False
        """Whether a pooler refused the session settings at the start, so that they follow in a statement."""
        self._opening = Opening()
        self.when_closed: list[Callable[[], None]] = []
        """Called when a connection of lash's own pool was closed, by either side."""
        self._pool = self._make_pool() if pool is None else pool
        # The connections of a pooler are not the server's.
        first = options.max_size if options.pooler else max(1, options.min_size)
        self._room = Room(first, options.max_size, self._count_open, self._give_back_later) if pool is None else None
        self._returning: set[asyncio.Task[None]] = set()
        self._renew_at = self._next_renewal()
        self._look_again_at = 0.0
        self._kept: list[PooledConnection] = []
        self._unused = 0
        """How many of the kept ones, from the first, no call has taken since the last look."""
        self._may_be_kept: set[PooledConnection] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._looks_for_room = False

    async def start(self) -> None:
        """Open lash's own pool and the connections of ``min_size``; may be retried after a failure."""
        if not self._owned:
            return
        if self._pool.is_closing():
            # The driver closes a pool whose first connections failed.
            self._pool = self._make_pool()
        await self._pool

    async def set_after_connecting(self, error: BaseException) -> bool:
        """Send the session settings after connecting from now on, if that helps against the error; return whether.

        A pooler in session mode refuses them at the start and takes them later. In transaction mode they would apply to
        the clients of other programs.
        """
        if not self._owned or self._sets_after_connecting or not is_refused_setting(error):
            return False
        if await switches_backends(self._options):
            return False
        self._sets_after_connecting = True
        self.terminate()
        self._pool = self._make_pool()
        return True

    async def acquire(self) -> PooledConnection:
        """Return a connection that is open as far as known without a round trip."""
        if self._needs_renewal():
            # The driver bounds idle time only. After this, each present connection is replaced at its next use, so none
            # grows older than one period.
            self._renew_at = self._next_renewal()
            self._release_kept_for_good()
            await self._pool.expire_connections()
        if self._room is None:
            return await self._pool.acquire(timeout=self._options.acquire_timeout_s)
        async with asyncio.timeout(self._options.acquire_timeout_s):
            connection = await self._acquire_in(self._room)
        self._may_be_kept.add(connection)
        return connection

    async def _acquire_in(self, room: Room) -> PooledConnection:
        """Return a connection of lash's own pool; wait for one in use if the server has none to spare."""
        while True:
            connection = await room.enter()
            if connection is not None:
                return connection
            try:
                return await self._pool.acquire()
            except ServerNearlyFull:
                room.leave()
            except BaseException as error:
                room.leave()
                if not is_server_full(error) or (room.used == 0 and self._pool.get_size() == 0):
                    raise
            room.shrink()

    def look_elsewhere(self) -> None:
        """Replace each connection at its next use: their server takes no writes any more, and another one may."""
        if self._owned and time.monotonic() >= self._look_again_at:
            self._renew_at = time.monotonic()
            self._look_again_at = self._renew_at + _LOOK_EVERY_S

    def take_idle(self) -> PooledConnection | None:
        """Return a kept connection that is still open; None if there is none."""
        while self._kept and time.monotonic() < self._renew_at:
            connection = self._kept.pop()
            self._unused = min(self._unused, len(self._kept))
            if not _is_closed(connection):
                return connection
            self.return_later(self.release(connection))
        return None

    def keep(self, connection: PooledConnection) -> bool:
        """Keep a connection whose last statement succeeded; return False if it is to be given back.

        A kept connection may be closed already: `take_idle` checks it.
        """
        if self._room is None or self._room.has_waiting or connection not in self._may_be_kept:
            return False
        self._kept.append(connection)
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(_KEEP_S, self._release_unused)
        return True

    async def give_back(self, connection: PooledConnection) -> None:
        """Take back a connection that is idle and whose last statement succeeded."""
        room = self._room
        try:
            if room is not None and room.is_wanted and not self._looks_for_room:
                await self._look_for_room(room, connection)
        except asyncio.CancelledError:
            # The caller does not wait until the server has cancelled the count of its connections.
            self.return_later(self.release(connection))
            raise
        if room is None or connection not in self._may_be_kept or _is_closed(connection):
            await self.release(connection)
        elif not room.hand_over(connection):
            self.keep(connection)

    def _give_back_later(self, connection: PooledConnection) -> None:
        self.return_later(self.give_back(connection))

    async def _look_for_room(self, room: Room, connection: PooledConnection) -> None:
        """Let the pool grow if the server has room for a further connection; one call at a time looks."""
        self._looks_for_room = True
        try:
            with contextlib.suppress(*DRIVER_ERRORS):
                if await self._has_room(connection):
                    room.grow()
                else:
                    room.shrink()
        finally:
            self._looks_for_room = False

    async def release(self, connection: PooledConnection) -> None:
        """Return a connection to the driver's pool. Its call has its outcome already, so a failure here is ignored."""
        self._may_be_kept.discard(connection)
        try:
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._pool.release(connection, timeout=_RELEASE_LIMIT_S)
        finally:
            if self._room is not None:
                self._room.leave()

    def return_later(self, returning: Coroutine[None, None, None]) -> None:
        """Return a connection in the background; :meth:`close` waits for it."""
        task = asyncio.get_running_loop().create_task(returning)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    @property
    def can_listen(self) -> bool:
        """Whether `connect_to_listen` returns a connection that reaches the same database and can LISTEN.

        A pooler in transaction mode loses LISTEN, and lash does not know how a pool of the caller connects: both need
        ``listen_url``.
        """
        return self._options.listen_url is not None or (self._owned and not self._options.pooler)

    async def connect_to_listen(self) -> PlainConnection:
        """Open a connection for LISTEN, which belongs to the caller. Its server notices if this machine is gone."""
        options, settings = self._options, server_keepalive(self._options)
        # What is behind ``listen_url`` may refuse settings at the start.
        if options.listen_url is None and not self._sets_after_connecting:
            return await self._connect_beside(options.dsn, settings)
        connection = await self._connect_beside(options.listen_dsn, {})
        try:
            await _set(connection, settings, options)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _connect_beside(self, dsn: str, settings: dict[str, str]) -> PlainConnection:
        options = self._options
        connection = await self._opening.connect(
            dsn,
            timeout=options.connect_timeout_s,
            server_settings=settings | {"application_name": options.application_name},
            password=driver_password(options),
            # It runs few statements, perhaps through a pooler.
            statement_cache_size=0,
        )
        keep_alive(connection, options)
        return connection

    async def ask_beside(self, text: str, *args: object) -> list[asyncpg.Record]:
        """Run a statement even if all connections of lash's own pool are in use."""
        limit_s = self._options.connect_timeout_s
        if not self._owned:
            async with self._pool.acquire(timeout=limit_s) as borrowed:
                return await borrowed.fetch(text, *args, timeout=limit_s)
        connection = await self._connect_beside(self._options.dsn, {})
        try:
            return await connection.fetch(text, *args, timeout=limit_s)
        finally:
            await connection.close(timeout=_RELEASE_LIMIT_S)

    async def close(self) -> None:
        """Wait for the connections in use, then close lash's own pool; a pool of the caller stays open."""
        self._release_kept_for_good()
        if self._returning:
            await asyncio.gather(*self._returning)
        await self._opening.close()
        if not self._owned:
            return
        try:
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await self._pool.close()
        except DRIVER_ERRORS:
            self._pool.terminate()

    def terminate(self) -> None:
        """Close lash's own connections without notifying the server."""
        if self._owned:
            with contextlib.suppress(*DRIVER_ERRORS):
                self._pool.terminate()

    def _make_pool(self) -> AnyPool:
        return _make_pool(self._options, self._opening, self._prepare, settings=not self._sets_after_connecting)

    async def _prepare(self, connection: PlainConnection) -> None:
        """Make a new connection of the pool ready, unless the server can hardly spare it."""
        keep_alive(connection, self._options)
        if self._may_be_spared() and not await self._has_room(connection):
            raise ServerNearlyFull
        connection.add_termination_listener(self._note_closed)
        if self._sets_after_connecting:
            await _set(connection, session_settings(self._options), self._options)

    async def _has_room(self, connection: PlainConnection | PooledConnection) -> bool:
        return await has_room(connection, self._use_statement, self._options.connect_timeout_s)

    def _count_open(self) -> int:
        return self._pool.get_size()

    def _may_be_spared(self) -> bool:
        """Return whether a connection that is being opened is neither the only one nor one of ``min_size``."""
        others, options = self._pool.get_size(), self._options
        alone = others == 0 and (self._room is None or self._room.used <= 1)
        return not alone and others >= options.min_size and not options.pooler

    def _note_closed(self, _connection: object) -> None:
        for callback in self.when_closed:
            callback()

    def _release_unused(self) -> None:
        """Return kept connections that no call has taken since the last look to the driver."""
        unused, self._kept = self._kept[: self._unused], self._kept[self._unused :]
        self._unused = len(self._kept)
        for connection in unused:
            self.return_later(self.release(connection))
        self._alarm = asyncio.get_running_loop().call_later(_KEEP_S, self._release_unused) if self._kept else None

    def _release_kept_for_good(self) -> None:
        """Return all kept connections to the driver; those in use will go there too."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._may_be_kept.clear()
        self._unused = 0
        while self._kept:
            self.return_later(self.release(self._kept.pop()))

    def _needs_renewal(self) -> bool:
        return self._owned and time.monotonic() >= self._renew_at

    def _next_renewal(self) -> float:
        if not self._options.lifetime_s:
            return math.inf
        # Random, so that the workers of one deployment do not all reconnect at once.
        return time.monotonic() + self._options.lifetime_s * random.uniform(0.9, 1.0)  # noqa: S311 (no secret)


def _is_closed(connection: PooledConnection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        # The driver's pool took it back when it died.
        return True


def check_server(*, major: int, encoding: str, address: str) -> None:
    """Refuse a server that is too old or does not use UTF8."""
    if major < OLDEST_MAJOR:
        raise ConfigError(f"expected PostgreSQL {OLDEST_MAJOR} or newer, got {major} on {address}")
    if encoding.upper().replace("-", "") != "UTF8":
        raise ConfigError(
            f"expected the encoding UTF8, got {encoding} on {address}; create the database with ENCODING 'UTF8'"
        )


def _make_pool(
    options: PostgresOptions,
    opening: Opening,
    prepare: Callable[[PlainConnection], Coroutine[None, None, None]],
    *,
    settings: bool,
) -> AnyPool:
    """Return a pool whose connections get their settings when they are opened, or only their name."""
    name = {"application_name": options.application_name}
    return asyncpg.create_pool(
        options.dsn,
        min_size=options.min_size,
        max_size=options.max_size,
        max_inactive_connection_lifetime=options.idle_lifetime_s,
        timeout=options.connect_timeout_s,
        server_settings=name | session_settings(options) if settings else name,
        connect=opening.connect,
        password=driver_password(options),
        init=prepare,
        reset=_do_not_reset,
        # Every named statement stays prepared, however long its text: an unprepared one costs a second round trip.
        statement_cache_size=0 if options.pooler else _PREPARED_STATEMENTS,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
    )


async def _set(connection: PlainConnection, settings: dict[str, str], options: PostgresOptions) -> None:
    """Set what a pooler refuses in the startup message."""
    columns = (list(settings), list(settings.values()))
    await connection.execute(_SET, *columns, timeout=options.connect_timeout_s)


def session_settings(options: PostgresOptions) -> dict[str, str]:
    """Return the settings of each connection; none behind a pooler in transaction mode, where clients share them."""
    if options.pooler:
        return {}
    limits = {"lock_timeout": str(options.lock_timeout_ms), "statement_timeout": str(options.statement_timeout_ms)}
    return limits | PLANNING | server_keepalive(options)


PLANNING: Final = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
"""How the server plans: each statement once for each connection, and by index.

Planning a commit for its arguments takes many times as long as running it, and no statement of lash has a better plan
for some arguments than for others. A plan made while a table was empty must still be good when it has grown.
"""


async def _do_not_reset(_connection: object) -> None:
    """Do nothing when a connection comes back.

    The driver's own reset costs a round trip for each statement. Without it, no statement of lash may change
    the session: no SET (only SET LOCAL), no session-wide advisory lock, no temporary table, no open cursor, no
    LISTEN. The driver still rolls back a transaction that was left open.
    """
