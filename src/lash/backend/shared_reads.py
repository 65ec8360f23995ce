"""Sharing reads between callers that want the same thing at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar, cast

_AT_ONCE: Final = 2
"""How many shared reads of one storage run at a time: turns need its connections more than their observers do."""
_LONGEST_REST_S: Final = 0.25
"""The longest pause after a read, however slow the database was."""

T = TypeVar("T")


class SharedReads:
    """Reads on behalf of many callers.

    Callers that ask for the same key share one read, as observers do that were woken by one hint. A caller never joins
    a read that has started: it might not include the change that the hint was about.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting: dict[Hashable, asyncio.Task[object]] = {}

    async def share(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return what the read for this key returns; start one if none waits to start."""
        task = self._waiting.get(key)
        if task is None:
            task = asyncio.create_task(self._read(key, read), name="lash-shared-read")
            # The callers may be gone by the time it fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._waiting[key] = task
        return cast("T", await asyncio.shield(task))

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[object]]) -> object:
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        del self._waiting[key]
        try:
            return await read()
        finally:
            # However fast hints come and however many observers there are, reads take at most half of the time.
            loop.call_later(min(loop.time() - began, _LONGEST_REST_S), self._slots.release)
