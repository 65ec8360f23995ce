"""What runs of an application keep open between them, such as connections: opened once, closed when the app stops."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar, cast

from lash.errors import ConfigError

T = TypeVar("T")

_CLOSE_S: Final = 10.0
"""How long a stopping app waits for its resources; then their tasks are cancelled."""

_log: Final = logging.getLogger("lash")


class Resources:
    """Open context managers by key, each in a task of its own.

    Libraries such as anyio require that a manager is entered and left in one task. The task of a run is not the one:
    runs end, and are cancelled, while others use the same connection.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held[Any]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def get(self, key: Hashable, enter: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Return the open resource of a key; the first caller opens it, and callers at the same time wait for it.

        Raises the error of opening it; the next call tries again. A caller that is cancelled does not cancel the
        opening for others.
        """
        if self._closed:
            raise ConfigError("the app is closed; its resources are too")
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(enter, lambda: self._held.pop(key, None))
        return cast("T", await asyncio.shield(held.opened))

    def discard(self, key: Hashable, resource: object) -> None:
        """Close a resource that no longer works, unless another caller has replaced it; the next `get` opens one."""
        held = self._held.get(key)
        if held is None or not held.holds(resource):
            return
        del self._held[key]
        held.leave.set()
        self._ending.add(held.task)
        held.task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Close all resources; idempotent. One that does not close in time is cancelled."""
        self._closed = True
        tasks = {held.task for held in self._held.values()} | self._ending
        for held in self._held.values():
            held.leave.set()
        self._held = {}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=_CLOSE_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CLOSE_S)


class _Held(Generic[T]):
    """One manager, entered and left in one task."""

    def __init__(self, enter: Callable[[], AbstractAsyncContextManager[T]], failed: Callable[[], object]) -> None:
        self._enter = enter
        self._failed = failed
        self.opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Callers may be gone when it fails; then no caller gets the error.
        self.opened.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.leave = asyncio.Event()
        # Not the context of the run that is the first to need it: the resource outlives that run.
        self.task = asyncio.create_task(self._hold(), name="lash-resource", context=contextvars.Context())

    def holds(self, resource: object) -> bool:
        done = self.opened.done() and not self.opened.cancelled() and self.opened.exception() is None
        return done and self.opened.result() is resource

    async def _hold(self) -> None:
        try:
            async with self._enter() as resource:
                self.opened.set_result(resource)
                await self.leave.wait()
        except BaseException as error:
            if self.opened.done():
                # Its users have noticed by the errors of their calls.
                _log.debug("a resource ended with an error", exc_info=True)
            else:
                self._failed()
                self.opened.set_exception(_first(error))
            if not isinstance(error, Exception):
                raise


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group, as task groups raise them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    # A future cannot hold a cancellation.
    return RuntimeError("opening was cancelled") if isinstance(error, asyncio.CancelledError) else error
