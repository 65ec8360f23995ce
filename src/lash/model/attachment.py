"""Attachments: users' files that belong to a session."""

from __future__ import annotations

import enum

from lash.model.session.message import AttachmentRef
from lash.model.value import Count, Value


class OwnerKind(enum.StrEnum):
    """What can own an attachment before a commit does."""

    TURN = "turn"
    PROCESS = "process"


class AttachmentOwner(Value, frozen=True, kw_only=True):
    """The turn or process that put an attachment: as long as it may still commit, the attachment is not swept."""

    kind: OwnerKind
    id: str


class StoredAttachment(Value, frozen=True, kw_only=True):
    """An attachment with its bytes, which were checked against its id."""

    ref: AttachmentRef
    content: bytes


class AttachmentEntry(Value, frozen=True, kw_only=True):
    """One line of the manifest: that a session has, or is about to have, an attachment."""

    session_id: str
    ref: AttachmentRef
    intent_at_ms: int
    owner: AttachmentOwner | None = None
    committed_at_ms: int | None = None


class AttachmentPage(Value, frozen=True, kw_only=True):
    """Some lines of the manifest, and the cursor with which to ask for the next ones."""

    entries: tuple[AttachmentEntry, ...]
    next_cursor: str | None = None


class SweepProblem(Value, frozen=True, kw_only=True):
    """Something that a sweep left alone. ``session_id`` is None where the bytes as such were the matter."""

    attachment_id: str
    reason: str
    session_id: str | None = None


class SweepReport(Value, frozen=True, kw_only=True):
    """What a sweep did, or would do.

    ``swept`` were old, uncommitted and without a living owner; ``kept`` had a living owner, or were put again or
    committed meanwhile; about ``refused`` nobody could say whether the owner lives; ``failed`` bytes could not be
    deleted and are tried again by the next sweep. ``deleted`` are the ids whose bytes are gone, ``freed_bytes`` their
    length, ``stale_files`` what unfinished writes had left in the byte store.
    """

    dry_run: bool = False
    swept: tuple[AttachmentEntry, ...] = ()
    kept: tuple[AttachmentEntry, ...] = ()
    refused: tuple[SweepProblem, ...] = ()
    failed: tuple[SweepProblem, ...] = ()
    deleted: tuple[str, ...] = ()
    freed_bytes: Count = 0
    stale_files: Count = 0
