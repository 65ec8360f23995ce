"""The contract of sessions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from lash.model.checkpoint import Checkpoint
from lash.model.commit import Commit, CommitResult
from lash.model.node import Node
from lash.model.session import (
    CreatedSession,
    ReadScope,
    SessionHead,
    SessionMeta,
    SessionPage,
    SessionRead,
    SessionRelation,
    VacuumReport,
)
from lash.model.value import BlobRef


class Session(Protocol):
    """A handle on one session. It holds no state of its own: every call asks the database.

    Every method raises SessionNotFound if the session was never created, and SessionDeleted once it was deleted.
    """

    @property
    def session_id(self) -> str: ...

    async def head(self) -> SessionHead | None:
        """Return the head alone, which is cheap; None before the first commit."""
        ...

    async def load(self, scope: ReadScope = ...) -> SessionRead | None:
        """Return one committed revision, never a mixture of two; None before the first commit.

        The scope defaults to the active path of the head. A path ends where an ancestor was removed; the path of
        an unknown leaf is empty. Damaged data raises CorruptData, it is never left out.
        """
        ...

    async def node(self, node_id: str) -> Node | None:
        """Return a live node of any branch; None if there is none of this id."""
        ...

    async def checkpoint(self, revision: int | None = None) -> Checkpoint | None:
        """Return the checkpoint of a revision, by default the head's; None if it is no longer, or not yet, kept."""
        ...

    async def blob(self, ref: BlobRef) -> bytes:
        """Return bytes that the session holds, or raise BlobNotFound."""
        ...

    async def commit(self, commit: Commit) -> CommitResult:
        """Publish a new head with all that belongs to it, whole or not at all, durably.

        The checks come in this order, and the first failure wins: binding (SessionBindingMismatch), existence,
        turn replay (TurnConflict), fence (LeaseLost), revision (RevisionConflict), claims (ClaimLost), graph
        (GraphConflict, NodeConflict, NodeNotFound), refs (BlobNotFound). A refused commit changes nothing.

        Repeating a commit that carries a turn id is always safe: it returns the first result and writes nothing
        again, also when the head has moved on, when the lease is gone, and when both run at once. The repeat still
        releases the lease that ``release`` names, if it holds.
        """
        ...

    async def meta(self) -> SessionMeta:
        """Return the metadata."""
        ...

    async def save_meta(self, meta: SessionMeta) -> None:
        """Overwrite the metadata. The head is not touched."""
        ...

    async def tombstone(self, node_ids: Collection[str]) -> int:
        """Remove nodes from every read at once, and return how many were live until now.

        Unknown ids are ignored. A node on the active path is refused (InvalidInput) and then none is removed.
        """
        ...

    async def vacuum(self) -> VacuumReport:
        """Delete the removed nodes of this session for good, and no other session's."""
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
    ) -> CreatedSession:
        """Create a session, or return the one that exists, unchanged.

        Of any number of concurrent calls one creates. An id that was deleted may be created again; its revision
        and fencing numbers then start above the old ones, so that nothing old can match.
        """
        ...

    async def open(self, session_id: str) -> Session | None:
        """Return a handle if the session exists; never create one."""
        ...

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        """Return sessions, the newest first, with what a picker shows. Pages do not overlap."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Delete a session with all it owns, and leave a tombstone; return whether there was one.

        Deleting an unknown id succeeds and leaves nothing behind.
        """
        ...
