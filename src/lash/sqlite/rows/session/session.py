"""The rows of sessions on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from lash.base.compression import BlobRef
from lash.model.session.commit import AppendResult, CommitResult
from lash.model.session.session import ActivePath, FullGraph, ReadScope, SessionPage
from lash.plan.key_range import KeyRange
from lash.plan.sealed import METADATA
from lash.plan.session.append import PreparedAppend
from lash.plan.session.change import FeedEnd, SessionCursor, SessionFeed
from lash.plan.session.checkpoint import CheckpointRow, ComponentRow, CurrentComponent
from lash.plan.session.commit import PreparedCommit
from lash.plan.session.erase import LONGEST_ERASED, PreparedErasure
from lash.plan.session.fork import PreparedFork
from lash.plan.session.frame import FrameRow
from lash.plan.session.kind import NodePage
from lash.plan.session.meta import EncodedMeta, MetaChange, MetaRow
from lash.plan.session.node import FEW_NODES, FEW_RAW_NODES, WHOLE_PATH, PathRow, TailRow
from lash.plan.session.page import PreparedPage
from lash.plan.session.session import HeldNode, ReadRow, RevisionRows, uncommitted
from lash.plan.session.trace import TurnTraceRow
from lash.plan.session.turn import TurnRow
from lash.plan.session.usage import UsageRow
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.append import apply_append
from lash.sqlite.rows.session.change import read_changes, read_changes_end
from lash.sqlite.rows.session.commit import apply_commit
from lash.sqlite.rows.session.create import create_committed
from lash.sqlite.rows.session.delete import delete_expired_sessions, delete_session, delete_sessions
from lash.sqlite.rows.session.erase import apply_erasure
from lash.sqlite.rows.session.fork import add_labels, apply_fork, insert_session, recount
from lash.sqlite.rows.session.lookup import find_head, find_meta, find_session_key, missing
from lash.sqlite.rows.session.node import read_children, read_kind, read_nodes
from lash.sqlite.rows.session.page import read_page
from lash.sqlkit.rows import Number, Text
from lash.stores.session import DecideAppend, DecideCommit, DecideErasure, DecideFirstCommit, DecideFork, DecodePage

R = TypeVar("R")
T = TypeVar("T")

_LONGEST_TAIL: Final = 5_000
"""Longer paths are read in a thread, with a connection of its own."""


class SQLiteSessionRows:
    """The sessions of one SQLite storage; the contract is `lash.stores.session.SessionRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, encoded: EncodedMeta) -> tuple[MetaRow, bool]:
        def body(transaction: Transaction) -> tuple[MetaRow, bool]:
            created = insert_session(transaction, encoded)
            return find_meta(transaction, encoded.meta.session_id), created

        return await self._database.write(body)

    async def create_committed(
        self, encoded: EncodedMeta, prepared: PreparedCommit, decide: DecideFirstCommit
    ) -> tuple[MetaRow, TurnRow | None, CommitResult | None]:
        write = self._database.write_briefly if prepared.is_brief else self._database.write
        return await write(lambda transaction: create_committed(transaction, encoded, prepared, decide))

    async def fork(self, prepared: PreparedFork, decide: DecideFork) -> tuple[MetaRow, bool]:
        return await self._database.write(lambda transaction: apply_fork(transaction, prepared, decide))

    async def find(self, session_id: str) -> MetaRow | None:
        return self._database.read(lambda reader: reader.one(MetaRow, "session_meta", session_id=session_id))

    async def page(self, page: PreparedPage, decode: DecodePage) -> SessionPage:
        return await self._database.read_in_thread(lambda reader: read_page(reader, page, decode))

    async def ids(self, within: KeyRange, limit: int) -> list[str]:
        rows = self._database.read(
            lambda reader: reader.all(Text, "session_ids", first=within.first, end=within.end, limit=limit)
        )
        return [row.text for row in rows]

    async def changes(self, after: SessionCursor, limit: int) -> SessionFeed:
        return await self._database.read_in_thread(lambda reader: read_changes(reader, after, limit))

    async def changes_end(self) -> FeedEnd:
        return self._database.read(read_changes_end)

    async def delete(self, session_id: str) -> bool:
        return await self._database.write(lambda transaction: delete_session(transaction, session_id))

    async def delete_many(self, session_ids: Sequence[str]) -> list[str]:
        return await delete_sessions(self._database, session_ids)

    async def delete_expired(self, limit: int) -> list[str]:
        return await delete_expired_sessions(self._database, limit)

    async def meta(self, session_id: str) -> MetaRow:
        return self._database.read(lambda reader: find_meta(reader, session_id))

    async def change_meta(self, change: MetaChange) -> None:
        await self._database.write(lambda transaction: _change_meta(transaction, change))

    async def read(self, session_id: str) -> ReadRow:
        rows = self._database.ask(ReadRow, "session_read", session_id=session_id)
        return rows[0] if rows else self._database.read(lambda reader: _read(reader, session_id))

    async def load(self, session_id: str, scope: ReadScope, decode: Callable[[RevisionRows], T]) -> T:
        last = scope.last if isinstance(scope, ActivePath) and scope.last is not None else WHOLE_PATH
        return await self._read_some(last, lambda reader: decode(_load(reader, session_id, scope)))

    async def path(self, session_id: str, scope: ActivePath, decode: Callable[[list[PathRow]], T]) -> T:
        last = WHOLE_PATH if scope.last is None else scope.last
        return await self._read_some(
            last, lambda reader: decode(_nodes(reader, _read(reader, session_id), scope)), few=FEW_RAW_NODES
        )

    @property
    def longest_tail(self) -> int:
        return _LONGEST_TAIL

    async def tail(
        self, session_id: str, last: int, decode: Callable[[list[TailRow]], Sequence[T]]
    ) -> list[Sequence[T]]:
        rows = self._database.ask(TailRow, "node_tail", **self._tail(session_id, last))
        pieces = [decode(rows)]
        while pieces[-1] and (last := last - len(rows)) > 0 and rows[0].parent_node_id is not None:
            # Each piece takes about a millisecond, and other tasks run in between.
            await asyncio.sleep(0)
            below = rows[0].node_id
            rows = self._database.ask(TailRow, "node_tail_above", node_id=below, **self._tail(session_id, last))
            pieces.append(decode(rows))
        return pieces

    def _tail(self, session_id: str, last: int) -> dict[str, SQLiteValue]:
        longest = None if self._database.seals.is_active else LONGEST_ERASED
        return {"session_id": session_id, "last": min(last, FEW_RAW_NODES), "longest_erased": longest}

    async def node(self, session_id: str, node_id: str) -> PathRow | None:
        def body(reader: Reader) -> PathRow | None:
            key = _read(reader, session_id).session_key
            return reader.one(PathRow, "node_one", session_key=key, node_id=node_id)

        return self._database.read(body)

    async def nodes(self, session_id: str, node_ids: Sequence[str], decode: Callable[[list[PathRow]], T]) -> list[T]:
        return [await self._read_some(len(node_ids), lambda reader: decode(read_nodes(reader, session_id, node_ids)))]

    async def children(
        self, session_id: str, node_id: str, page: NodePage, decode: Callable[[list[PathRow]], T]
    ) -> T | None:
        def body(reader: Reader) -> T | None:
            rows = read_children(reader, session_id, node_id, page)
            return None if rows is None else decode(rows)

        return await self._read_some(page.limit, body)

    async def list_nodes(
        self, session_id: str, kind: str, page: NodePage, decode: Callable[[list[PathRow]], T]
    ) -> T | None:
        def body(reader: Reader) -> T | None:
            rows = read_kind(reader, session_id, kind, page)
            return None if rows is None else decode(rows)

        return await self._read_some(page.limit, body)

    async def _read_some(self, nodes: int, body: Callable[[Reader], T], *, few: int = FEW_NODES) -> T:
        """Run a read of so many nodes: on the event loop if they are few, which costs less than a thread."""
        return self._database.read(body) if nodes <= few else await self._database.read_in_thread(body)

    async def turn(self, session_id: str, turn_id: str) -> TurnRow | None:
        def body(reader: Reader) -> TurnRow | None:
            key = _read(reader, session_id).session_key
            return reader.one(TurnRow, "commit_turn", session_key=key, turn_id=turn_id)

        return self._database.read(body)

    async def turns(self, session_id: str, turn_ids: Sequence[str]) -> list[TurnTraceRow]:
        def body(reader: Reader) -> list[TurnTraceRow]:
            key = _read(reader, session_id).session_key
            return reader.all(TurnTraceRow, "session_turns", session_key=key, turn_ids=json_array(turn_ids))

        return await self._read_some(len(turn_ids), body)

    async def checkpoint(
        self, session_id: str, revision: int | None, decode: Callable[[CheckpointRow, Sequence[ComponentRow]], T]
    ) -> T | None:
        def body(reader: Reader) -> T | None:
            return _read_checkpoint(reader, session_id, revision, ComponentRow, "checkpoint_components", decode)

        return await self._database.read_in_thread(body)

    async def checkpoint_manifest(
        self, session_id: str, revision: int | None, decode: Callable[[CheckpointRow, Sequence[CurrentComponent]], T]
    ) -> T | None:
        def body(reader: Reader) -> T | None:
            return _read_checkpoint(reader, session_id, revision, CurrentComponent, "checkpoint_refs", decode)

        return self._database.read(body)

    async def blob(self, session_id: str, ref: BlobRef, decode: Callable[[ComponentRow], T]) -> T | None:
        def body(reader: Reader) -> T | None:
            _read(reader, session_id)
            row = reader.one(ComponentRow, "checkpoint_blob", session_id=session_id, hash=ref)
            return None if row is None else decode(row)

        return await self._database.read_in_thread(body)

    async def commit(self, prepared: PreparedCommit, decide: DecideCommit) -> CommitResult:
        write = self._database.write_briefly if prepared.is_brief else self._database.write
        return await write(lambda transaction: apply_commit(transaction, prepared, decide))

    async def append(self, prepared: PreparedAppend, decide: DecideAppend) -> AppendResult:
        write = self._database.write_briefly if prepared.is_brief else self._database.write
        return await write(lambda transaction: apply_append(transaction, prepared, decide))

    async def tombstone(
        self, session_id: str, node_ids: Sequence[str], check: Callable[[Sequence[HeldNode]], None]
    ) -> int:
        def body(transaction: Transaction) -> int:
            key, ids = find_head(transaction, session_id).session_key, json_array(node_ids)
            check(transaction.all(HeldNode, "node_held", session_key=key, node_ids=ids))
            removed = transaction.run("node_tombstone", session_key=key, node_ids=ids, now_ms=transaction.now_ms)
            if removed:
                recount(transaction, key)
            return removed

        return await self._database.write(body)

    async def erase(self, prepared: PreparedErasure, decide: DecideErasure) -> int:
        return await self._database.write(lambda transaction: apply_erasure(transaction, prepared, decide))

    async def removed_count(self, session_id: str) -> int:
        def body(reader: Reader) -> int:
            counted = reader.one(Number, "node_removed_count", session_id=session_id)
            if counted is None:
                raise missing(reader, session_id)
            return counted.number

        return self._database.read(body)

    async def vacuum(self, session_id: str) -> int:
        def body(transaction: Transaction) -> int:
            key = find_head(transaction, session_id).session_key
            transaction.run("node_close_segments", session_key=key)
            return transaction.run("node_vacuum", session_key=key)

        return await self._database.write(body)


def _change_meta(transaction: Transaction, change: MetaChange) -> None:
    key = find_session_key(transaction, change.session_id)
    transaction.run(
        "session_change_meta",
        session_key=key,
        name=change.name,
        created_at_ms=change.created_at_ms,
        model=change.model,
        relation=change.relation,
        labels=change.labels,
        metadata=transaction.seals.text(METADATA, change.metadata, change.session_id),
        set_cwd=int(change.set_cwd),
        cwd=change.cwd,
        set_owner=int(change.set_owner),
        owner=change.owner,
        set_expiry=int(change.set_expiry),
        expires_at_ms=change.expires_at_ms,
        set_keep=int(change.set_keep),
        keep=change.keep,
    )
    set_labels = change.labels is not None
    if change.set_owner or set_labels:
        flags = {"set_owner": int(change.set_owner), "set_labels": int(set_labels)}
        transaction.run("session_drop_labels", session_key=key, **flags)
    if change.terms:
        add_labels(transaction, key, change.terms)


def _read(reader: Reader, session_id: str) -> ReadRow:
    row = reader.one(ReadRow, "session_read", session_id=session_id)
    if row is None:
        raise missing(reader, session_id)
    return row


def _read_checkpoint(
    reader: Reader,
    session_id: str,
    revision: int | None,
    shape: type[R],
    query: str,
    decode: Callable[[CheckpointRow, Sequence[R]], T],
) -> T | None:
    row = _read(reader, session_id)
    key, wanted = row.session_key, row.revision if revision is None else revision
    found = reader.one(CheckpointRow, "checkpoint_at", session_key=key, revision=wanted)
    return None if found is None else decode(found, reader.all(shape, query, session_key=key, revision=wanted))


def _load(reader: Reader, session_id: str, scope: ReadScope) -> RevisionRows:
    row = _read(reader, session_id)
    if not row.is_committed:
        return uncommitted(row)
    key = row.session_key
    return RevisionRows(
        read=row,
        inherited=_inherited(reader, key, scope),
        nodes=_nodes(reader, row, scope),
        frames=reader.all(FrameRow, "frame_all", session_key=key),
        checkpoint=reader.one(CheckpointRow, "checkpoint_at", session_key=key, revision=row.revision),
        components=reader.all(ComponentRow, "checkpoint_current", session_key=key),
        totals=reader.all(UsageRow, "usage_totals", session_key=key),
    )


def _inherited(reader: Reader, session_key: int, scope: ReadScope) -> list[PathRow]:
    """Return the inherited nodes of a whole graph; a path reads its own."""
    return reader.all(PathRow, "node_inherited", session_key=session_key) if isinstance(scope, FullGraph) else []


def _nodes(reader: Reader, row: ReadRow, scope: ReadScope) -> list[PathRow]:
    if isinstance(scope, FullGraph):
        return reader.all(PathRow, "node_all", session_key=row.session_key)
    leaf = row.leaf_node_id if scope.leaf_node_id is None else scope.leaf_node_id
    last = WHOLE_PATH if scope.last is None else scope.last
    return reader.all(PathRow, "node_path", session_key=row.session_key, leaf_node_id=leaf, last=last)
