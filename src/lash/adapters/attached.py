"""The storage of an adapter, which frameworks call from any event loop and any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from lash.adapters.settled import settled
from lash.connect.any_loop import SharedStorage, link_of
from lash.connect.link import SharedLink
from lash.connect.open import OpenOptions, is_sqlite
from lash.connect.shared import shared_link
from lash.errors import ConfigError
from lash.stores.storage import Storage

T = TypeVar("T")
StorageSource: TypeAlias = str | Storage
"""A storage URL, or a storage that the program has opened."""


def not_installed(framework: str, *, extra: str) -> ConfigError:
    """Return the error of an adapter whose framework cannot be imported."""
    return ConfigError(f"this adapter needs {framework}: pip install 'lash-runtime[{extra}]'")


class Attached:
    """Calls to the storage of an adapter, blocking or not.

    A URL names the storage that the process shares (`lash.shared`): two adapters on one URL use one storage, which the
    first call opens. A storage that the program opened stays the program's: it must be open as long as the adapter is
    used, and blocking calls come from other threads than that of its event loop.
    """

    def __init__(self, source: StorageSource) -> None:
        self._link: SharedLink | None = None
        self._storage: Storage | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_sqlite = False
        given: object = source
        if isinstance(source, str):
            self._link = shared_link(source, OpenOptions())
        elif isinstance(given, SharedStorage):
            self._link = link_of(given)
        else:
            self._storage, self._loop, self._is_sqlite = source, _running_loop(), is_sqlite(source)

    async def run(self, use: Callable[[Storage], Awaitable[T]], *, may_block: bool = False) -> T:
        """Return the result of a coroutine that runs in the event loop of the storage.

        ``may_block`` is for one that calls functions of the framework: in a shared storage, they run in its thread.
        """
        if self._link is not None:
            return await self._link.run(use, may_block=may_block)
        running, storage = asyncio.get_running_loop(), self._opened()
        self._loop = self._loop or running
        if self._loop is running:
            return await use(storage)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(use, storage), self._loop))

    async def settle(self, use: Callable[[Storage], Awaitable[T]], *, may_block: bool = False) -> T:
        """Return the result of a write; a cancelled caller gets CancelledError once the write has ended."""
        return await settled(self.run(use, may_block=may_block), starts_here=self.writes_here())

    def writes_here(self) -> bool:
        """Return whether a short write may end in the task of its caller: on SQLite, or in a shared storage."""
        return self._link is not None or (self._is_sqlite and self._loop in (None, _running_loop()))

    def block(self, use: Callable[[Storage], Awaitable[T]]) -> T:
        """Return the result of the same coroutine, blocking the thread until it has ended."""
        if self._link is not None:
            return self._link.block(use)
        storage, running = self._opened(), _running_loop()
        if self._loop is None or self._loop is running:
            raise ConfigError(
                "a blocking call of an adapter cannot run in the event loop of its storage; use the async method, "
                "or give the adapter a URL"
            )
        return asyncio.run_coroutine_threadsafe(_awaited(use, storage), self._loop).result()

    def _opened(self) -> Storage:
        assert self._storage is not None, "an adapter has a link or a storage"
        return self._storage


class LeftOpen:
    """``with`` and ``async with`` for objects that need neither: the storage stays open for its other users."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


async def _awaited(use: Callable[[Storage], Awaitable[T]], storage: Storage) -> T:
    return await use(storage)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
