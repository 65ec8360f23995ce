"""Lists of checkpoints, over one thread or all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, get_checkpoint_id
from langgraph.checkpoint.serde.base import SerializerProtocol

from lash.adapters.langgraph import threads
from lash.adapters.langgraph.codec import Place, StoredCheckpoint
from lash.stores.storage import Storage

_PAGE: Final = 50
"""Checkpoints that are read before the first is returned; between two pages the storage is not used."""
ReadStored: TypeAlias = Callable[[Storage, Place, StoredCheckpoint], Awaitable[CheckpointTuple | None]]


class Scan:
    """A list of checkpoints that is read page by page, from one thread after the other."""

    def __init__(
        self,
        read: ReadStored,
        serde: SerializerProtocol,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._read = read
        self._serde = serde
        self._named: Mapping[str, Any] = (config or {}).get("configurable", {})
        self._wanted = wanted or {}
        self._before = None if before is None else get_checkpoint_id(before)
        self._left = limit
        self._found: list[tuple[Place, str]] | None = None

    async def page(self, storage: Storage) -> list[CheckpointTuple]:
        """Return the next checkpoints; none at the end."""
        if self._found is None:
            self._found = await self._find(storage)
        page: list[CheckpointTuple] = []
        while self._found and not page:
            for place, _ in self._found[:_PAGE]:
                stored = await threads.find(storage, place)
                read = None if stored is None else await self._read(storage, place, stored)
                page += [] if read is None else [read]
            self._found = self._found[_PAGE:]
        return page

    async def _find(self, storage: Storage) -> list[tuple[Place, str]]:
        """Return the places of what matches, the greatest checkpoint id first."""
        if "thread_id" in self._named:
            ids = [str(self._named["thread_id"])]
        else:
            ids = [each async for each in threads.thread_ids(storage)]
        found = [each for thread_id in ids async for each in self._matching(storage, thread_id)]
        found.sort(key=lambda each: each[1], reverse=True)
        return found if self._left is None else found[: self._left]

    async def _matching(self, storage: Storage, thread_id: str) -> AsyncIterator[tuple[Place, str]]:
        namespace, only = self._named.get("checkpoint_ns"), self._named.get("checkpoint_id")
        session_id, count = Place(thread_id, "", None).session_id, 0
        async for each in threads.newest_first(storage, session_id, namespace=namespace, before=self._before):
            if count == self._left:
                return
            if (only is None or each.checkpoint_id == only) and self._has_metadata(each):
                yield Place(thread_id, each.namespace, each.checkpoint_id), each.checkpoint_id
                count += 1

    def _has_metadata(self, stored: StoredCheckpoint) -> bool:
        if not self._wanted:
            return True
        metadata = self._serde.loads_typed(stored.metadata)
        return all(name in metadata and metadata[name] == value for name, value in self._wanted.items())
