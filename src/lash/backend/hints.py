"""Hints inside one process: any number of listeners, each with hints of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

from lash.errors import InvalidInput, StorageClosed


class LocalListener:
    """One who waits for hints; the contract is `lash.stores.hints.Listener`."""

    def __init__(self, hints: LocalHints, *, everything: bool, work: bool = False) -> None:
        self.everything = everything
        self.work = work
        self._hints = hints
        self._hinted = asyncio.Event()
        self._tag: str | None = None

    async def wait(self, timeout_s: float) -> str | None:
        self._hints.check_listening(self)
        self.begin_waiting()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._hinted.wait()
        finally:
            self.end_waiting()
        self._hints.check_listening(self)
        self._hinted.clear()
        tag, self._tag = self._tag, None
        self.catch_up()
        return tag

    def hint(self, tag: str | None = None) -> None:
        """Wake the one who waits, or let the next wait return at once."""
        if not self._hinted.is_set():
            self._tag = tag
        elif tag != self._tag:
            self._tag = None
        self._hinted.set()

    def close(self) -> None:
        self._hints.remove(self)
        self._hinted.set()

    def begin_waiting(self) -> None:
        """Do what a wait needs, before it begins."""

    def end_waiting(self) -> None:
        """Undo that, however the wait ended."""

    def catch_up(self) -> None:
        """Take what has happened by now for seen: the one who waited looks only after this."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalHints:
    """The listeners of one storage. ``on_idle`` is called when the last of them has closed."""

    def __init__(self, on_idle: Callable[[], None] | None = None) -> None:
        self._on_idle = on_idle
        self._listeners: set[LocalListener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def add(self, listener: LocalListener) -> None:
        """Let the listener have every hint from now on."""
        if self._closed:
            raise StorageClosed
        self._loop = asyncio.get_running_loop()
        self._listeners.add(listener)

    def remove(self, listener: LocalListener) -> None:
        """Give the listener no more hints."""
        if listener in self._listeners:
            self._listeners.discard(listener)
            if not self._listeners and self._on_idle is not None:
                self._on_idle()

    def give(self, *, process: bool, work: bool = True, tag: str | None = None) -> None:
        """Give a hint about processes, about work, or about both, to those who listen for that or for everything."""
        for listener in self._listeners:
            if listener.everything or (work if listener.work else process):
                listener.hint(tag)

    def close(self) -> None:
        """End every wait with StorageClosed."""
        self._closed = True
        # A loop that is gone has taken its waiting tasks with it.
        if self._loop is asyncio.get_running_loop():
            self.give(process=True)
        self._listeners.clear()

    def check_listening(self, listener: LocalListener) -> None:
        """Raise StorageClosed or InvalidInput if the listener gets no hints any more."""
        if self._closed:
            raise StorageClosed
        if listener not in self._listeners:
            raise InvalidInput("this listener was closed; listen anew")


def session_tag(session_id: str) -> str:
    """Return by what a hint tells those apart who may be meant.

    Whoever may connect to a database can hear what is told in it, also who may read none of its tables; so it is too
    little of a hash to tell who it was.
    """
    return hashlib.sha256(session_id.encode()).hexdigest()[:4]
