"""Attachments: rows by session, and bytes that a row names or no sweep has removed yet."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from lash.model.attachment import (
    AttachmentEntry,
    AttachmentOwner,
    StoredAttachment,
    SweepProblem,
    SweepReport,
)
from lash.model.session.message import AttachmentRef
from tests.proof.model.base_model import Sessions
from tests.proof.model.kit import Refused

ALIVE, GONE, UNKNOWN = "alive", "gone", "unknown"
"""Owners by what is known of them."""


class Attachments:
    """The manifest of all existing sessions, and the bytes."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._lines: dict[tuple[str, int], dict[str, AttachmentEntry]] = {}
        self.stored: dict[str, bytes] = {}

    def of(self, session_id: str) -> dict[str, AttachmentEntry]:
        state = self._sessions.need(session_id)
        return self._lines.setdefault((session_id, state.incarnation), {})

    def all(self) -> list[AttachmentEntry]:
        """Return every line, the sessions in the order in which they were created."""
        return [entry for session_id in self._sessions.live for entry in self.of(session_id).values()]

    def put(
        self, session_id: str, content: bytes, media_type: str, owner: AttachmentOwner | None, label: str | None
    ) -> AttachmentRef:
        lines = self.of(session_id)
        ref = AttachmentRef(id=_id(content), media_type=media_type, byte_len=len(content), label=label)
        known = lines.get(ref.id)
        if known is None or known.committed_at_ms is None:
            kept = owner if owner is not None or known is None else known.owner
            intent_at_ms = self._sessions.now_ms
            lines[ref.id] = AttachmentEntry(session_id=session_id, ref=ref, intent_at_ms=intent_at_ms, owner=kept)
        else:
            lines[ref.id] = msgspec.structs.replace(known, ref=ref)
        self.stored[ref.id] = content
        return ref

    def get(self, session_id: str, attachment_id: str) -> StoredAttachment:
        entry = self.of(session_id).get(attachment_id)
        if entry is None:
            raise Refused("AttachmentNotFound", session_id=session_id, attachment_id=attachment_id)
        return StoredAttachment(ref=entry.ref, content=self.stored[attachment_id])

    def check(self, session_id: str, attachment_ids: Sequence[str]) -> None:
        """Refuse as a commit does that names a missing attachment."""
        lines = self.of(session_id)
        for attachment_id in sorted(attachment_ids):
            if attachment_id not in lines:
                raise Refused("AttachmentNotFound", session_id=session_id, attachment_id=attachment_id)

    def stamp(self, session_id: str, attachment_ids: Sequence[str]) -> tuple[str, ...]:
        lines = self.of(session_id)
        found = sorted({each for each in attachment_ids if each in lines})
        for attachment_id in found:
            entry = lines[attachment_id]
            if entry.committed_at_ms is None:
                lines[attachment_id] = msgspec.structs.replace(entry, committed_at_ms=self._sessions.now_ms)
        return tuple(found)

    def inherit(self, source: dict[str, AttachmentEntry], session_id: str) -> None:
        """Give a new fork what its source has committed; an owner is not needed any more."""
        for attachment_id, entry in source.items():
            if entry.committed_at_ms is not None:
                self.of(session_id)[attachment_id] = msgspec.structs.replace(entry, session_id=session_id, owner=None)

    def uncommitted(self, older_than_ms: int) -> list[AttachmentEntry]:
        newest_ms = self._sessions.now_ms - older_than_ms
        found = [each for each in self.all() if each.committed_at_ms is None and each.intent_at_ms <= newest_ms]
        # Python's sort keeps the order of creation of the sessions among equals.
        return sorted(found, key=lambda entry: (entry.intent_at_ms, entry.ref.id))

    def sweep(self, older_than_ms: int, *, dry_run: bool) -> SweepReport:
        """Predict a sweep: it keeps what an owner may still commit, and bytes that a row names."""
        found = self.uncommitted(older_than_ms)
        swept = [entry for entry in found if entry.owner is None or entry.owner.id == GONE]
        names = [(entry.session_id, entry.ref.id) for entry in swept]
        left = {entry.ref.id for entry in self.all() if (entry.session_id, entry.ref.id) not in names}
        foreseen = [entry.ref.id for entry in swept if entry.ref.id not in left]
        unnamed = sorted(each for each in self.stored if each not in left and (not dry_run or each not in foreseen))
        deleted = tuple(dict.fromkeys([*foreseen, *unnamed])) if dry_run else tuple(unnamed)
        freed = sum(len(self.stored[each]) for each in deleted)
        if not dry_run:
            for entry in swept:
                del self.of(entry.session_id)[entry.ref.id]
            for attachment_id in deleted:
                del self.stored[attachment_id]
        return SweepReport(
            dry_run=dry_run,
            swept=tuple(swept),
            kept=tuple(entry for entry in found if entry.owner is not None and entry.owner.id == ALIVE),
            refused=tuple(_problem(entry) for entry in found if entry.owner is not None and entry.owner.id == UNKNOWN),
            deleted=deleted,
            freed_bytes=freed,
        )


def without_reasons(report: SweepReport) -> SweepReport:
    """Return the report without the texts of the refusals."""
    refused = tuple(msgspec.structs.replace(each, reason="") for each in report.refused)
    return msgspec.structs.replace(report, refused=refused)


def _problem(entry: AttachmentEntry) -> SweepProblem:
    return SweepProblem(attachment_id=entry.ref.id, session_id=entry.session_id, reason="")


def _id(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
