"""Hints inside one storage: any number of listeners, each with its own pending hint."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from lash.errors import InvalidInput, StorageClosed
from lash.stores.hints import ANYTHING, NO_TAGS, Hint, Tags

_NOTHING: Final = Hint()


class LocalListener:
    """One listener of a storage; the contract is `lash.stores.hints.HintListener`."""

    def __init__(
        self, hints: LocalHints, *, everything: bool = False, work: bool = False, by_session: bool = False
    ) -> None:
        self.everything = everything or by_session
        self.work = work
        self.by_session = by_session
        self._hints = hints
        self._hinted = asyncio.Event()
        self._hint = _NOTHING

    async def wait(self, timeout_s: float) -> Hint:
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
        hint, self._hint = self._hint, _NOTHING
        return self.catch_up(hint)

    def hint(self, hint: Hint = ANYTHING) -> None:
        """Wake the task that waits, or let the next wait return at once."""
        self._hint = self._hint.merged(hint) if self._hinted.is_set() else hint
        self._hinted.set()

    def close(self) -> None:
        self._hints.remove(self)
        self._hinted.set()

    def begin_waiting(self) -> None:
        """Prepare for a wait."""

    def end_waiting(self) -> None:
        """Clean up after a wait, however it ended."""

    def catch_up(self, hint: Hint) -> Hint:
        """Return the hint, widened by the changes of other processes that this call counts as seen."""
        return hint

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
        """Give the listener every hint from now on."""
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

    def give(self, hint: Hint, *, work: bool = True) -> None:
        """Give a hint to the listeners for everything, and to those for processes or work that it concerns."""
        for listener in self._listeners:
            if listener.everything or (work if listener.work else hint.process):
                listener.hint(hint)

    def give_workers(self, hint: Hint) -> None:
        """Give a hint to the listeners for work."""
        for listener in self._listeners:
            if listener.work:
                listener.hint(hint)

    def give_others(self, hint: Hint) -> None:
        """Give a hint to the listeners for everything, and to those for processes if it is about processes."""
        for listener in self._listeners:
            if listener.everything or (hint.process and not listener.work):
                listener.hint(hint)

    @property
    def has_workers(self) -> bool:
        return any(listener.work for listener in self._listeners)

    @property
    def has_others(self) -> bool:
        return any(not listener.work for listener in self._listeners)

    def close(self) -> None:
        """End every wait with StorageClosed."""
        self._closed = True
        # If the listeners' event loop is gone, so are the tasks that waited in it.
        if self._loop is asyncio.get_running_loop():
            self.give(ANYTHING)
        self._listeners.clear()

    def check_listening(self, listener: LocalListener) -> None:
        """Raise StorageClosed or InvalidInput if the listener gets no more hints."""
        if self._closed:
            raise StorageClosed
        if listener not in self._listeners:
            raise InvalidInput("this listener was closed; call listen() again")


def hint_about(
    *, process: bool, session_id: str | None, changed: str | None, process_id: str | None = None, ended: bool = False
) -> Hint:
    """Return the hint for the arguments of `lash.stores.hints.Hints.notify`."""
    processes, over = _process_tags(process_id, ended=ended) if process else (NO_TAGS, NO_TAGS)
    if session_id is None and changed is None:
        return Hint(process=True, processes=processes, ended=over) if process else Hint(queued=None, changed=None)
    ready = None if session_id is None else session_tag(session_id)
    return Hint(
        process,
        NO_TAGS if ready is None else frozenset((ready,)),
        NO_TAGS if changed is None else frozenset((session_tag(changed),)),
        ready if changed is None else None,
        processes,
        over,
    )


def _process_tags(process_id: str | None, *, ended: bool) -> tuple[Tags, Tags]:
    if process_id is None:
        return None, None
    tags = frozenset((process_tag(process_id),))
    return tags, tags if ended else NO_TAGS


def process_tag(process_id: str) -> str:
    """Return a short hash that identifies a process in a notification."""
    return session_tag(process_id)


@functools.lru_cache(maxsize=4_096)
def session_tag(session_id: str) -> str:
    """Return a short hash that identifies the session in a notification.

    Every role that may connect to a database can read its notifications, including roles that may read none of its
    tables. The hash is therefore too short to identify the session to them.
    """
    return hashlib.sha256(session_id.encode()).hexdigest()[:4]


def worker_tag(worker_id: str) -> str:
    """Return a short hash that identifies a worker in a notification."""
    return hashlib.md5(worker_id.encode(), usedforsecurity=False).hexdigest()[:8]
