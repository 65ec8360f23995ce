"""Rules of attachments: puts, stamps and sweeps, and the byte guard that serialises puts and sweeps.

The bytes of an attachment have one guard for all sessions::

               put                    sweep: no session names it
    (none) ──────────▶ kept ──────────────────────────────▶ condemned
      ▲                 ▲  ◀──────────────────────────────      │
      │                 └── put                  put            │ sweep
      │                                                         ▼
      └──────────────── the bytes are gone ──────────────── deleting

Every arrow is one compare-and-set on the version, so only one of two concurrent steps from the same state succeeds. A
put that finds ``deleting`` waits and retries. Any other put adds its session's entry to the manifest in the same
transaction, and then no sweep gets past ``kept``. After writing the bytes, a put checks that the guard still has the
same token; if not, a sweep may have deleted the bytes, and the put writes them again.
"""

from __future__ import annotations

import base64
import binascii
import enum
import re
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

import msgspec

from lash.base.codec import content_hash, decode
from lash.base.limits import check_content, check_digest, check_identifier, check_integer, check_text
from lash.base.seal import refuse_sealed
from lash.base.shapes import read_json
from lash.errors import AttachmentNotFound, CorruptData, InvalidInput
from lash.model.attachment import AttachmentEntry, AttachmentOwner, AttachmentPage, OwnerKind, StoredAttachment
from lash.model.lease import LocalProcess
from lash.model.session.message import AttachmentRef
from lash.model.value import Value

ABANDONED_AFTER_MS: Final = 24 * 60 * 60 * 1000
"""How long after its start a deletion by a sweep on another machine counts as abandoned."""

_LONG_AGO_MS: Final = 2**62
"""The largest age; the time minus it cannot overflow."""

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_SYNONYMS: Final = {"image/jpg": "image/jpeg"}
"""Common spellings that are not registered, and the registered ones."""


class BytePhase(enum.StrEnum):
    """The state of the bytes of one digest, from kept to deleted."""

    KEPT = "kept"
    CONDEMNED = "condemned"
    DELETING = "deleting"


class AttachmentRow(msgspec.Struct, frozen=True, array_like=True):
    """One stored entry of the manifest."""

    session_key: int
    session_id: str
    attachment_id: str
    media_type: str
    byte_len: int
    width: int | None
    height: int | None
    label: str | None
    owner_kind: str | None
    owner_id: str | None
    intent_at_ms: int
    committed_at_ms: int | None


class ByteGuardRow(msgspec.Struct, frozen=True, array_like=True):
    """The byte guard of one digest."""

    attachment_id: str
    byte_len: int
    phase: BytePhase
    version: int
    token: str
    sweeper: str | None
    changed_at_ms: int


DecideAnnouncement: TypeAlias = Callable[[ByteGuardRow | None], int | None]
"""Decides about a put from the byte guard, if there is one; see `plan_announcement`."""


class UnnamedBytes(msgspec.Struct, frozen=True, array_like=True):
    """The time, the last guard that was examined, and the guards up to it whose bytes no session names."""

    now_ms: int
    last_id: str | None
    guards: list[ByteGuardRow]


class NameCount(msgspec.Struct, frozen=True, array_like=True):
    """How many sessions name one digest."""

    attachment_id: str
    count: int


class SweepRun(Value, frozen=True, kw_only=True):
    """One sweep, and the process that runs it if that can be described."""

    sweep_id: str
    process: LocalProcess | None = None


class PageKey(msgspec.Struct, frozen=True, array_like=True):
    """The key of an entry in the list of uncommitted attachments."""

    intent_at_ms: int
    attachment_id: str
    session_key: int


FIRST_PAGE: Final = PageKey(-(2**63), "", 0)
"""The key before all entries."""


class Intent(Value, frozen=True, kw_only=True):
    """A put, checked and ready to be announced."""

    session_id: str
    ref: AttachmentRef
    owner: AttachmentOwner | None
    content: bytes


class GuardStep(Value, frozen=True, kw_only=True):
    """One step of a byte guard: to this phase, if its version is still the one seen."""

    attachment_id: str
    version: int
    to: BytePhase


def prepare_put(
    session_id: object,
    content: object,
    media_type: object,
    *,
    owner: object = None,
    width: object = None,
    height: object = None,
    label: object = None,
) -> Intent:
    """Check the arguments of a put before anything is written."""
    plain = check_content("content", content)
    ref = AttachmentRef(
        id=content_hash(plain),
        media_type=normal_media_type(media_type),
        byte_len=len(plain),
        width=None if width is None else check_integer("width", width, at_least=1),
        height=None if height is None else check_integer("height", height, at_least=1),
        label=None if label is None else check_text("label", label),
    )
    return Intent(
        session_id=check_identifier("session_id", session_id), ref=ref, owner=_checked_owner(owner), content=plain
    )


def normal_media_type(media_type: object) -> str:
    """Return the normal spelling of a media type, without parameters."""
    text = check_text("media_type", media_type, limit=255).lower()
    text = _SYNONYMS.get(text, text)
    if not _MEDIA_TYPE.fullmatch(text):
        raise InvalidInput(f"expected a media_type such as 'image/png', got {media_type!r:.80}")
    return text


def check_attachment_id(attachment_id: object) -> str:
    """Return the id; raise InvalidInput if it is not one. Nothing else may ever reach a byte store."""
    return check_digest("attachment_id", attachment_id)


def check_attachment_ids(attachment_ids: object) -> tuple[str, ...]:
    """Return the ids in order, without duplicates."""
    if isinstance(attachment_ids, str | bytes) or not isinstance(attachment_ids, Collection):
        raise InvalidInput(f"attachment_ids must be a collection of ids, not {type(attachment_ids).__name__}")
    return tuple(sorted({check_attachment_id(attachment_id) for attachment_id in attachment_ids}))


def decode_entry(row: AttachmentRow) -> AttachmentEntry:
    """Return the entry that a row stores."""
    return AttachmentEntry(
        session_id=row.session_id,
        ref=AttachmentRef(
            id=row.attachment_id,
            media_type=row.media_type,
            byte_len=row.byte_len,
            width=row.width,
            height=row.height,
            label=row.label,
        ),
        intent_at_ms=row.intent_at_ms,
        owner=_stored_owner(row),
        committed_at_ms=row.committed_at_ms,
    )


def verify(entry: AttachmentEntry, content: bytes | None) -> StoredAttachment:
    """Return the attachment with its bytes; raise CorruptData if they are damaged.

    Before a commit, missing bytes are not damage: the put that announced them did not finish.
    """
    attachment_id = entry.ref.id
    if content is None:
        if entry.committed_at_ms is None:
            raise AttachmentNotFound(entry.session_id, attachment_id)
        raise CorruptData(f"the bytes of attachment {attachment_id} of session {entry.session_id!r} are missing")
    if len(content) != entry.ref.byte_len or content_hash(content) != attachment_id:
        refuse_sealed(content)
        raise CorruptData(f"the stored bytes of attachment {attachment_id} are damaged")
    return StoredAttachment(ref=entry.ref, content=content)


def plan_announcement(guard: ByteGuardRow | None) -> int | None:
    """Return the version that a put gives the guard; None if the bytes are being deleted.

    PostgreSQL has the same rule in its statement ``attachment_announce``, which saves a round trip.
    """
    if guard is None:
        return 1
    return None if guard.phase is BytePhase.DELETING else guard.version + 1


def plan_removal(guard: ByteGuardRow, *, sweeper_is_dead: bool, now_ms: int) -> GuardStep | None:
    """Return the next step towards deleting bytes that no session names; None while another sweep deletes them."""
    if guard.phase is BytePhase.KEPT:
        return GuardStep(attachment_id=guard.attachment_id, version=guard.version, to=BytePhase.CONDEMNED)
    if guard.phase is BytePhase.DELETING and not _is_abandoned(guard, now_ms, sweeper_is_dead=sweeper_is_dead):
        return None
    return GuardStep(attachment_id=guard.attachment_id, version=guard.version, to=BytePhase.DELETING)


def after(move: GuardStep, guard: ByteGuardRow, sweeper: str | None) -> ByteGuardRow:
    """Return the guard after the step."""
    return msgspec.structs.replace(guard, phase=move.to, version=move.version + 1, sweeper=sweeper)


def plan_failed_deletion(guard: ByteGuardRow, *, outcome_unknown: bool) -> GuardStep:
    """Return the step after a failed deletion.

    If the deletion may still happen, the guard stays in ``deleting`` without a sweep: a put could lose its bytes.
    """
    to = BytePhase.DELETING if outcome_unknown else BytePhase.CONDEMNED
    return GuardStep(attachment_id=guard.attachment_id, version=guard.version, to=to)


def sweep_run_of(guard: ByteGuardRow) -> SweepRun | None:
    """Return the sweep that is deleting the bytes, or was when it last changed the guard."""
    return None if guard.sweeper is None else decode(guard.sweeper, SweepRun, "the sweep of a byte guard")


def decode_attachment_page(rows: Sequence[AttachmentRow], limit: int) -> AttachmentPage:
    """Return a page; one row more than the limit means that there is a next page."""
    shown = rows[:limit]
    cursor = encode_page_key(page_key(shown[-1])) if len(rows) > limit else None
    return AttachmentPage(entries=tuple(decode_entry(row) for row in shown), next_cursor=cursor)


def decode_line_page(rows: Sequence[AttachmentRow], limit: int) -> AttachmentPage:
    """Return a page of one session's attachments; one row more than the limit means that there is a next page."""
    shown = rows[:limit]
    cursor = shown[-1].attachment_id if len(rows) > limit else None
    return AttachmentPage(entries=tuple(decode_entry(row) for row in shown), next_cursor=cursor)


def decode_line_cursor(cursor: str | None) -> str:
    """Return the id after which a page of one session's attachments starts."""
    return "" if cursor is None else check_digest("cursor", cursor)


def page_key(row: AttachmentRow) -> PageKey:
    """Return the key of a row in the list of uncommitted attachments."""
    return PageKey(row.intent_at_ms, row.attachment_id, row.session_key)


def encode_page_key(key: PageKey) -> str:
    """Return the cursor of a key: opaque text."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()


def decode_page_key(cursor: str | None) -> PageKey:
    """Return the key of a cursor, ``FIRST_PAGE`` without one; raise InvalidInput if it is not a cursor."""
    if cursor is None:
        return FIRST_PAGE
    try:
        key = read_json(base64.urlsafe_b64decode(check_identifier("cursor", cursor)), PageKey)
        for number in (key.intent_at_ms, key.session_key):
            check_integer("cursor", number)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidInput(f"expected the next_cursor of a page of attachments, got {cursor!r:.80}") from None
    check_digest("cursor", key.attachment_id)
    return key


def check_age(older_than_ms: object) -> int:
    """Return the age, cut to the largest one; raise InvalidInput if it is not an age."""
    return min(check_integer("older_than_ms", older_than_ms, at_least=0), _LONG_AGO_MS)


def _is_abandoned(guard: ByteGuardRow, now_ms: int, *, sweeper_is_dead: bool) -> bool:
    """Return whether no sweep can still be deleting these bytes.

    A sweep on another machine cannot be observed to be dead, so a whole day must pass for it.
    """
    return guard.sweeper is None or sweeper_is_dead or guard.changed_at_ms <= now_ms - ABANDONED_AFTER_MS


def _checked_owner(owner: object) -> AttachmentOwner | None:
    if owner is None:
        return None
    if not isinstance(owner, AttachmentOwner) or owner.kind not in OwnerKind.__members__.values():
        raise InvalidInput(f"expected an AttachmentOwner of a turn or a process, got {owner!r:.80}")
    check_identifier("owner.id", owner.id)
    return owner


def _stored_owner(row: AttachmentRow) -> AttachmentOwner | None:
    if row.owner_kind is None or row.owner_id is None:
        return None
    if row.owner_kind not in OwnerKind.__members__.values():
        raise CorruptData(f"attachment {row.attachment_id} has an owner of unknown kind {row.owner_kind!r}")
    return AttachmentOwner(kind=OwnerKind(row.owner_kind), id=row.owner_id)
