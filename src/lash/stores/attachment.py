"""The contracts of attachments: the store, its manifest in the database, and the bytes behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lash.model.attachment import AttachmentEntry, AttachmentOwner, AttachmentPage, StoredAttachment, SweepReport
from lash.model.session.message import AttachmentRef
from lash.model.session.session import Durability

if TYPE_CHECKING:
    # Only backends use these; without them, import lash stays light.
    from lash.plan.attachment import AttachmentRow, FenceRow, Intent, Move, Place, UnnamedFences

IsOwnerGone: TypeAlias = Callable[[AttachmentEntry], Awaitable[bool]]
"""Answers whether nobody can commit an uncommitted attachment any more: neither its owner, if it has one, nor the turn
of a message that names it."""


class ByteStore(Protocol):
    """Where the bytes of attachments lie. It serves one storage: a sweep deletes what that storage does not name.

    Ids are 64 lowercase hex digits whenever they come here. Errors are lash's: StoreUnavailable with
    ``outcome_unknown`` where a write or a deletion may still happen after the call has failed.
    """

    @property
    def durability(self) -> Durability:
        """What bytes survive once ``put`` has returned."""
        ...

    async def put(self, attachment_id: str, content: bytes) -> None:
        """Keep the bytes, whole or not at all, also where there are damaged ones already."""
        ...

    async def get(self, attachment_id: str) -> bytes | None:
        """Return the bytes as they lie there, unchecked; None if there are none."""
        ...

    async def delete(self, attachment_id: str) -> None:
        """Remove the bytes. That there are none is no error."""
        ...

    async def tidy(self) -> int:
        """Remove what writes that died have left behind, and return how many there were."""
        ...


class AttachmentStore(Protocol):
    """The attachments of sessions.

    Methods that name a session raise SessionNotFound or SessionDeleted where there is none, and InvalidInput for an
    id that is not 64 lowercase hex digits.
    """

    @property
    def durability(self) -> Durability:
        """What an acknowledged put survives: the lesser of what the database and the byte store promise."""
        ...

    async def put(
        self,
        session_id: str,
        content: bytes,
        media_type: str,
        *,
        owner: AttachmentOwner | None = None,
        width: int | None = None,
        height: int | None = None,
        label: str | None = None,
    ) -> AttachmentRef:
        """Announce the attachment, write its bytes, and return how messages name it.

        Putting the same bytes again is harmless: the latest description stands, a commit's stamp stays, and while
        there is none the attachment counts as new again and belongs to the latest owner named. A put that fails
        leaves an announcement, which a sweep removes. Bytes are never lost to a sweep that runs at the same time.
        """
        ...

    async def get(self, session_id: str, attachment_id: str) -> StoredAttachment:
        """Return the attachment with its bytes, checked against its id, or raise AttachmentNotFound.

        Damaged bytes are CorruptData, and so are missing ones once there was a commit; putting them again mends both.
        """
        ...

    async def entry(self, session_id: str, attachment_id: str) -> AttachmentEntry | None:
        """Return what the manifest says, without the bytes; None if the session has no such attachment."""
        ...

    async def commit_refs(self, session_id: str, attachment_ids: Collection[str]) -> tuple[str, ...]:
        """Stamp attachments as committed, and return which of the ids now are; the others are not there.

        The first stamp stays. A commit of the session that names attachments does the same in its own transaction.
        """
        ...

    async def list(self, session_id: str, *, limit: int = 100, cursor: str | None = None) -> AttachmentPage:
        """Return what a session has, committed or not, in the order of the ids. Pages do not overlap."""
        ...

    async def list_uncommitted(
        self, older_than_ms: int = 0, *, limit: int = 100, cursor: str | None = None
    ) -> AttachmentPage:
        """Return what was announced at least so long ago and is not committed, by time and then by id."""
        ...

    async def forget(self, session_id: str, attachment_id: str) -> bool:
        """Take an attachment from a session, committed or not, and return whether it was there.

        The bytes go with the next sweep, unless a session names them.
        """
        ...

    async def sweep(self, older_than_ms: int, is_owner_gone: IsOwnerGone, *, dry_run: bool = False) -> SweepReport:
        """Remove what is old and uncommitted and which nobody will commit, and the bytes that no session names.

        Nothing is removed on a guess: ``is_owner_gone`` is asked about each, also about what has no owner, and where
        it fails the attachment stays and is reported as refused. If bytes cannot be deleted, or the database fails on
        the way, this raises SweepIncomplete with the report so far. Any number of sweeps may run at the same time.
        """
        ...


class AttachmentManifest(Protocol):
    """What a backend does for the attachments of its storage; callers have checked all that comes here."""

    async def announce(self, intent: Intent) -> str | None:
        """Write the session's line and keep or revoke the fence, both or none.

        Returns the fence's token; None, with nothing written, while the bytes are being deleted.
        """
        ...

    async def confirm(self, session_id: str, attachment_id: str, token: str) -> bool:
        """Say whether the session still names the bytes and their fence is still of this life."""
        ...

    async def row(self, session_id: str, attachment_id: str) -> AttachmentRow | None:
        """Return one line."""
        ...

    async def lines(self, session_id: str, after: str, limit: int) -> Sequence[AttachmentRow]:
        """Return the lines of a session behind an id, in order."""
        ...

    async def stamp(self, session_id: str, attachment_ids: Sequence[str]) -> tuple[str, ...]:
        """Stamp those lines that have no stamp, and return the ids of all that have one now."""
        ...

    async def now_ms(self) -> int:
        """Return the time by which lines are announced."""
        ...

    async def uncommitted(self, newest_ms: int, after: Place, limit: int) -> Sequence[AttachmentRow]:
        """Return lines without a stamp that were announced by this time, behind a place, in order."""
        ...

    async def forget(self, session_id: str, attachment_id: str) -> bool:
        """Remove one line."""
        ...

    async def drop(self, row: AttachmentRow) -> bool:
        """Remove a line if it still has no stamp and was not announced again since it was read."""
        ...

    async def names(self, attachment_ids: Sequence[str]) -> dict[str, int]:
        """Return how many sessions name each of the ids."""
        ...

    async def unnamed(self, after: str, limit: int) -> UnnamedFences:
        """Look at so many fences behind an id, in order, and return those that no session names."""
        ...

    async def move(self, move: Move, sweeper: str | None) -> bool:
        """Take one step of a fence if its version is the one seen and no session names it; return whether it was."""
        ...

    async def remove(self, fence: FenceRow) -> None:
        """Remove a fence that is at this version, after its bytes."""
        ...
