"""Opens connections for the driver's pool."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from lash.postgres.engine.driver import asyncpg
from lash.postgres.engine.errors import DRIVER_ERRORS

if TYPE_CHECKING:
    from typing import TypeAlias

    PlainConnection: TypeAlias = asyncpg.Connection[asyncpg.Record]


_PATIENCE_S: Final = 1.0
"""A server that has not answered by then is away; the driver has nothing left that could fail later."""


class Opening:
    """Opens connections in tasks of their own; a cancelled caller leaves its task to finish.

    The driver's own cancellation loses futures that later fail, and the event loop logs each of them as an exception
    that was never retrieved.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[PlainConnection]] = set()

    async def connect(self, *args: Any, **options: Any) -> PlainConnection:  # noqa: ANN401 (the driver's)
        """Return a new connection; arguments and errors are those of ``asyncpg.connect``."""
        task = asyncio.get_running_loop().create_task(asyncpg.connect(*args, **options))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_drop)
            raise

    async def close(self) -> None:
        """Wait briefly for the connections that no caller waits for, then give them up."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=_PATIENCE_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


def _drop(task: asyncio.Task[PlainConnection]) -> None:
    """Close a connection that no caller waits for, and ignore the error of one that failed."""
    if not task.cancelled() and task.exception() is None:
        with contextlib.suppress(*DRIVER_ERRORS):
            task.result().terminate()
