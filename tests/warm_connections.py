"""Connections to PostgreSQL that tests use one after another.

A new connection starts a server process that reads the catalogue and plans every statement again: two thirds of the
time of a short test. Here a pool of lash gets a connection that an earlier pool with the same settings has closed.
Everything above the driver's connect and close is as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from lash.postgres.engine.opening import Opening

if TYPE_CHECKING:
    from typing import TypeAlias

    PlainConnection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    PlainConnection = asyncpg.Connection

_MOST_IDLE: Final = 8
"""A few tests open many connections at once; the server has room for so many."""


class _WarmConnection(PlainConnection):
    """A connection whose close leaves its session open for the next pool."""

    keep: Callable[[_WarmConnection], bool] | None = None

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 (the driver's signature)
        is_idle = not self.is_closed() and not self.is_in_transaction()
        if self.keep is None or not is_idle or not self.keep(self):
            await super().close(timeout=timeout)
            return
        # What the driver does after closing, but for the statements, which stay prepared.
        internal: Any = self
        internal._call_termination_listeners()
        internal._termination_listeners.clear()
        internal._listeners.clear()
        internal._log_listeners.clear()
        holder, internal._pool_holder = internal._pool_holder, None
        if holder is not None and holder() is not None:
            holder()._release_on_close()


class WarmConnections:
    """The idle connections of the calling event loop, by address and settings."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[str, list[_WarmConnection]] = {}

    def replace_connect(self) -> Callable[..., Awaitable[PlainConnection]]:
        """Return a method for `Opening.connect` that takes an idle connection if there is one."""
        connect_anew = Opening.connect

        async def connect(opening: Opening, *args: Any, **options: Any) -> PlainConnection:  # noqa: ANN401 (the driver's)
            if "connection_class" not in options or asyncio.get_running_loop() is not self._loop:
                # Not for a pool: a listener, or a statement beside the pool; or not in this loop.
                return await connect_anew(opening, *args, **options)
            settings = {name: value for name, value in options.items() if name not in ("loop", "connection_class")}
            key = repr((args, sorted(settings.items(), key=str)))
            idle = self._idle.setdefault(key, [])
            while idle:
                kept = idle.pop()
                if not kept.is_closed():
                    return kept
            options["connection_class"] = _WarmConnection
            opened = await connect_anew(opening, *args, **options)
            assert isinstance(opened, _WarmConnection)
            opened.keep = partial(self._keep, idle)
            return opened

        return connect

    async def close(self) -> None:
        """End all sessions."""
        for connection in (each for idle in self._idle.values() for each in idle):
            connection.keep = None
            await connection.close()
        self._idle.clear()

    def _keep(self, idle: list[_WarmConnection], connection: _WarmConnection) -> bool:
        if len(idle) >= _MOST_IDLE:
            return False
        idle.append(connection)
        return True
