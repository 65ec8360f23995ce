"""The rows of sessions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from lash.base.compression import BlobRef
from lash.base.seal import Seals
from lash.model.session.commit import AppendResult, CommitResult
from lash.model.session.session import ActivePath, FullGraph, ReadScope, SessionPage
from lash.plan.key_range import KeyRange
from lash.plan.sealed import METADATA
from lash.plan.session.append import PreparedAppend
from lash.plan.session.change import FeedEnd, SessionCursor, SessionFeed
from lash.plan.session.checkpoint import CheckpointRow, ComponentRow, CurrentComponent
from lash.plan.session.commit import PreparedCommit
from lash.plan.session.erase import PreparedErasure
from lash.plan.session.fork import PreparedFork
from lash.plan.session.kind import NodePage
from lash.plan.session.meta import EncodedMeta, MetaChange, MetaRow
from lash.plan.session.node import FEW_RAW_NODES, WHOLE_PATH, PathRow, TailRow
from lash.plan.session.page import PreparedPage
from lash.plan.session.session import HeadRow, HeldNode, ReadRow, RevisionRows, new_head
from lash.plan.session.trace import TurnTraceRow
from lash.plan.session.turn import TurnRow
from lash.postgres.cache import HeadCache
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.append import PostgresAppends
from lash.postgres.rows.session.change import read_changes, read_changes_end
from lash.postgres.rows.session.commit import PostgresCommits
from lash.postgres.rows.session.create import PostgresCreations
from lash.postgres.rows.session.delete import PostgresDeletions
from lash.postgres.rows.session.erase import run_erasure
from lash.postgres.rows.session.fork import create_arguments, recount, run_fork
from lash.postgres.rows.session.lookup import missing
from lash.postgres.rows.session.node import NodeAnswer, NodePageAnswer
from lash.postgres.rows.session.page import read_page
from lash.sqlkit.rows import Flag, Number, Text
from lash.stores.session import DecideAppend, DecideCommit, DecideErasure, DecideFirstCommit, DecideFork, DecodePage

T = TypeVar("T")
_FREE_READS: Final = 3
"""How often a long session is read with two statements of their own; a transaction costs two round trips more."""
_SHORT: Final = 500
"""How many nodes one row of an answer has at most; decoding them takes about five milliseconds."""


class ReadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The head of a session, for readers and for writers."""

    read: ReadRow
    head: HeadRow


class LoadAnswer(RevisionRows, frozen=True, array_like=True):
    """One revision of a session, and its head for writers."""

    head: HeadRow


class NodesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of a long graph or path by their columns, and the revision of the session when they were read."""

    revision: int
    is_inherited: bool
    node_ids: list[str]
    parent_node_ids: list[str | None]
    depths: list[int]
    tombstoned: list[bool]
    bodies: list[str]
    packed: list[bytes | None]
    erased: list[bool]

    def rows(self) -> Iterator[PathRow]:
        """Return the nodes as rows."""
        names = (self.node_ids, self.parent_node_ids, self.depths, self.tombstoned)
        return map(PathRow, *names, self.bodies, self.packed, self.erased)


class CheckpointAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint of one revision, if it is kept."""

    session_key: int
    checkpoint: CheckpointRow | None
    components: list[ComponentRow]


class TurnAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The record of a turn of a session that exists, if there is one."""

    session_key: int
    turn: TurnRow | None


class TurnsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The records of turns of a session that exists."""

    session_key: int
    turns: list[TurnTraceRow]


class ManifestAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint of one revision, if it is kept, without the bytes of its components."""

    session_key: int
    checkpoint: CheckpointRow | None
    components: list[CurrentComponent]


class _Read(NamedTuple, Generic[T]):
    """What was read, which may be None."""

    value: T


class PostgresSessionRows:
    """The sessions of one PostgreSQL storage; the contract is `lash.stores.session.SessionRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._heads = HeadCache()
        database.when_disconnected(self._heads.clear)
        self._commits = PostgresCommits(database, self._heads)
        self._appends = PostgresAppends(database, self._heads)
        self._creations = PostgresCreations(database, self._heads)
        self._deletions = PostgresDeletions(database, self._heads)

    async def create(self, encoded: EncodedMeta) -> tuple[MetaRow, bool]:
        session_id, arguments = encoded.meta.session_id, create_arguments(self._database.seals, encoded)
        row = await self._database.write_one(MetaRow, "session_create", *arguments, repeatable=True)
        if row is None:
            return await self.meta(session_id), False
        self._heads.remember(session_id, new_head(row))
        return row, True

    async def create_committed(
        self, encoded: EncodedMeta, prepared: PreparedCommit, decide: DecideFirstCommit
    ) -> tuple[MetaRow, TurnRow | None, CommitResult | None]:
        return await self._creations.create(encoded, prepared, decide)

    async def fork(self, prepared: PreparedFork, decide: DecideFork) -> tuple[MetaRow, bool]:
        return await run_fork(self._database, prepared, decide)

    async def find(self, session_id: str) -> MetaRow | None:
        return await self._database.read_one(MetaRow, "session_meta", session_id)

    async def page(self, page: PreparedPage, decode: DecodePage) -> SessionPage:
        return await read_page(self._database, page, decode)

    async def ids(self, within: KeyRange, limit: int) -> list[str]:
        rows = await self._database.read_all(Text, "session_ids", within.first, within.end, limit)
        return [row.text for row in rows]

    async def changes(self, after: SessionCursor, limit: int) -> SessionFeed:
        return await read_changes(self._database, after, limit)

    async def changes_end(self) -> FeedEnd:
        return await read_changes_end(self._database)

    async def delete(self, session_id: str) -> bool:
        return await self._deletions.delete(session_id)

    async def delete_many(self, session_ids: Sequence[str]) -> list[str]:
        return await self._deletions.delete_many(session_ids)

    async def delete_expired(self, limit: int) -> list[str]:
        return await self._deletions.delete_expired(limit)

    async def meta(self, session_id: str) -> MetaRow:
        return await self._existing(session_id, await self.find(session_id))

    async def change_meta(self, change: MetaChange) -> None:
        metadata = self._database.seals.text(METADATA, change.metadata, change.session_id)
        arguments = (
            *(change.session_id, change.name, change.created_at_ms, change.model, change.relation),
            *(change.labels, metadata, change.set_cwd, change.cwd, change.set_owner, change.owner),
            *(change.set_expiry, change.expires_at_ms, change.set_keep, change.keep),
            *(list(change.terms.keys()), list(change.terms.values())),
        )
        changed = await self._database.write_one(Flag, "session_change_meta", *arguments, repeatable=True)
        await self._existing(change.session_id, changed)

    async def read(self, session_id: str) -> ReadRow:
        answer = await self._existing(session_id, await self._database.read_one(ReadAnswer, "session_read", session_id))
        self._heads.remember(session_id, answer.head)
        return answer.read

    async def load(self, session_id: str, scope: ReadScope, decode: Callable[[RevisionRows], T]) -> T:
        whole, leaf, last = _load_arguments(scope)
        limit = min(last, _SHORT)
        for _ in range(_FREE_READS):
            found = await self._database.read_one(LoadAnswer, "session_load", session_id, whole, leaf, limit)
            answer = await self._existing(session_id, found)
            self._heads.remember(session_id, answer.head)
            if _has_all(answer, limit, last):
                return decode(answer)
            # The driver decodes a row at once, on the event loop; several rows it decodes as they arrive.
            complete = partial(_complete, self._database.seals, answer, decode)
            arguments = (session_id, whole, leaf, last)
            read = await self._database.read_in_thread(NodesAnswer, "session_nodes", *arguments, decode=complete)
            if read is not None:
                return read.value
        return await self._load_unmoved(session_id, (whole, leaf, last), decode)

    async def _load_unmoved(
        self, session_id: str, scope: tuple[bool, str | None, int], decode: Callable[[RevisionRows], T]
    ) -> T:
        """Load a session that others commit to faster than it is read, in a transaction that does not see them."""
        whole, leaf, last = scope
        limit = min(last, _SHORT)
        async with self._database.snapshot() as snapshot:
            found = await snapshot.one(LoadAnswer, "session_load", session_id, whole, leaf, limit)
            if found is not None and not _has_all(found, limit, last):
                complete = partial(_complete, self._database.seals, found, decode)
                arguments = (session_id, whole, leaf, last)
                read = await snapshot.all_in_thread(NodesAnswer, "session_nodes", *arguments, decode=complete)
                if read is not None:
                    return read.value
        return decode(await self._existing(session_id, found))

    async def path(self, session_id: str, scope: ActivePath, decode: Callable[[list[PathRow]], T]) -> T:
        _, leaf, last = _load_arguments(scope)
        read = await self._database.read_in_thread(
            NodesAnswer,
            "session_nodes",
            session_id,
            False,
            leaf,
            last,
            decode=partial(_path, self._database.seals, decode),
        )
        if read is None:
            await self.meta(session_id)
            return decode([])
        return read.value

    @property
    def longest_tail(self) -> int:
        return FEW_RAW_NODES

    async def tail(
        self, session_id: str, last: int, decode: Callable[[list[TailRow]], Sequence[T]]
    ) -> list[Sequence[T]]:
        return [decode(await self._database.read_all(TailRow, "node_tail", session_id, last))]

    async def node(self, session_id: str, node_id: str) -> PathRow | None:
        found = await self._database.read_one(NodeAnswer, "node_one", session_id, node_id)
        nodes = (await self._existing(session_id, found)).nodes
        return nodes[0] if nodes else None

    async def nodes(self, session_id: str, node_ids: Sequence[str], decode: Callable[[list[PathRow]], T]) -> list[T]:
        parts = [list(node_ids[first : first + _SHORT]) for first in range(0, max(1, len(node_ids)), _SHORT)]
        answers = [await self._database.read_one(NodeAnswer, "node_many", session_id, part) for part in parts]
        return [decode((await self._existing(session_id, answer)).nodes) for answer in answers]

    async def children(
        self, session_id: str, node_id: str, page: NodePage, decode: Callable[[list[PathRow]], T]
    ) -> T | None:
        return await self._page("node_children", session_id, page, node_id, decode)

    async def list_nodes(
        self, session_id: str, kind: str, page: NodePage, decode: Callable[[list[PathRow]], T]
    ) -> T | None:
        return await self._page(
            "node_list_newest" if page.newest_first else "node_list", session_id, page, kind, decode
        )

    async def _page(
        self, query: str, session_id: str, page: NodePage, wanted: str, decode: Callable[[list[PathRow]], T]
    ) -> T | None:
        found = await self._database.read_one(NodePageAnswer, query, session_id, page.after, wanted, page.limit)
        answer = await self._existing(session_id, found)
        return decode(answer.nodes) if answer.begins else None

    async def turn(self, session_id: str, turn_id: str) -> TurnRow | None:
        found = await self._database.read_one(TurnAnswer, "commit_turn", session_id, turn_id)
        return (await self._existing(session_id, found)).turn

    async def turns(self, session_id: str, turn_ids: Sequence[str]) -> list[TurnTraceRow]:
        found = await self._database.read_one(TurnsAnswer, "session_turns", session_id, list(turn_ids))
        return (await self._existing(session_id, found)).turns

    async def checkpoint(
        self, session_id: str, revision: int | None, decode: Callable[[CheckpointRow, Sequence[ComponentRow]], T]
    ) -> T | None:
        found = await self._database.read_one(CheckpointAnswer, "checkpoint_load", session_id, revision)
        answer = await self._existing(session_id, found)
        return None if answer.checkpoint is None else decode(answer.checkpoint, answer.components)

    async def checkpoint_manifest(
        self, session_id: str, revision: int | None, decode: Callable[[CheckpointRow, Sequence[CurrentComponent]], T]
    ) -> T | None:
        found = await self._database.read_one(ManifestAnswer, "checkpoint_refs", session_id, revision)
        answer = await self._existing(session_id, found)
        return None if answer.checkpoint is None else decode(answer.checkpoint, answer.components)

    async def blob(self, session_id: str, ref: BlobRef, decode: Callable[[ComponentRow], T]) -> T | None:
        row = await self._database.read_one(ComponentRow, "checkpoint_blob", session_id, ref)
        if row is None:
            await self.meta(session_id)
            return None
        return decode(row)

    async def commit(self, prepared: PreparedCommit, decide: DecideCommit) -> CommitResult:
        return await self._commits.commit(prepared, decide)

    async def append(self, prepared: PreparedAppend, decide: DecideAppend) -> AppendResult:
        return await self._appends.append(prepared, decide)

    async def tombstone(
        self, session_id: str, node_ids: Sequence[str], check: Callable[[Sequence[HeldNode]], None]
    ) -> int:
        async with self._database.transaction() as transaction:
            # The lock keeps the active path, and so the set of nodes that may be removed, until the transaction ends.
            session = await transaction.one(Number, "node_lock_session", session_id)
            if session is not None:
                return await _tombstone(transaction, session.number, list(node_ids), check)
        raise await missing(self._database, session_id)

    async def erase(self, prepared: PreparedErasure, decide: DecideErasure) -> int:
        self._heads.forget(prepared.session_id)
        return await run_erasure(self._database, prepared, decide)

    async def removed_count(self, session_id: str) -> int:
        counted = await self._database.read_one(Number, "node_removed_count", session_id)
        return (await self._existing(session_id, counted)).number

    async def vacuum(self, session_id: str) -> int:
        removed = await self._database.write_one(Number, "node_vacuum", session_id, repeatable=True)
        return (await self._existing(session_id, removed)).number

    async def _existing(self, session_id: str, answer: T | None) -> T:
        """Return the answer of a statement that finds no row for a missing session, or raise."""
        if answer is None:
            raise await missing(self._database, session_id)
        return answer


def _has_all(answer: LoadAnswer, limit: int, last: int) -> bool:
    """Return whether so many nodes at most are all that is wanted, or all that there are."""
    return limit == last or max(len(answer.inherited), len(answer.nodes)) < limit


def _load_arguments(scope: ReadScope) -> tuple[bool, str | None, int]:
    """Return whether the whole graph is read, the leaf of the path if not, and how many nodes of it."""
    if isinstance(scope, FullGraph):
        return True, None, WHOLE_PATH
    return False, scope.leaf_node_id, WHOLE_PATH if scope.last is None else scope.last


def _path(seals: Seals, decode: Callable[[list[PathRow]], T], parts: list[NodesAnswer]) -> _Read[T] | None:
    """Decode the nodes of a path; return None if there are none."""
    return _Read(decode([row for part in parts for row in seals.open_rows(part.rows())])) if parts else None


def _complete(
    seals: Seals, answer: LoadAnswer, decode: Callable[[RevisionRows], T], parts: list[NodesAnswer]
) -> _Read[T] | None:
    """Decode the answer with all of its nodes; return None if they were read from another revision."""
    if not parts or parts[0].revision != answer.read.revision:
        return None
    inherited = [row for part in parts if part.is_inherited for row in seals.open_rows(part.rows())]
    nodes = [row for part in parts if not part.is_inherited for row in seals.open_rows(part.rows())]
    parts.clear()
    return _Read(decode(msgspec.structs.replace(answer, inherited=inherited, nodes=nodes)))


async def _tombstone(
    transaction: Transaction, session_key: int, node_ids: list[str], check: Callable[[Sequence[HeldNode]], None]
) -> int:
    check(await transaction.all(HeldNode, "node_held", session_key, node_ids))
    removed = await transaction.run("node_tombstone", session_key, node_ids)
    if removed:
        await recount(transaction, session_key)
    return removed
