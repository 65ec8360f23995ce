"""Which attachments may be put, stamped, swept; and the fence that keeps putting and sweeping apart.

The bytes of an attachment have one fence for all sessions::

               put                    sweep: no session names it
    (none) ──────────▶ kept ──────────────────────────────▶ condemned
      ▲                 ▲  ◀──────────────────────────────      │
      │                 └── put                  put            │ sweep
      │                                                         ▼
      └──────────────── the bytes are gone ──────────────── deleting

Every arrow is one compare-and-set on the version, so of two that start from the same state one happens. A put that
finds ``deleting`` waits and begins anew; any other put ends with its session's name in the manifest, in the same
transaction, and then no sweep gets past ``kept``. A put checks after writing the bytes that its fence is still of the
same life (token): if not, a sweep may have deleted them, and it writes them again.
"""

from __future__ import annotations

import base64
import binascii
import enum
import re
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from lash.base.codec import content_hash, decode
from lash.base.limits import check_content, check_digest, check_identifier, check_integer, check_text
from lash.errors import AttachmentNotFound, CorruptData, InvalidInput
from lash.model.attachment import AttachmentEntry, AttachmentOwner, AttachmentPage, OwnerKind, StoredAttachment
from lash.model.lease import LocalProcess
from lash.model.session.message import AttachmentRef
from lash.model.value import Value

ABANDONED_AFTER_MS: Final = 24 * 60 * 60 * 1000
"""How long after its beginning the deletion of an unreachable sweeper counts as abandoned."""

_LONG_AGO_MS: Final = 2**62

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_SYNONYMS: Final = {"image/jpg": "image/jpeg"}


class Phase(enum.StrEnum):
    """Where the bytes of one digest are between being needed and being gone."""

    KEPT = "kept"
    CONDEMNED = "condemned"
    DELETING = "deleting"


class AttachmentRow(msgspec.Struct, frozen=True, array_like=True):
    """One line of the manifest as it is stored."""

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


class FenceRow(msgspec.Struct, frozen=True, array_like=True):
    """The fence of one digest."""

    attachment_id: str
    byte_len: int
    phase: Phase
    version: int
    token: str
    sweeper: str | None
    changed_at_ms: int


class UnnamedFences(msgspec.Struct, frozen=True, array_like=True):
    """The time, the last fence that was looked at, and those up to it that no session names."""

    now_ms: int
    last_id: str | None
    fences: list[FenceRow]


class NameCount(msgspec.Struct, frozen=True, array_like=True):
    """How many sessions name one digest."""

    attachment_id: str
    count: int


class Sweeper(Value, frozen=True, kw_only=True):
    """One sweep, and the process that runs it where that can be described."""

    sweep_id: str
    process: LocalProcess | None = None


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A place in the list of uncommitted attachments."""

    intent_at_ms: int
    attachment_id: str
    session_key: int


START: Final = Place(-(2**63), "", 0)


class Intent(Value, frozen=True, kw_only=True):
    """A put, checked and ready to be announced."""

    session_id: str
    ref: AttachmentRef
    owner: AttachmentOwner | None
    content: bytes


class Move(Value, frozen=True, kw_only=True):
    """One step of a fence: to this phase, if its version is still the one seen."""

    attachment_id: str
    version: int
    to: Phase


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
    """Check all that a put was given, before anything is written."""
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
    """Return the media type in its one spelling; parameters do not belong to it."""
    text = check_text("media_type", media_type, limit=255).lower()
    text = _SYNONYMS.get(text, text)
    if not _MEDIA_TYPE.fullmatch(text):
        raise InvalidInput(f"media_type must look like 'image/png', not {media_type!r:.80}")
    return text


def check_attachment_id(attachment_id: object) -> str:
    """Return the id if it is one. Nothing else may ever reach a byte store."""
    return check_digest("attachment_id", attachment_id)


def check_attachment_ids(attachment_ids: object) -> tuple[str, ...]:
    """Return the ids, each once, in order."""
    if isinstance(attachment_ids, str | bytes) or not isinstance(attachment_ids, Collection):
        raise InvalidInput(f"attachment_ids must be a collection of ids, not {type(attachment_ids).__name__}")
    return tuple(sorted({check_attachment_id(attachment_id) for attachment_id in attachment_ids}))


def decode_entry(row: AttachmentRow) -> AttachmentEntry:
    """Return the line of the manifest that a row is."""
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
    """Return the attachment if these bytes are its bytes.

    Bytes that are missing are no damage while there is no commit: the put that announced them did not get that far.
    """
    attachment_id = entry.ref.id
    if content is None:
        if entry.committed_at_ms is None:
            raise AttachmentNotFound(entry.session_id, attachment_id)
        raise CorruptData(f"the bytes of attachment {attachment_id} of session {entry.session_id!r} are missing")
    if len(content) != entry.ref.byte_len or content_hash(content) != attachment_id:
        raise CorruptData(f"the stored bytes of attachment {attachment_id} are damaged")
    return StoredAttachment(ref=entry.ref, content=content)


def plan_announcement(fence: FenceRow | None) -> int | None:
    """Return the version that a put gives the fence, which it keeps or revokes; None if the bytes are being deleted."""
    if fence is None:
        return 1
    return None if fence.phase is Phase.DELETING else fence.version + 1


def plan_removal(fence: FenceRow, *, sweeper_is_dead: bool, now_ms: int) -> Move | None:
    """Return the next step towards deleting bytes that no session names; None while another sweep deletes them."""
    if fence.phase is Phase.KEPT:
        return Move(attachment_id=fence.attachment_id, version=fence.version, to=Phase.CONDEMNED)
    if fence.phase is Phase.DELETING and not _is_abandoned(fence, now_ms, sweeper_is_dead=sweeper_is_dead):
        return None
    return Move(attachment_id=fence.attachment_id, version=fence.version, to=Phase.DELETING)


def after(move: Move, fence: FenceRow, sweeper: str | None) -> FenceRow:
    """Return the fence as it is once the step was taken."""
    return msgspec.structs.replace(fence, phase=move.to, version=move.version + 1, sweeper=sweeper)


def plan_failed_deletion(fence: FenceRow, *, outcome_unknown: bool) -> Move:
    """Return the step after a deletion that failed.

    Where it may still happen, the fence stays shut, held by nobody: a put that went on now could lose its bytes.
    """
    to = Phase.DELETING if outcome_unknown else Phase.CONDEMNED
    return Move(attachment_id=fence.attachment_id, version=fence.version, to=to)


def sweeper_of(fence: FenceRow) -> Sweeper | None:
    """Return who deletes the bytes, or did when it was last heard of."""
    return None if fence.sweeper is None else decode(fence.sweeper, Sweeper, "the sweeper of a fence")


def decode_attachment_page(rows: Sequence[AttachmentRow], limit: int) -> AttachmentPage:
    """Return the page; the rows hold one more than the limit when there is a next page."""
    shown = rows[:limit]
    cursor = encode_place(place_of(shown[-1])) if len(rows) > limit else None
    return AttachmentPage(entries=tuple(decode_entry(row) for row in shown), next_cursor=cursor)


def decode_line_page(rows: Sequence[AttachmentRow], limit: int) -> AttachmentPage:
    """Return a page of one session's attachments; the rows hold one more than the limit when there is a next page."""
    shown = rows[:limit]
    cursor = shown[-1].attachment_id if len(rows) > limit else None
    return AttachmentPage(entries=tuple(decode_entry(row) for row in shown), next_cursor=cursor)


def decode_line_cursor(cursor: str | None) -> str:
    """Return the id behind which a page of one session's attachments begins."""
    return "" if cursor is None else check_digest("cursor", cursor)


def place_of(row: AttachmentRow) -> Place:
    """Return the place of a row in the list of uncommitted attachments."""
    return Place(row.intent_at_ms, row.attachment_id, row.session_key)


def encode_place(place: Place) -> str:
    """Return the opaque text form of a place."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def decode_place(cursor: str | None) -> Place:
    """Return the place that a cursor means, the first if there is none, or raise InvalidInput."""
    if cursor is None:
        return START
    try:
        place = msgspec.json.decode(base64.urlsafe_b64decode(check_identifier("cursor", cursor)), type=Place)
        for number in (place.intent_at_ms, place.session_key):
            check_integer("cursor", number)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidInput(f"{cursor!r:.80} is not a cursor of a list of attachments") from None
    check_digest("cursor", place.attachment_id)
    return place


def check_age(older_than_ms: object) -> int:
    """Return the age if it is one; nothing is older than the epoch, so a larger one means the same."""
    return min(check_integer("older_than_ms", older_than_ms, at_least=0), _LONG_AGO_MS)


def _is_abandoned(fence: FenceRow, now_ms: int, *, sweeper_is_dead: bool) -> bool:
    """Say whether nobody can be deleting these bytes any more.

    A sweeper of another machine cannot be seen to be dead; only for it does time count, and then a whole day.
    """
    return fence.sweeper is None or sweeper_is_dead or fence.changed_at_ms <= now_ms - ABANDONED_AFTER_MS


def _checked_owner(owner: object) -> AttachmentOwner | None:
    if owner is None:
        return None
    if not isinstance(owner, AttachmentOwner) or owner.kind not in OwnerKind.__members__.values():
        raise InvalidInput(f"owner must be an AttachmentOwner of a turn or a process, not {owner!r:.80}")
    check_identifier("owner.id", owner.id)
    return owner


def _stored_owner(row: AttachmentRow) -> AttachmentOwner | None:
    if row.owner_kind is None or row.owner_id is None:
        return None
    if row.owner_kind not in OwnerKind.__members__.values():
        raise CorruptData(f"attachment {row.attachment_id} has an owner of the unknown kind {row.owner_kind!r}")
    return AttachmentOwner(kind=OwnerKind(row.owner_kind), id=row.owner_id)
