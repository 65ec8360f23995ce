"""Threads of LangGraph in a storage: one session each, with its checkpoints and pending writes as records."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypedDict

from lash.adapters.langgraph import codec
from lash.adapters.langgraph.codec import Place, StoredCheckpoint, Write
from lash.adapters.langgraph.items import ItemLists
from lash.errors import NodeConflict, RecordConflict, RevisionConflict, SessionDeleted, SessionNotFound
from lash.model.record import RecordChange, RecordPut
from lash.model.session.commit import Append, Commit, GraphDelta, Unchanged
from lash.model.session.node import BytesEntry, Node
from lash.model.session.session import ActivePath, Retention, SessionFilter
from lash.model.value import JSONObject
from lash.stores.storage import Storage

PAGE: Final = 500
"""Records in one read of a list, and item nodes in one commit of a long list."""
_MAX_THREADS: Final = 256
_MAX_CHECKPOINTS: Final = 32
"""The checkpoints that a thread keeps in memory: parents of the next ones, one for each namespace that is active."""
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Items have no time of their own; the id of an item must not depend on when it was stored."""
_GONE: Final = (SessionNotFound, SessionDeleted)


class Thread:
    """What this process remembers of a thread: facts that hold at ``revision``. All of it can be read again."""

    def __init__(self, *, frozen_items: bool = False) -> None:
        self.lock = asyncio.Lock()
        self.revision: int | None = None
        self.is_deleted = False
        self.lists = ItemLists(are_frozen=frozen_items)
        self.runs: set[str] = set()
        self._checkpoints: OrderedDict[str, StoredCheckpoint] = OrderedDict()

    def reset(self) -> None:
        """Forget everything but the lock."""
        self.revision, self.is_deleted, self.runs = None, False, set()
        self.lists = ItemLists(are_frozen=self.lists.are_frozen)
        self._checkpoints.clear()

    def remember(self, key: str, checkpoint: StoredCheckpoint) -> None:
        self._checkpoints[key] = checkpoint
        self._checkpoints.move_to_end(key)
        if len(self._checkpoints) > _MAX_CHECKPOINTS:
            self._checkpoints.popitem(last=False)

    def recall(self, key: str) -> StoredCheckpoint | None:
        return self._checkpoints.get(key)


class ThreadCache:
    """The threads that this process used last."""

    def __init__(self, *, frozen_items: bool) -> None:
        self.frozen_items = frozen_items
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self, session_id: str) -> Thread:
        """Return the thread. All are forgotten when the storage was closed and runs in another event loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._threads = loop, OrderedDict()
        thread = self._threads.setdefault(session_id, Thread(frozen_items=self.frozen_items))
        self._threads.move_to_end(session_id)
        if len(self._threads) > _MAX_THREADS:
            self._threads.popitem(last=False)
        return thread

    def forget(self, session_id: str) -> None:
        self._threads.pop(session_id, None)


async def latest(storage: Storage, place: Place) -> StoredCheckpoint | None:
    """Return the checkpoint with the greatest id in a namespace."""
    wanted = {"namespace": codec.namespace_key(place.namespace)}
    with contextlib.suppress(*_GONE):
        for record in await storage.records.list(
            codec.CHECKPOINTS, session_id=place.session_id, where=wanted, limit=1, reverse=True
        ):
            return codec.decode_checkpoint(codec.as_bytes(record.value))
    return None


async def find(storage: Storage, place: Place) -> StoredCheckpoint | None:
    """Return the checkpoint of an id, or the latest one."""
    if place.checkpoint_id is None:
        return await latest(storage, place)
    key = codec.checkpoint_key(place.namespace, place.checkpoint_id)
    with contextlib.suppress(*_GONE):
        record = await storage.records.get(codec.CHECKPOINTS, key, session_id=place.session_id)
        return None if record is None else codec.decode_checkpoint(codec.as_bytes(record.value))
    return None


async def newest_first(
    storage: Storage, session_id: str, *, namespace: str | None = None, before: str | None = None
) -> AsyncIterator[StoredCheckpoint]:
    """Return the checkpoints of a thread, or of one of its namespaces, page by page."""
    where = None if namespace is None else {"namespace": codec.namespace_key(namespace)}
    after = None if before is None else codec.before_key(before)
    while True:
        try:
            page = await storage.records.list(
                codec.CHECKPOINTS, session_id=session_id, where=where, after=after, limit=PAGE, reverse=True
            )
        except _GONE:
            return
        for record in page:
            yield codec.decode_checkpoint(codec.as_bytes(record.value))
        if len(page) < PAGE:
            return
        after = page[-1].key


async def pending_writes(storage: Storage, session_id: str, checkpoint: StoredCheckpoint) -> list[Write]:
    """Return the writes that are stored at a checkpoint, in the order of their keys."""
    prefix, after, writes = codec.writes_prefix(checkpoint.namespace, checkpoint.checkpoint_id), None, list[Write]()
    while True:
        page = await storage.records.list(codec.WRITES, session_id=session_id, prefix=prefix, after=after, limit=PAGE)
        for record in page:
            writes += codec.decode_writes(codec.as_bytes(record.value))
        if len(page) < PAGE:
            return writes
        after = page[-1].key


async def put_writes(storage: Storage, place: Place, task_id: str, writes: list[Write]) -> None:
    """Store the writes of a task. They may come before their checkpoint, but never bring back a deleted thread."""
    assert place.checkpoint_id is not None, "LangGraph names the checkpoint of the writes"
    key = codec.writes_key(place.namespace, place.checkpoint_id, task_id)
    expected = 0
    while True:
        put = RecordPut(
            collection=codec.WRITES,
            key=key,
            value=codec.encode_writes(writes),
            session_id=place.session_id,
            expected_version=expected,
        )
        try:
            await storage.records.put_many([put])
        except RecordConflict:
            record = await storage.records.get(codec.WRITES, key, session_id=place.session_id)
            expected = 0 if record is None else record.version
            if record is not None:
                writes = codec.merge_writes(codec.decode_writes(codec.as_bytes(record.value)), writes)
        except SessionNotFound:
            await _create_empty(storage, place)
        except SessionDeleted:
            return
        else:
            return


async def refresh(storage: Storage, place: Place, thread: Thread) -> None:
    """Forget what is remembered of a thread, and read the revision at which the next facts are read."""
    thread.reset()
    try:
        thread.revision = await storage.session(place.session_id).revision()
    except SessionNotFound:
        pass
    except SessionDeleted:
        thread.is_deleted = True


async def publish(
    storage: Storage, place: Place, thread: Thread, nodes: Sequence[Node], records: Sequence[RecordChange]
) -> None:
    """Store new items and the records that refer to them, at the revision at which they were planned.

    A thread is created with its first checkpoint. Raises RevisionConflict if the thread has changed, and SessionDeleted
    for a checkpoint whose parent was deleted with the thread. Items beyond what one commit takes are stored before it,
    where nothing refers to them yet.
    """
    while len(nodes) > PAGE:
        await _commit(storage, place, thread, nodes[:PAGE], ())
        nodes = nodes[PAGE:]
    await _commit(storage, place, thread, nodes, records)


async def _commit(
    storage: Storage, place: Place, thread: Thread, nodes: Sequence[Node], records: Sequence[RecordChange]
) -> None:
    while True:
        graph = Append(nodes=tuple(nodes)) if nodes else Unchanged()
        try:
            if thread.revision is None:
                thread.revision, thread.is_deleted = await _create(storage, place, graph, records), False
                return
            commit = Commit(
                session_id=place.session_id,
                expected_revision=thread.revision,
                graph=graph,
                records=tuple(records),
            )
            thread.revision = (await storage.session(place.session_id).commit(commit)).revision
        except NodeConflict:
            # An equal list was stored before, from another checkpoint or by another process.
            stored = await storage.session(place.session_id).nodes([node.node_id for node in nodes])
            nodes = [node for node in nodes if node.node_id not in stored]
        else:
            return


async def _create_empty(storage: Storage, place: Place) -> None:
    await storage.sessions.create(place.session_id, **about(place))


async def _create(storage: Storage, place: Place, graph: GraphDelta, records: Sequence[RecordChange]) -> int:
    commit = Commit(session_id=place.session_id, expected_revision=0, graph=graph, records=tuple(records))
    created = await storage.sessions.create(place.session_id, commit=commit, **about(place))
    if created.commit is None:
        raise RevisionConflict(place.session_id, expected=0, actual=created.revision)
    return created.commit.revision


class About(TypedDict):
    """What the session of a thread is created with."""

    labels: dict[str, str]
    metadata: JSONObject
    retention: Retention


def about(place: Place) -> About:
    """Return what the session of a thread is created with."""
    return About(
        labels={"framework": "langgraph"}, metadata={"thread_id": place.thread_id}, retention=Retention.latest()
    )


def path_to(leaf: str) -> ActivePath:
    return ActivePath(leaf_node_id=leaf)


def item_node(node_id: str, parent_id: str | None, content: bytes) -> Node:
    return Node(
        node_id=node_id,
        parent_node_id=parent_id,
        timestamp=_EPOCH,
        entry=BytesEntry(plugin_type=codec.ITEM_TYPE, content=content),
    )


async def thread_ids(storage: Storage) -> AsyncIterator[str]:
    """Return the threads of the storage, the last created first."""
    cursor: str | None = None
    while True:
        page = await storage.sessions.list(SessionFilter(prefix=codec.SESSION_PREFIX), limit=PAGE, cursor=cursor)
        for each in page.sessions:
            yield str(each.meta.metadata.get("thread_id", each.meta.session_id.removeprefix(codec.SESSION_PREFIX)))
        cursor = page.next_cursor
        if cursor is None:
            return
