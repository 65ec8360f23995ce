"""An event loop in a thread of its own, and calls into it from other threads and other event loops."""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

from lash.base.loop_thread import LoopThread, leaving
from lash.errors import ConfigError, LashError, StorageClosed

_LAST_WORD_S: Final = 5.0
"""How long the interpreter waits at exit for each thread to close its object."""
_open_portals: Final[weakref.WeakSet[Portal]] = weakref.WeakSet()


class Caller(Protocol):
    """Calls functions in the event loop of one object, from other threads."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_inside(self) -> bool: ...

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...  # noqa: ANN401 (what it returns)


class Portal:
    """Runs the calls of one object in one event loop, from any thread.

    The thread starts with `open` and ends with `close`. It is a daemon: a program that exits without closing still
    exits, after a last attempt to close what is open.
    """

    def __init__(
        self,
        name: str,
        closed: Callable[[], LashError] = StorageClosed,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._name = name
        self._closed = closed
        self._new_loop = new_loop
        self._guard = threading.Lock()
        self._loop: LoopThread | None = None
        self._farewell: Callable[[], Coroutine[Any, Any, None]] | None = None

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    @property
    def is_inside(self) -> bool:
        """Whether the caller is code that runs in the loop itself."""
        return self._loop is not None and self._loop.is_current

    def open(self) -> bool:
        """Start the thread, and return whether there was none before."""
        with self._guard:
            if self._loop is not None:
                return False
            self._loop = LoopThread(self._name, self._new_loop)
            _open_portals.add(self)
            return True

    def guard(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Set the coroutine to run if the portal is not closed: when it is collected, or at exit.

        It must not refer to the portal, which would then never be collected.
        """
        loop = self._require()
        self._farewell = farewell
        weakref.finalize(self, loop.abandon, farewell).atexit = False

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (what it returns)
        """Call the function in the loop, wait for what it returns or awaits, and return it or raise its error.

        An interrupt, such as Ctrl-C, cancels it there, and is raised here once it has ended.
        """
        return self._require_outside(function).call(function, args, kwargs, self._closed)

    async def await_call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (what it returns)
        """Call the function in the loop from another event loop, which goes on meanwhile; return or raise like `call`.

        A cancellation of the caller cancels the function there, and is raised here once it has ended.
        """
        return await self._require_outside(function).await_call(function, args, kwargs, self._closed)

    def await_in_place(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:  # noqa: ANN401 (what it takes)
        """Do the same as `await_call`; the first step may run in the caller's thread, which saves two thread changes.

        It does if the portal was given `lash.base.in_place.new_loop`, and the loop's thread waits for events. Calls
        that are sent or made earlier start earlier.
        """
        return self._require_outside(function).await_call(function, args, kwargs, self._closed, may_run_here=True)

    def send(self, function: Callable[[], object]) -> None:
        """Call the function in the loop without waiting for it; calls that are sent later start after it."""
        self._require().send(function, self._closed)

    def end(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call the function that closes the object, then end the thread; idempotent."""
        if not self.is_open:
            return
        self._require_outside(function)
        try:
            self.call(function)
        finally:
            self.close()

    def close(self) -> None:
        """End the thread, and cancel what still runs in it; idempotent."""
        with self._guard:
            loop, self._loop = self._loop, None
        _open_portals.discard(self)
        if loop is not None:
            loop.stop()

    def close_at_exit(self) -> None:
        """Close the object, as far as that is still possible, and then the portal."""
        loop, farewell = self._loop, self._farewell
        if loop is not None and farewell is not None:
            loop.abandon(farewell)

    def _require_outside(self, function: Callable[..., Any]) -> LoopThread:
        loop = self._require()
        if loop.is_current:
            raise ConfigError(
                f"{getattr(function, '__qualname__', function)} would block the event loop that it needs: this code "
                "runs inside that loop, where agents and processes are async; use what their turn or context offers, "
                "or call this from a plain function, which a step runs in a thread"
            )
        return loop

    def _require(self) -> LoopThread:
        if self._loop is None:
            raise self._closed()
        return self._loop


@atexit.register
def _close_all() -> None:
    for portal in list(_open_portals):
        portal.close_at_exit()
    for thread in list(leaving):
        thread.join(_LAST_WORD_S)
