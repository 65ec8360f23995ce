"""Attachments: files of users that belong to a session."""

from __future__ import annotations

import enum

from lash.model.session.message import AttachmentRef
from lash.model.value import Count, Value


class OwnerKind(enum.StrEnum):
    """The kinds of owners of an attachment that is not committed."""

    TURN = "turn"
    PROCESS = "process"


class AttachmentOwner(Value, frozen=True, kw_only=True):
    """The turn or process that put an attachment; the attachment is not swept while its owner may still commit it."""

    kind: OwnerKind
    id: str


class StoredAttachment(Value, frozen=True, kw_only=True):
    """An attachment with its bytes, verified against its id."""

    ref: AttachmentRef
    content: bytes


class AttachmentEntry(Value, frozen=True, kw_only=True):
    """One entry of the manifest: an attachment that a session has or is about to have."""

    session_id: str
    ref: AttachmentRef
    intent_at_ms: int
    owner: AttachmentOwner | None = None
    committed_at_ms: int | None = None


class AttachmentPage(Value, frozen=True, kw_only=True):
    """Some entries of the manifest, and the cursor of the next page."""

    entries: tuple[AttachmentEntry, ...]
    next_cursor: str | None = None


class SweepProblem(Value, frozen=True, kw_only=True):
    """An attachment that a sweep did not remove. ``session_id`` is None if its bytes could not be deleted."""

    attachment_id: str
    reason: str
    session_id: str | None = None


class SweepReport(Value, frozen=True, kw_only=True):
    """The result of a sweep, or of a dry run.

    ``swept`` were old, uncommitted and without a living owner. ``kept`` had a living owner, or were put again or
    committed meanwhile. For ``refused`` it is unknown whether the owner lives. ``failed`` bytes could not be deleted;
    the next sweep retries. ``deleted`` are the ids whose bytes are gone, ``freed_bytes`` is their length.
    ``stale_files`` counts the files that unfinished writes left in the byte store.
    """

    dry_run: bool = False
    swept: tuple[AttachmentEntry, ...] = ()
    kept: tuple[AttachmentEntry, ...] = ()
    refused: tuple[SweepProblem, ...] = ()
    failed: tuple[SweepProblem, ...] = ()
    deleted: tuple[str, ...] = ()
    freed_bytes: Count = 0
    stale_files: Count = 0
