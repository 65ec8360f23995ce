"""Removing and copying checkpoints: threads, runs, and what no checkpoint of a thread refers to any more."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from lash.adapters.langgraph import codec, threads
from lash.adapters.langgraph.codec import Items, Place, Stored, StoredCheckpoint
from lash.adapters.langgraph.runs import run_records
from lash.adapters.langgraph.threads import PAGE, Thread
from lash.errors import RevisionConflict, SessionDeleted, SessionNotFound
from lash.model.record import Record, RecordChange, RecordDelete, RecordPut
from lash.model.session.commit import Commit, GraphDelta, ReplaceFull, Unchanged
from lash.model.session.node import Node
from lash.stores.storage import Storage

_MAX_NODES: Final = 9_000
"""A commit has at most 10,000 rows; the items of a thread that keeps more stay where they are."""
_GONE: Final = (SessionNotFound, SessionDeleted)


async def delete_thread(storage: Storage, place: Place) -> None:
    """Delete a thread and the records that lead to it."""
    runs: list[str] = []
    with contextlib.suppress(*_GONE):
        runs = [record.key for record in await _all(storage, codec.RUNS, place.session_id)]
    await storage.sessions.delete(place.session_id)
    for start in range(0, len(runs), PAGE):
        keys = [f"{run}/{place.session_id}" for run in runs[start : start + PAGE]]
        await storage.records.delete_many([RecordDelete(collection=codec.RUNS, key=key) for key in keys])


async def delete_run(storage: Storage, run_id: str) -> list[str]:
    """Delete the checkpoints of a run in all threads, and return the sessions that had some."""
    run, changed = codec.run_key(run_id), []
    for record in await _all(storage, codec.RUNS, None, prefix=f"{run}/"):
        place = Place(str(record.value), "", None)
        of_run = {each.key for each in await _try_all(storage, codec.CHECKPOINTS, place.session_id, where={"run": run})}
        await _remove(storage, place, of_run)
        deletes = [
            RecordDelete(collection=codec.RUNS, key=record.key),
            RecordDelete(collection=codec.RUNS, key=run, session_id=place.session_id),
        ]
        with contextlib.suppress(*_GONE):
            await storage.records.delete_many(deletes)
        changed.append(place.session_id)
    return changed


async def keep_latest(storage: Storage, place: Place, serde: SerializerProtocol) -> None:
    """Remove all but the latest checkpoint of each namespace, and those from which its delta channels are built."""
    checkpoints = [each async for each in threads.newest_first(storage, place.session_id)]
    kept = {codec.key_of(each) for each in _needed(checkpoints, serde)}
    known = {codec.key_of(each) for each in checkpoints}
    await _remove(storage, place, known - kept)


async def copy_thread(storage: Storage, source: Place, target: Place) -> None:
    """Copy the items, values, writes and checkpoints of a thread; the checkpoints come last, the oldest first."""
    nodes: list[Node] = []
    try:
        while page := await storage.session(source.session_id).list_nodes(
            codec.ITEM_KIND, after=nodes[-1].node_id if nodes else None, limit=PAGE
        ):
            nodes += page
        records = [
            record
            for collection in (codec.VALUES, codec.WRITES, codec.RUNS, codec.CHECKPOINTS)
            for record in await _all(storage, collection, source.session_id)
        ]
    except _GONE:
        return
    thread = Thread()
    await threads.refresh(storage, target, thread)
    await threads.publish(storage, target, thread, nodes, ())
    for start in range(0, len(records), PAGE):
        puts = [put for record in records[start : start + PAGE] for put in _copies(record, target)]
        await threads.publish(storage, target, thread, (), puts)


def _copies(record: Record, target: Place) -> Iterator[RecordPut]:
    if record.collection == codec.RUNS:
        yield from run_records(target, record.key)
        return
    yield RecordPut(
        collection=record.collection,
        key=record.key,
        value=record.value,
        session_id=target.session_id,
        index=record.index,
    )


def _needed(newest_first: Sequence[StoredCheckpoint], serde: SerializerProtocol) -> Iterator[StoredCheckpoint]:
    """Return what a thread keeps: the latest of each namespace, with the ancestors that its delta channels need."""
    by_id = {(each.namespace, each.checkpoint_id): each for each in newest_first}
    seen: set[str] = set()
    for latest in newest_first:
        if latest.namespace in seen:
            continue
        seen.add(latest.namespace)
        yield latest
        metadata = serde.loads_typed(latest.metadata)
        missing = set(metadata.get("counters_since_delta_snapshot") or ()) - set(latest.channels)
        each: StoredCheckpoint | None = latest
        while missing and each is not None and each.parent_id is not None:
            each = by_id.get((each.namespace, each.parent_id))
            if each is not None:
                yield each
                missing -= set(each.channels)


async def _remove(storage: Storage, place: Place, keys: Collection[str]) -> None:
    """Remove the checkpoints of these keys with their writes, and the values and items that only they refer to."""
    while True:
        try:
            head = await storage.session(place.session_id).head()
            checkpoints = [each async for each in threads.newest_first(storage, place.session_id)]
            doomed = [each for each in reversed(checkpoints) if codec.key_of(each) in keys]
            if not doomed or head is None:
                return
            if len(doomed) == len(checkpoints):
                await delete_thread(storage, place)
                return
            kept = [each for each in checkpoints if codec.key_of(each) not in keys]
            revision = await _remove_records(storage, place, head.revision, doomed, kept)
            await _remove_items(storage, place, revision, head.node_count, kept)
        except RevisionConflict:
            # A run has stored a checkpoint meanwhile, which may refer to what was to be removed.
            continue
        except _GONE:
            return
        else:
            return


async def _remove_records(
    storage: Storage, place: Place, revision: int, doomed: Sequence[StoredCheckpoint], kept: Sequence[StoredCheckpoint]
) -> int:
    """Remove checkpoints, the oldest first, and with the last checkpoint that refers to a value the value."""
    uses: dict[str, int] = {}
    for each in (*doomed, *kept):
        for key in _value_keys(each):
            uses[key] = uses.get(key, 0) + 1
    deletes: list[RecordChange] = []
    for position, each in enumerate(doomed, 1):
        deletes.append(_delete(codec.CHECKPOINTS, codec.key_of(each), place))
        prefix = codec.writes_prefix(each.namespace, each.checkpoint_id)
        writes = await _all(storage, codec.WRITES, place.session_id, prefix=prefix)
        deletes += [_delete(codec.WRITES, record.key, place) for record in writes]
        for key in _value_keys(each):
            uses[key] -= 1
            if not uses[key]:
                deletes.append(_delete(codec.VALUES, key, place))
        if len(deletes) >= PAGE or position == len(doomed):
            revision = await _commit(storage, place, revision, Unchanged(), deletes)
            deletes = []
    return revision


async def _remove_items(
    storage: Storage, place: Place, revision: int, node_count: int, kept: Sequence[StoredCheckpoint]
) -> None:
    session = storage.session(place.session_id)
    needed: dict[str, Node] = {}
    leaf: str | None = None
    leaves = dict.fromkeys(
        channel.leaf for each in kept for channel in each.channels.values() if isinstance(channel, Items)
    )
    for leaf in leaves:
        read = await session.load(threads.path_to(leaf))
        needed |= {node.node_id: node for node in (read.graph.nodes if read is not None else ())}
    if len(needed) == node_count or len(needed) > _MAX_NODES:
        return
    graph = ReplaceFull(nodes=tuple(needed.values()), leaf_node_id=leaf, replaced_node_count=node_count)
    await _commit(storage, place, revision, graph, ())
    await session.vacuum()


async def _commit(
    storage: Storage, place: Place, revision: int, graph: GraphDelta, records: Sequence[RecordChange]
) -> int:
    commit = Commit(session_id=place.session_id, expected_revision=revision, graph=graph, records=tuple(records))
    return (await storage.session(place.session_id).commit(commit)).revision


def _value_keys(stored: StoredCheckpoint) -> Collection[str]:
    return {key for channel in stored.channels.values() if isinstance(channel, Stored) for key in channel.keys}


def _delete(collection: str, key: str, place: Place) -> RecordDelete:
    return RecordDelete(collection=collection, key=key, session_id=place.session_id)


async def _try_all(storage: Storage, collection: str, session_id: str, where: dict[str, str]) -> list[Record]:
    try:
        return await _all(storage, collection, session_id, where=where)
    except _GONE:
        return []


async def _all(
    storage: Storage,
    collection: str,
    session_id: str | None,
    *,
    prefix: str = "",
    where: dict[str, str] | None = None,
) -> list[Record]:
    records: list[Record] = []
    while True:
        page = await storage.records.list(
            collection,
            session_id=session_id,
            prefix=prefix,
            where=where,
            after=records[-1].key if records else None,
            limit=PAGE,
        )
        records += page
        if len(page) < PAGE:
            return records
