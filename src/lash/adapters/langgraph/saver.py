"""A checkpointer of LangGraph on a lash storage."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from lash.adapters.attached import Attached, LeftOpen, StorageSource
from lash.adapters.langgraph import codec, removal, threads
from lash.adapters.langgraph.channels import Draft, has_next_tasks, read_channels
from lash.adapters.langgraph.codec import Place, StoredCheckpoint, Write
from lash.adapters.langgraph.errors import ThreadMoved
from lash.adapters.langgraph.runs import checkpoint_records
from lash.adapters.langgraph.scan import Scan
from lash.adapters.langgraph.threads import Thread, ThreadCache
from lash.errors import CorruptData, RevisionConflict, SessionDeleted, SessionNotFound
from lash.stores.storage import Storage


class LashSaver(LeftOpen, BaseCheckpointSaver[Any]):
    """Stores the checkpoints of graphs: ``builder.compile(checkpointer=LashSaver("sqlite:///threads.db"))``.

    One object serves blocking and async graphs, from any thread and any event loop. It takes a storage URL or an open
    storage; ``with`` and ``async with`` are optional. A thread is a session: its lists grow by the items that are new,
    and deleting it deletes everything, so that a write that comes late does not bring it back.

    With ``single_writer``, a checkpoint of a run is refused with `ThreadMoved` if another run has stored one after the
    checkpoint that it continues from. Without it, as LangGraph has it, both are stored and the later one wins.

    A node may change an item of a list in place. The change is stored with the checkpoint of its step if it is one of
    the newest 32 items, and at the latest with the checkpoint that ends the run. What a caller changes in a state that
    it has read, or in the result of a run, is not stored. With ``frozen_items``, the program promises that it does
    neither, and the saver compares nothing.
    """

    def __init__(
        self,
        source: StorageSource,
        *,
        serde: SerializerProtocol | None = None,
        single_writer: bool = False,
        frozen_items: bool = False,
    ) -> None:
        super().__init__(serde=serde)
        self._attached = Attached(source)
        self._cache = ThreadCache(frozen_items=frozen_items)
        self._is_single_writer = single_writer

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the configuration names, by default the latest of its thread and namespace."""
        return self._attached.block(lambda storage: self._get(storage, config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the configuration names, by default the latest of its thread and namespace."""
        return await self._attached.run(lambda storage: self._get(storage, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's signature)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return checkpoints, the greatest id first; without a configuration, those of all threads."""
        scan = Scan(self.read_stored, self.serde, config, filter, before, limit)
        while page := self._attached.block(scan.page):
            yield from page

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's signature)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Return checkpoints, the greatest id first; without a configuration, those of all threads."""
        scan = Scan(self.read_stored, self.serde, config, filter, before, limit)
        while page := await self._attached.run(scan.page):
            for each in page:
                yield each

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. The same id again replaces the first."""
        return self._attached.block(lambda storage: self._put(storage, config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. The same id again replaces the first."""
        return await self._attached.run(lambda storage: self._put(storage, config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task has written, at the checkpoint from which it runs."""
        self._attached.block(lambda storage: self._put_writes(storage, config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task has written, at the checkpoint from which it runs."""
        await self._attached.run(lambda storage: self._put_writes(storage, config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with everything in it; writes of a run that still goes on are then ignored."""
        self._attached.block(lambda storage: self._delete(storage, thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with everything in it; writes of a run that still goes on are then ignored."""
        await self._attached.run(lambda storage: self._delete(storage, thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints and writes of runs, in all threads."""
        self._attached.block(lambda storage: self._delete_for_runs(storage, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints and writes of runs, in all threads."""
        await self._attached.run(lambda storage: self._delete_for_runs(storage, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one."""
        self._attached.block(lambda storage: self._copy(storage, source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one."""
        await self._attached.run(lambda storage: self._copy(storage, source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace, and those from which its delta channels are built, or none."""
        self._attached.block(lambda storage: self._prune(storage, thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace, and those from which its delta channels are built, or none."""
        await self._attached.run(lambda storage: self._prune(storage, thread_ids, strategy))

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ANN401, ARG002 (LangGraph's signature)
        """Return the next version of a channel: an integer, or a text in a thread that another saver has written."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}.{0:016}"
        return int(current or 0) + 1

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[Any]:
        """Return a saver on the same storage with another list of allowed types."""
        clone = super().with_allowlist(extra_allowlist)
        if isinstance(clone, LashSaver) and clone is not self:
            # What was decoded with one list must not be handed out under another.
            clone._cache = ThreadCache(frozen_items=self._cache.frozen_items)  # noqa: SLF001 (an object of this class)
        return clone

    async def _get(self, storage: Storage, config: RunnableConfig) -> CheckpointTuple | None:
        place = codec.place_of(cast("Mapping[str, object]", config))
        stored = await threads.find(storage, place)
        return None if stored is None else await self.read_stored(storage, place, stored)

    async def read_stored(self, storage: Storage, place: Place, stored: StoredCheckpoint) -> CheckpointTuple | None:
        """Return a checkpoint with its values and writes; None if it was deleted meanwhile."""
        thread = self._cache.get(place.session_id)
        try:
            async with thread.lock:
                if thread.revision is None:
                    await threads.refresh(storage, place, thread)
                values = await read_channels(storage, place.session_id, stored, thread, self.serde)
                thread.remember(codec.checkpoint_key(stored.namespace, stored.checkpoint_id), stored)
            writes = await threads.pending_writes(storage, place.session_id, stored)
        except (SessionNotFound, SessionDeleted):
            return None
        except CorruptData:
            if await threads.find(storage, place._replace(checkpoint_id=stored.checkpoint_id)) is None:
                return None
            raise
        checkpoint = cast("Checkpoint", {**self.serde.loads_typed(stored.rest), "channel_values": values})
        parent = None if stored.parent_id is None else _config(place.thread_id, stored.namespace, stored.parent_id)
        return CheckpointTuple(
            _config(place.thread_id, stored.namespace, stored.checkpoint_id),
            checkpoint,
            self.serde.loads_typed(stored.metadata),
            parent,
            cast("Any", self._pending(writes)),
        )

    def _pending(self, writes: Iterable[Write]) -> Sequence[tuple[str, str, Any]]:
        in_order = sorted(writes, key=lambda each: writes_sort_key(each.task_path, each.task_id, each.position))
        return [(each.task_id, each.channel, self.serde.loads_typed((each.format, each.content))) for each in in_order]

    async def _put(
        self,
        storage: Storage,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        place = codec.place_of(cast("Mapping[str, object]", config))
        about = get_checkpoint_metadata(config, metadata)
        thread = self._cache.get(place.session_id)
        async with thread.lock:
            while True:
                if thread.revision is None:
                    await threads.refresh(storage, place, thread)
                if thread.is_deleted and place.checkpoint_id is not None:
                    # A run that goes on after its thread was deleted.
                    break
                with contextlib.suppress(RevisionConflict, SessionDeleted):
                    await self._put_once(storage, place, thread, checkpoint, about, new_versions)
                    break
                thread.reset()
        return _config(place.thread_id, place.namespace, checkpoint["id"])

    async def _put_once(
        self,
        storage: Storage,
        place: Place,
        thread: Thread,
        checkpoint: Checkpoint,
        about: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> None:
        parent = await self._parent(storage, place, thread)
        if self._is_single_writer and about.get("source") in ("input", "loop"):
            await _check_is_latest(storage, place)
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        goes_on = about.get("source") == "loop" and has_next_tasks(values)
        draft = Draft(place.session_id, place.namespace, goes_on=goes_on)
        draft.add(values, versions, new_versions, parent, thread, self.serde)
        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        stored = StoredCheckpoint(
            place.namespace,
            checkpoint["id"],
            place.checkpoint_id,
            self.serde.dumps_typed(rest),
            self.serde.dumps_typed(about),
            draft.channels,
        )
        records = [*draft.values.values(), *checkpoint_records(place, stored, about.get("run_id"), thread.runs)]
        await threads.publish(storage, place, thread, list(draft.nodes.values()), records)
        draft.keep(thread)
        thread.remember(codec.checkpoint_key(place.namespace, stored.checkpoint_id), stored)

    async def _parent(self, storage: Storage, place: Place, thread: Thread) -> StoredCheckpoint | None:
        if place.checkpoint_id is None or thread.revision is None:
            return None
        return thread.recall(codec.checkpoint_key(place.namespace, place.checkpoint_id)) or await threads.find(
            storage, place
        )

    async def _put_writes(
        self, storage: Storage, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        encoded = []
        for position, (channel, value) in enumerate(writes):
            name, content = self.serde.dumps_typed(value)
            encoded.append(Write(task_id, WRITES_IDX_MAP.get(channel, position), channel, name, content, task_path))
        await threads.put_writes(storage, codec.place_of(cast("Mapping[str, object]", config)), task_id, encoded)

    async def _delete(self, storage: Storage, thread_id: str) -> None:
        place = Place(str(thread_id), "", None)
        await removal.delete_thread(storage, place)
        self._cache.forget(place.session_id)

    async def _delete_for_runs(self, storage: Storage, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            for session_id in await removal.delete_run(storage, str(run_id)):
                self._cache.forget(session_id)

    async def _copy(self, storage: Storage, source_thread_id: str, target_thread_id: str) -> None:
        target = Place(str(target_thread_id), "", None)
        await removal.copy_thread(storage, Place(str(source_thread_id), "", None), target)
        self._cache.forget(target.session_id)

    async def _prune(self, storage: Storage, thread_ids: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"unknown strategy {strategy!r}; use 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self._delete(storage, thread_id)
                continue
            place = Place(str(thread_id), "", None)
            await removal.keep_latest(storage, place, self.serde)
            self._cache.forget(place.session_id)


async def _check_is_latest(storage: Storage, place: Place) -> None:
    latest = await threads.latest(storage, place)
    if latest is not None and latest.checkpoint_id != place.checkpoint_id:
        raise ThreadMoved(place.thread_id, expected=place.checkpoint_id, actual=latest.checkpoint_id)


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}
