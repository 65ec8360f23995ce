"""A pytest plugin: the store suites of LangGraph get the adapter in the place of their own stores."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Self

import langgraph.store.memory
import langgraph.store.sqlite
import langgraph.store.sqlite.aio
from langgraph.store.base import IndexConfig, TTLConfig

import lash.sync
from lash.adapters.langgraph import LashStore

_KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""Directories of stores that a test never closes; they go when the run ends."""


def _fresh_url() -> str:
    _KEPT.append(tempfile.TemporaryDirectory())
    return f"sqlite:///{_KEPT[-1].name}/store.db"


class MemoryStore(LashStore):
    __slots__ = ()

    def __init__(self, *, index: IndexConfig | None = None) -> None:
        super().__init__(_fresh_url(), index=index)


class BlockingStore(LashStore):
    __slots__ = ()

    @classmethod
    @contextmanager
    def from_conn_string(
        cls, _: str, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> Iterator[Self]:
        url = _fresh_url()
        yield cls(url, index=index, ttl=ttl)
        lash.sync.shared(url).close()

    def setup(self) -> None:
        """Nothing to set up: the first call opens the storage."""


class AsyncStore(LashStore):
    __slots__ = ()

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls, _: str, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> AsyncIterator[Self]:
        url = _fresh_url()
        yield cls(url, index=index, ttl=ttl)
        await lash.shared(url).close()

    async def setup(self) -> None:
        """Nothing to set up: the first call opens the storage."""

    async def sweep_ttl(self) -> int:
        return await self.asweep_ttl()


langgraph.store.memory.InMemoryStore = MemoryStore
langgraph.store.sqlite.SqliteStore = BlockingStore
langgraph.store.sqlite.AsyncSqliteStore = AsyncStore
langgraph.store.sqlite.aio.AsyncSqliteStore = AsyncStore
