"""What a suite of tests needs from a backend, and a harness for every backend that `lash.open` knows.

A harness is one empty database for one test, whose time only the test moves. To prove a backend of your own, give the
contract suite of lash's repository (``tests/contract/``) a fixture ``harness`` that returns a `Harness` on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypedDict, Unpack

import lash
from lash.base.compression import Compression
from lash.base.seal import Sealer
from lash.model.session.commit import CommitBudget
from lash.model.session.session import Retention
from lash.stores.attachment import ByteStore
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock


class OpenOptions(TypedDict, total=False):
    """The options of `lash.open` that the suite uses."""

    compression: Compression
    budget: CommitBudget
    retention: Retention
    attachment_bytes: ByteStore
    sealer: Sealer
    on_statement: Callable[[str], None]


class NotShared(Exception):
    """The backend cannot open its database a second time, because it lives inside the first storage object."""


class Harness(Protocol):
    """One empty database for one test, and time that only the test moves."""

    @property
    def backend(self) -> str:
        """The name of the backend, for messages."""
        ...

    @property
    def durable(self) -> bool:
        """Whether the database outlives its storages."""
        ...

    @property
    def clock(self) -> ManualClock:
        """The time by which the storages decide. Once ``advance`` returns, all of them see the new time."""
        ...

    async def open(self, **options: Unpack[OpenOptions]) -> Storage:
        """Open one more storage on the database. The harness closes it."""
        ...

    async def reopen(self, **options: Unpack[OpenOptions]) -> Storage:
        """Close every storage, then open the database again; raise NotShared where it is gone by then."""
        ...


class URLHarness:
    """A harness on a database that a URL names, so that any number of storages can be open on it."""

    def __init__(self, backend: str, url: str, clock: ManualClock) -> None:
        self._backend = backend
        self._url = url
        self._clock = clock
        self._storages: list[Storage] = []

    @property
    def backend(self) -> str:
        return self._backend

    @property
    def durable(self) -> bool:
        return True

    @property
    def clock(self) -> ManualClock:
        return self._clock

    async def open(self, **options: Unpack[OpenOptions]) -> Storage:
        storage = await lash.open(self._url, clock=self._clock, **options)
        self._storages.append(storage)
        return storage

    async def reopen(self, **options: Unpack[OpenOptions]) -> Storage:
        await self.close()
        return await self.open(**options)

    async def close(self) -> None:
        """Close every storage that was opened."""
        while self._storages:
            await self._storages.pop().close()


class MemoryHarness:
    """A harness on a database in memory. There is one storage: opening it again returns the same."""

    backend = "memory"
    durable = False

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._storage: Storage | None = None
        self._opening = asyncio.Lock()

    async def open(self, **options: Unpack[OpenOptions]) -> Storage:
        async with self._opening:
            if self._storage is None:
                self._storage = await lash.open("sqlite://", clock=self.clock, **options)
            elif options:
                raise NotShared("a database in memory cannot be opened again with other options")
            return self._storage

    async def reopen(self, **_options: Unpack[OpenOptions]) -> Storage:
        raise NotShared("a database in memory is gone when its storage is closed")

    async def close(self) -> None:
        """Close the storage."""
        if self._storage is not None:
            await self._storage.close()
