"""Looking at sessions on behalf of many observers, with few reads and few connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar, cast
from weakref import WeakKeyDictionary

from lash.model.activity import Look, Place, SeenChanges
from lash.stores.activity import ActivityStore
from lash.stores.storage import Storage

_AT_ONCE: Final = 2
"""How many looks of one storage run at a time: turns need its connections more than those who watch them."""
_LONGEST_REST_S: Final = 0.25

T = TypeVar("T")


class Looks:
    """The looks of all observers of one storage.

    Observers who have seen a session up to the same place share one read, as most do who were woken by one hint. Nobody
    joins a read that has begun: it might not show what the hint was about.
    """

    def __init__(self, store: ActivityStore) -> None:
        self._store = store
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._waiting: dict[Hashable, asyncio.Task[object]] = {}

    async def look(self, session_id: str, place: Place | None) -> Look:
        """Look at a session; see `lash.stores.activity.ActivityStore.look`."""
        return await self._share((session_id, place), lambda: self._store.read(session_id, place))

    async def process_changes(self, session_id: str, cursor: str) -> SeenChanges | None:
        """Look at processes; see `lash.stores.activity.ActivityStore.process_changes`."""
        return await self._share((session_id, cursor), lambda: self._store.process_changes(session_id, cursor))

    async def _share(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        task = self._waiting.get(key)
        if task is None:
            task = asyncio.create_task(self._read(key, read), name="lash-look")
            # Whoever asked may be gone by the time it fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._waiting[key] = task
        return cast("T", await asyncio.shield(task))

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[object]]) -> object:
        await self._turns.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        del self._waiting[key]
        try:
            return await read()
        finally:
            # However fast hints come and however many observe, looking takes at most half of the time.
            loop.call_later(min(loop.time() - began, _LONGEST_REST_S), self._turns.release)


_looks: Final[WeakKeyDictionary[Storage, Looks]] = WeakKeyDictionary()


def looks_of(storage: Storage) -> Looks:
    """Return what all observers of a storage share."""
    looks = _looks.get(storage)
    if looks is None:
        looks = _looks[storage] = Looks(storage.activity)
    return looks
