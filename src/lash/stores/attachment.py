"""The contracts of attachments: the store, the byte store, and the manifest that a backend keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lash.model.attachment import AttachmentEntry, AttachmentOwner, AttachmentPage, StoredAttachment, SweepReport
from lash.model.session.message import AttachmentRef
from lash.model.session.session import Durability

if TYPE_CHECKING:
    # Only backends use these; without them, import lash stays light.
    from lash.plan.attachment import (
        AttachmentRow,
        ByteGuardRow,
        DecideAnnouncement,
        GuardStep,
        Intent,
        PageKey,
        UnnamedBytes,
    )

IsOwnerGone: TypeAlias = Callable[[AttachmentEntry], Awaitable[bool]]
"""Returns whether nothing can commit an uncommitted attachment any more: neither its owner, if it has one, nor the turn
of a message that names it."""


class ByteStore(Protocol):
    """A store for the bytes of attachments, for one storage: a sweep deletes bytes that this storage does not name.

    Ids are always 64 lowercase hex digits. Raise errors of lash: StoreUnavailable with ``outcome_unknown`` if a write
    or a deletion may still happen after the call has failed.
    """

    @property
    def durability(self) -> Durability:
        """Which crashes the bytes survive once ``put`` has returned."""
        ...

    async def put(self, attachment_id: str, content: bytes) -> None:
        """Store the bytes, whole or not at all, and replace damaged ones."""
        ...

    async def get(self, attachment_id: str) -> bytes | None:
        """Return the stored bytes, unchecked; None if there are none."""
        ...

    async def delete(self, attachment_id: str) -> None:
        """Delete the bytes; do nothing if there are none."""
        ...

    async def sweep_stale(self) -> int:
        """Delete what crashed writes left behind, and return how many files that were."""
        ...


class AttachmentStore(Protocol):
    """The attachments of sessions.

    Methods that name a session raise SessionNotFound or SessionDeleted if it does not exist, and InvalidInput for an
    id that is not 64 lowercase hex digits.
    """

    @property
    def durability(self) -> Durability:
        """Which crashes a put survives once it has returned: the weaker promise of the database and the byte store."""
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
        """Announce the attachment, write its bytes, and return the reference that messages use.

        Idempotent: putting the same bytes again keeps a commit's stamp and takes the latest description. Without a
        stamp the attachment counts as new again and belongs to the latest owner named. A failed put leaves an
        announcement, which a sweep removes. A concurrent sweep never deletes the bytes of a successful put.
        """
        ...

    async def get(self, session_id: str, attachment_id: str) -> StoredAttachment:
        """Return the attachment with its bytes, checked against its id, or raise AttachmentNotFound.

        Damaged bytes raise CorruptData, and so do missing ones after a commit; putting them again repairs both.
        """
        ...

    async def entry(self, session_id: str, attachment_id: str) -> AttachmentEntry | None:
        """Return the entry of the manifest, without the bytes; None if the session has no such attachment."""
        ...

    async def commit_refs(self, session_id: str, attachment_ids: Collection[str]) -> tuple[str, ...]:
        """Stamp attachments as committed, and return the ids that are; the session does not have the others.

        The first stamp stays. A commit of the session that names attachments does the same in its own transaction.
        """
        ...

    async def list(self, session_id: str, *, limit: int = 100, cursor: str | None = None) -> AttachmentPage:
        """Return the attachments of a session, committed or not, ordered by id. Pages do not overlap."""
        ...

    async def list_uncommitted(
        self, older_than_ms: int = 0, *, limit: int = 100, cursor: str | None = None
    ) -> AttachmentPage:
        """Return attachments that were announced at least this long ago and are not committed, by time and then id."""
        ...

    async def forget(self, session_id: str, attachment_id: str) -> bool:
        """Remove an attachment from a session, committed or not, and return whether the session had it.

        The next sweep deletes the bytes, unless another session names them.
        """
        ...

    async def sweep(self, older_than_ms: int, is_owner_gone: IsOwnerGone, *, dry_run: bool = False) -> SweepReport:
        """Remove old attachments that nothing can commit any more, and the bytes that no session names.

        ``is_owner_gone`` is called for each, also for those without an owner; if it fails, the attachment stays and is
        reported as refused. If bytes cannot be deleted, or the database fails meanwhile, this raises SweepIncomplete
        with the report so far. Sweeps may run concurrently.
        """
        ...


class AttachmentManifest(Protocol):
    """The manifest and the byte guards of one database; `lash.backend.attachment.attachment.Attachments` uses them.

    Arguments are checked. A byte guard is the row that keeps puts and sweeps of the same bytes apart; its phases are
    those of `lash.plan.attachment`.
    """

    async def announce(self, intent: Intent, decide: DecideAnnouncement, /) -> str | None:
        """Write the session's entry and keep the byte guard, both or neither.

        ``decide`` returns the version that the guard gets. Returns the guard's token; None, with nothing written, while
        the bytes are being deleted.
        """
        ...

    async def confirm(self, session_id: str, attachment_id: str, token: str) -> bool:
        """Return whether the session still names the bytes and their guard still has this token."""
        ...

    async def row(self, session_id: str, attachment_id: str) -> AttachmentRow | None:
        """Return one entry."""
        ...

    async def lines(self, session_id: str, after: str, limit: int) -> Sequence[AttachmentRow]:
        """Return the entries of a session after an id, in order."""
        ...

    async def stamp(self, session_id: str, attachment_ids: Sequence[str]) -> tuple[str, ...]:
        """Stamp the entries without a stamp, and return the ids of all that have one now."""
        ...

    async def now_ms(self) -> int:
        """Return the time of the clock that stamps announcements."""
        ...

    async def uncommitted(self, newest_ms: int, after: PageKey, limit: int) -> Sequence[AttachmentRow]:
        """Return entries without a stamp that were announced by this time, after a key, in order."""
        ...

    async def forget(self, session_id: str, attachment_id: str) -> bool:
        """Remove one entry."""
        ...

    async def drop(self, row: AttachmentRow) -> bool:
        """Remove an entry if it still has no stamp and was not announced again since it was read."""
        ...

    async def names(self, attachment_ids: Sequence[str]) -> dict[str, int]:
        """Return how many sessions name each of the ids."""
        ...

    async def unnamed(self, after: str, limit: int) -> UnnamedBytes:
        """Read this many guards after an id, in order, and return those whose bytes no session names."""
        ...

    async def move(self, move: GuardStep, sweeper: str | None) -> bool:
        """Change a guard if its version is the one seen and no session names its bytes; return whether it changed."""
        ...

    async def remove(self, guard: ByteGuardRow) -> None:
        """Delete a guard at this version, after its bytes."""
        ...
