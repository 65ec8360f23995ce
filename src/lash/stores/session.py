"""The contract of sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from msgspec import UnsetType

from lash.base.compression import BlobRef
from lash.model.lease import LeaseFence
from lash.model.session.change import SessionChangePage
from lash.model.session.checkpoint import Checkpoint, CheckpointManifest
from lash.model.session.commit import AppendResult, Commit, CommitResult
from lash.model.session.created import CreatedSession
from lash.model.session.node import Node, RawNode
from lash.model.session.session import (
    ActivePath,
    ReadScope,
    Retention,
    SessionFilter,
    SessionHead,
    SessionMeta,
    SessionOrder,
    SessionPage,
    SessionRead,
    SessionRelation,
    VacuumReport,
)
from lash.model.session.trace import TurnRecord
from lash.model.value import JSONObject

if TYPE_CHECKING:
    from lash.plan.key_range import KeyRange
    from lash.plan.session.append import AppendDecision, AppendFacts, PreparedAppend
    from lash.plan.session.change import FeedEnd, SessionCursor, SessionFeed
    from lash.plan.session.checkpoint import CheckpointRow, ComponentRow, CurrentComponent
    from lash.plan.session.commit import CommitDecision, CommitFacts, PreparedCommit
    from lash.plan.session.erase import Erasure, ErasureFacts, PreparedErasure
    from lash.plan.session.fork import ForkPoint, InheritedRun, PreparedFork, SourceRow, StoredRun
    from lash.plan.session.kind import NodePage
    from lash.plan.session.meta import EncodedMeta, MetaChange, MetaRow
    from lash.plan.session.node import PathRow, TailRow
    from lash.plan.session.page import PageRow, PreparedPage
    from lash.plan.session.session import HeldNode, ReadRow, RevisionRows
    from lash.plan.session.trace import TurnTraceRow
    from lash.plan.session.turn import TurnRow

T = TypeVar("T")

DecideAppend: TypeAlias = "Callable[[AppendFacts], AppendDecision]"
DecideFirstCommit: TypeAlias = "Callable[[PreparedCommit, CommitFacts], CommitDecision]"
"""Decides about the commit with which a session is created, once it is known at which revision it starts."""
DecideCommit: TypeAlias = "Callable[[CommitFacts], CommitDecision]"
DecideErasure: TypeAlias = "Callable[[ErasureFacts], Erasure | None]"
DecodePage: TypeAlias = "Callable[[Sequence[PageRow], Mapping[int, Sequence[ComponentRow]]], SessionPage]"
DecideFork: TypeAlias = "Callable[[SourceRow, Sequence[InheritedRun], Sequence[StoredRun]], ForkPoint]"


class Session(Protocol):
    """A handle on one session. It holds no state: every call reads or writes the database.

    Every method raises SessionNotFound if the session was never created, and SessionDeleted once it was deleted.
    """

    @property
    def session_id(self) -> str: ...

    async def head(self) -> SessionHead | None:
        """Return the head alone, which is cheap; None before the first commit."""
        ...

    async def revision(self) -> int:
        """Return the revision that the next commit must expect, before the first commit too."""
        ...

    async def load(self, scope: ReadScope = ...) -> SessionRead | None:
        """Return one committed revision, never a mixture of two; None before the first commit.

        The scope defaults to the active path of the head. A path ends where an ancestor was removed; the path of
        an unknown leaf is empty. Damaged data raises CorruptData; it is never left out.
        """
        ...

    async def raw_path(self, *, leaf_node_id: str | None = None, last: int | None = None) -> tuple[RawNode, ...]:
        """Return the path to a leaf, by default the head's, or only its last nodes, without decoding them.

        These are the nodes that `load` returns for an `ActivePath`, and nothing else of the revision. The last nodes
        are a read of their rows alone. If they are more than 500, others may be erased while they are read. Empty
        before the first commit, and for an unknown leaf.
        """
        ...

    async def node(self, node_id: str) -> Node | None:
        """Return a live node of any branch, own or inherited; None if there is none of this id."""
        ...

    async def nodes(self, node_ids: Collection[str]) -> dict[str, Node]:
        """Return the live nodes of these ids, of any branch, own or inherited; others are left out."""
        ...

    async def children(self, node_id: str, *, after: str | None = None, limit: int = 100) -> tuple[Node, ...]:
        """Return the live children of a live node, own or inherited, in the order of insertion.

        Returns no nodes if the parent is unknown. ``after`` is the last node of the previous page; raises NodeNotFound
        if it is unknown. The cost depends on the page alone, however large the graph is.
        """
        ...

    async def list_nodes(
        self, kind: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> tuple[Node, ...]:
        """Return the live nodes of all branches whose `Node.kind` is this one.

        The order is that of insertion, inherited nodes first; or the opposite order. ``after`` is the last node of the
        previous page; raises NodeNotFound if it is unknown. The cost depends on the page alone, with one exception: a
        fork reads its whole inherited path for a page that contains inherited nodes.
        """
        ...

    async def checkpoint(self, revision: int | None = None, *, turn_id: str | None = None) -> Checkpoint | None:
        """Return the checkpoint of a revision or of a turn, by default the head's; None if it is not kept.

        That of a turn is the one that its commit or append left. It is found by the record of the turn, so None is
        also the answer for a turn that was not committed or whose record was pruned. It takes a second read.
        """
        ...

    async def checkpoint_manifest(
        self, revision: int | None = None, *, turn_id: str | None = None
    ) -> CheckpointManifest | None:
        """Return the same without the bytes of its components."""
        ...

    async def turns(self, turn_ids: Collection[str]) -> dict[str, TurnRecord]:
        """Return what is kept of committed turns, with the traces of their steps; turns without a record are left out.

        The nodes of a turn name it in ``caused_by``. The record of a turn is pruned some time after its commit.
        """
        ...

    async def blob(self, ref: BlobRef) -> bytes:
        """Return bytes that the session holds, or raise BlobNotFound."""
        ...

    async def commit(self, commit: Commit, *, work: bool = True) -> CommitResult:
        """Publish a new head with everything that belongs to it, atomically and durably.

        The checks come in this order, and the first failure wins: binding (SessionBindingMismatch), existence,
        turn replay (TurnConflict), fence (LeaseLost), revision (RevisionConflict), claims (ClaimLost), graph
        (GraphConflict, GraphShared, NodeConflict, NodeNotFound), refs (BlobNotFound). A refused commit changes
        nothing.

        Repeating a commit that carries a turn id is always safe: it returns the first result and writes nothing
        again, also when the head has moved on, when the lease is gone, and when both run at once. The repeat still
        releases the lease that ``release`` names, if it holds.

        With ``work=False`` workers get no hint: the caller itself looks for further input of the session.
        """
        ...

    async def append(
        self, nodes: Sequence[Node], *, turn_id: str | None = None, often_read: bool = False
    ) -> AppendResult:
        """Add nodes below the current leaf, whatever it is, atomically and durably; the last becomes the leaf.

        The caller needs neither the revision nor the leaf, and no number of concurrent callers makes it fail. Each node
        follows the one before it, and the first follows the leaf; their ``parent_node_id`` must be None. Every append
        is one revision. Configuration, frames, checkpoint and usage stay as they are; on a session without a commit
        they are the defaults. Like a commit without a fence, an append is independent of the session's lease.

        An append that begins after another one was acknowledged comes after it on the path, and callers of one
        storage are acknowledged in the order of the path.

        Repeating an append that carries a turn id is always safe: it returns the first result and writes nothing
        again; other content under the turn id raises TurnConflict. A node id that is taken raises NodeConflict. So a
        caller without a turn id may repeat an append of unknown outcome with the same node ids: the repeat never
        writes the nodes twice, and NodeConflict means that the first one was written.

        With ``often_read=True`` texts of 1,024 to 4,095 bytes are not compressed under the profile `balanced`: they
        take up to twice the space, and are read in less than half of the time. Nothing else depends on it.
        """
        ...

    async def meta(self) -> SessionMeta:
        """Return the metadata."""
        ...

    async def save_meta(self, meta: SessionMeta) -> None:
        """Overwrite the metadata. The head is not touched."""
        ...

    async def edit(
        self,
        *,
        name: str | UnsetType = ...,
        owner: str | None | UnsetType = ...,
        labels: dict[str, str] | UnsetType = ...,
        metadata: JSONObject | UnsetType = ...,
        expires_at_ms: int | None | UnsetType = ...,
        retention: Retention | None | UnsetType = ...,
    ) -> None:
        """Change the given parts of the metadata in one write; the others, and the head, are not touched.

        Labels and metadata are replaced as a whole. None removes the owner, the expiry, or the session's own retention.
        A new retention holds from the next commit on, which drops the checkpoints that are too many.
        """
        ...

    async def tombstone(self, node_ids: Collection[str]) -> int:
        """Remove nodes from every read at once, and return how many were live until now.

        Unknown ids are ignored. A node on the active path, one that this session inherits from its source, or one
        that a fork inherits from it, is refused (InvalidInput) and then none is removed.
        """
        ...

    async def erase(self, node_ids: Collection[str], *, fence: LeaseFence | None = None) -> int:
        """Delete the content of nodes at once and for good, and return how many had content until now.

        An erased node keeps its id, its parent and its place, so that every path through it stays whole. Paths leave it
        out; other reads return it with an `ErasedEntry`, whose node has the time of the erasure. It can still be a
        parent, a leaf or the start of a fork. An erasure publishes a revision of its own and changes nothing else: a
        turn that runs meanwhile gets RevisionConflict and is repeated. ``fence``, if given, must be live (LeaseLost).
        Repeating an erasure is safe and changes nothing again.

        Unknown and removed ids are ignored. A node that this session inherits from its source, or that a fork inherits
        from it, is refused (InvalidInput), and then no node is erased.
        """
        ...

    async def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Delete the removed nodes of this session permanently, and no other session's; a dry run only counts them."""
        ...


class SessionStore(Protocol):
    """The sessions of a storage."""

    async def create(
        self,
        session_id: str,
        *,
        name: str | None = None,
        model: str = "",
        cwd: str | None = None,
        relation: SessionRelation = ...,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: JSONObject | None = None,
        expires_at_ms: int | None = None,
        retention: Retention | None = None,
        commit: Commit | None = None,
    ) -> CreatedSession:
        """Create a session, or return the one that exists, unchanged.

        ``owner`` and at most 32 ``labels`` are indexed for `list`. ``metadata`` is JSON of up to 64 KiB. From
        ``expires_at_ms`` on, maintenance deletes the session. ``retention`` is how many checkpoints the session keeps;
        None: as many as the storage is opened with.

        Of any number of concurrent calls one creates. An id that was deleted may be created again; its revision
        and fencing numbers then start above the old ones, so that no old revision or fence matches.

        With ``commit``, the session and its first commit are one write, whole or not at all: a commit that is refused
        creates nothing. Its ``expected_revision`` must be 0, whatever the number from which the session starts. A
        session that exists is returned without the commit, unless the commit has a turn id that the session has: then
        the result is the first one, or TurnConflict is raised over other content. So the call may be repeated if the
        commit carries a turn id.
        """
        ...

    async def fork(
        self,
        source_session_id: str,
        new_session_id: str,
        *,
        node_id: str | None = None,
        name: str | None = None,
        model: str = "",
        cwd: str | None = None,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: JSONObject | None = None,
        expires_at_ms: int | None = None,
        retention: Retention | None = None,
    ) -> CreatedSession:
        """Create a session that continues from a live node of another one, by default from its leaf.

        The fork shares the path to that node and no later node or other branch; the whole graph of a fork is that path
        followed by its own nodes, and node ids are unique among them. What either side does later is invisible to the
        other, and deleting one leaves the other whole. The fork has a head at once: configuration, frames and
        checkpoint are copies of those of the source's head, also when the node is an earlier one, as an older state
        is not kept. So are its committed attachments, whose bytes are shared. Usage, turns, queue, claims and lease
        are not inherited, metadata only as given here.
        A fork of a session without a commit has none either.

        The checks come in this order: the new id is free (SessionExists), the source exists (SessionNotFound,
        SessionDeleted), the node is live in it (NodeNotFound). Repeating a fork returns the one that exists, unchanged.
        """
        ...

    async def open(self, session_id: str) -> Session | None:
        """Return a handle if the session exists; never create one."""
        ...

    async def list(
        self,
        wanted: SessionFilter = ...,
        *,
        order: SessionOrder = ...,
        oldest_first: bool = False,
        with_head: bool = False,
        with_state: bool = False,
        with_counts: bool = False,
        with_checkpoint: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SessionPage:
        """Return the sessions that match the filter, by default all of them, the last created first.

        The entries have the columns that a picker shows and, on request, the head, the state, counts, and the
        checkpoint with its bytes, all from one read.

        In the order of creation, pages do not overlap. In the order of activity, a session that is active between two
        pages moves: it is shown again, or not at all, and the others are shown once. A cursor is valid for the same
        filter and order.

        A page costs what it shows if the filter is empty, and in the order of creation if it names an owner, a label or
        an agent. With an owner or a label in the order of activity, and with a prefix, a state or a source, all that
        match are sorted for each page. Other parts of a filter are checked on each session in the order of the list.
        """
        ...

    async def ids(self, prefix: str = "", *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        """Return at most ``limit`` ids that begin with a text, in the order of their characters.

        ``after`` is the last id of the previous page; a page with fewer than ``limit`` is the last. An id that equals
        the text is the first. It is one statement, which reads no more ids than it returns.
        """
        ...

    async def changes(self, cursor: str | None = None, *, limit: int = 100) -> SessionChangePage:
        """Return the sessions that changed after a cursor, each once, as they are after their last change.

        A session changes when it is created, committed or appended to, edited, or deleted, and when nodes of it are
        tombstoned or erased. Without a cursor the feed begins with all sessions. A reader that keeps the cursor misses
        no session: it gets the last of several changes, and a session never goes back to an earlier revision. The order
        is that of the last changes; on PostgreSQL, of the transactions that made them, and a change by a transaction
        that ends late is returned when it has ended. A page with fewer than ``limit`` changes reaches the end.

        Nothing is pruned, so a cursor does not expire. It belongs to the epoch of the feed: in a storage that was
        restored, copied or moved, the page has a gap and begins at the start of the feed.
        """
        ...

    async def changes_cursor(self) -> str:
        """Return the cursor after every change so far, for a reader that needs only later ones."""
        ...

    def follow(self, cursor: str | None = None, *, limit: int = 100) -> AsyncIterator[SessionChangePage]:
        """Yield the pages of `changes` that have changes or a gap, and wait for the next one at the end, without end.

        Commits and deletions are read soon after a hint, other changes within a second.
        """
        ...

    async def delete_many(self, session_ids: Collection[str]) -> tuple[str, ...]:
        """Delete several sessions like `delete`, in the given order; return the ids of the existing ones.

        Each is deleted whole or not at all. If an error ends the call, some sessions may be deleted already.
        """
        ...

    async def delete_expired(self, *, limit: int = 100) -> tuple[str, ...]:
        """Delete at most ``limit`` sessions whose expiry has passed, and return their ids; workers do it regularly.

        A session whose lease is live is left for a later call. Fewer than ``limit`` ids mean that no more were found.
        """
        ...

    async def delete(self, session_id: str) -> bool:
        """Delete a session with everything that it owns, and leave a tombstone; return whether it existed.

        Its schedules and trigger subscriptions go first, then its ties to processes, then the rest, in one transaction.
        Nodes that a fork inherits stay, invisible to all but the forks, until the last of these is deleted too.
        Deleting an unknown id succeeds and leaves nothing behind.
        """
        ...


class SessionRows(Protocol):
    """The rows of sessions in one database; `lash.backend.session.Sessions` makes a `SessionStore` of them.

    A method that names a session raises SessionNotFound or SessionDeleted if it has no row; ``find`` returns None and
    ``delete`` False instead. ``decide`` functions are called inside the transaction that applies their decision, or
    before a statement that is guarded by the facts they were given, and then again if those were stale. ``decode``
    functions are called where the rows are read, which may be a thread.
    """

    async def create(self, encoded: EncodedMeta) -> tuple[MetaRow, bool]:
        """Create the session unless its id is taken; return its row, and whether it was created."""
        ...

    async def create_committed(
        self, encoded: EncodedMeta, prepared: PreparedCommit, decide: DecideFirstCommit
    ) -> tuple[MetaRow, TurnRow | None, CommitResult | None]:
        """Create the session with its first commit unless its id is taken; return its row, and the result if created.

        If it exists, return the commit that the turn of the prepared one has there, if any.
        """
        ...

    async def fork(self, prepared: PreparedFork, decide: DecideFork) -> tuple[MetaRow, bool]:
        """Create the fork unless its id is taken; return its row, and whether it was created."""
        ...

    async def find(self, session_id: str) -> MetaRow | None:
        """Return the metadata, or None if the session is unknown."""
        ...

    async def page(self, page: PreparedPage, decode: DecodePage) -> SessionPage:
        """Return a page of sessions, read from one snapshot."""
        ...

    async def ids(self, within: KeyRange, limit: int) -> list[str]: ...

    async def changes(self, after: SessionCursor, limit: int) -> SessionFeed:
        """Return the first changes after a cursor, from one snapshot: at least ``limit``, or all of them."""
        ...

    async def changes_end(self) -> FeedEnd:
        """Return the end of the feed of changes."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Delete the session with everything that it owns, in one transaction; return whether it existed."""
        ...

    async def delete_many(self, session_ids: Sequence[str]) -> list[str]:
        """Delete several sessions, and return the ids of the existing ones."""
        ...

    async def delete_expired(self, limit: int) -> list[str]:
        """Delete sessions whose expiry has passed and whose lease is not live, and return their ids."""
        ...

    async def meta(self, session_id: str) -> MetaRow: ...

    async def change_meta(self, change: MetaChange) -> None: ...

    async def read(self, session_id: str) -> ReadRow:
        """Return the head alone."""
        ...

    async def load(self, session_id: str, scope: ReadScope, decode: Callable[[RevisionRows], T]) -> T:
        """Return the head's revision, all of it from one snapshot."""
        ...

    async def path(self, session_id: str, scope: ActivePath, decode: Callable[[list[PathRow]], T]) -> T:
        """Return the nodes of a path, or its last ones; none before the first commit."""
        ...

    @property
    def longest_tail(self) -> int:
        """How many nodes of a path ``tail`` should be asked for at most; more are read by ``path``."""
        ...

    async def tail(
        self, session_id: str, last: int, decode: Callable[[list[TailRow]], Sequence[T]]
    ) -> list[Sequence[T]]:
        """Return the last nodes of the active path in pieces, which begin with the end; the last may be empty.

        They may be fewer: only own nodes are returned, at least as far as they lie on one segment, and none of an
        unknown session. Pieces may be of different snapshots: a path above a node stays, but nodes can be erased.
        """
        ...

    async def node(self, session_id: str, node_id: str) -> PathRow | None:
        """Return a live node, own or inherited."""
        ...

    async def nodes(self, session_id: str, node_ids: Sequence[str], decode: Callable[[list[PathRow]], T]) -> list[T]:
        """Return the live nodes among the ids, own or inherited, in any order; in several parts if they are many."""
        ...

    async def children(
        self, session_id: str, node_id: str, page: NodePage, decode: Callable[[list[PathRow]], T]
    ) -> T | None:
        """Return a page of the live children of a node; None if ``page.after`` is unknown."""
        ...

    async def list_nodes(
        self, session_id: str, kind: str, page: NodePage, decode: Callable[[list[PathRow]], T]
    ) -> T | None:
        """Return a page of the live nodes of a kind; None if ``page.after`` is unknown."""
        ...

    async def turn(self, session_id: str, turn_id: str) -> TurnRow | None:
        """Return the record of a turn; None if it was not committed, or if its record was pruned."""
        ...

    async def turns(self, session_id: str, turn_ids: Sequence[str]) -> list[TurnTraceRow]:
        """Return the records of those turns that have one, in any order."""
        ...

    async def checkpoint(
        self, session_id: str, revision: int | None, decode: Callable[[CheckpointRow, Sequence[ComponentRow]], T]
    ) -> T | None:
        """Return the checkpoint of a revision, of the head by default; None if it is not kept."""
        ...

    async def checkpoint_manifest(
        self, session_id: str, revision: int | None, decode: Callable[[CheckpointRow, Sequence[CurrentComponent]], T]
    ) -> T | None:
        """Return the checkpoint of a revision without the bytes of its components; None if it is not kept."""
        ...

    async def blob(self, session_id: str, ref: BlobRef, decode: Callable[[ComponentRow], T]) -> T | None: ...

    async def commit(self, prepared: PreparedCommit, decide: DecideCommit) -> CommitResult:
        """Write the commit and release its lease, or only release the lease if the decision is a replay."""
        ...

    async def append(self, prepared: PreparedAppend, decide: DecideAppend) -> AppendResult:
        """Write the append below the leaf, or nothing if the decision is a replay."""
        ...

    async def tombstone(
        self, session_id: str, node_ids: Sequence[str], check: Callable[[Sequence[HeldNode]], None]
    ) -> int:
        """Remove the nodes unless ``check`` raises over nodes in use; return how many were live."""
        ...

    async def erase(self, prepared: PreparedErasure, decide: DecideErasure) -> int:
        """Erase the nodes that the decision names and publish its revision; return how many nodes were erased."""
        ...

    async def removed_count(self, session_id: str) -> int: ...

    async def vacuum(self, session_id: str) -> int:
        """Delete the removed nodes permanently and return how many there were."""
        ...
