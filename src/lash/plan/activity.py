"""What of a session's activity is kept, where a gap is, and what an observer is told."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from lash.base.codec import decode, encode
from lash.base.limits import check_identifier, check_integer
from lash.errors import InvalidInput
from lash.model.activity import (
    Activity,
    ActivityDraft,
    Committed,
    Gap,
    GapReason,
    Look,
    Observed,
    Place,
    ProcessChanged,
    QueueChanged,
    QueueMark,
    SeenChange,
    SeenChanges,
    TurnActivity,
)
from lash.plan.process.change import ChangeCursor, ChangeRow, decode_change_cursor, decode_changes

KEPT_ITEMS: Final = 2_048
KEPT_BYTES: Final = 8 * 1024 * 1024
KEPT_MS: Final = 120_000
"""What an append keeps of a session's activity: no more than this, and nothing older."""

MAX_ITEMS: Final = 1_024
"""How much one append takes."""
MAX_ITEM_BYTES: Final = 65_536
"""How large the stored form of one piece of activity may be."""
COUNTED: Final = 1_000
"""Up to how much a look counts what is queued."""

_FRONT: Final = 16
_VERSION: Final = "o1"
_MAX_CURSOR: Final = 4_096


class EncodedActivity(NamedTuple):
    """Activity ready to be written: the stored forms, and the bytes of each with all before it."""

    bodies: list[str]
    sizes: list[int]

    @property
    def front(self) -> int:
        """How many of the oldest rows an append looks at for what to trim: more than it adds, so that it keeps up."""
        return 2 * len(self.bodies) + _FRONT


class TailRow(msgspec.Struct, frozen=True, array_like=True):
    """How far the activity of a session has come."""

    position: int
    written_bytes: int


class SessionRow(msgspec.Struct, frozen=True, array_like=True):
    """What a look finds about a session. ``epoch`` is None before there is any activity."""

    session_key: int
    revision: int
    epoch: str | None
    position: int | None
    queued: int
    claimed: int
    newest_seq: int | None
    dead: int
    change_seq: int
    change_transaction_id: int = 0


class ActivityRow(msgspec.Struct, frozen=True, array_like=True):
    """Stored activity."""

    position: int
    revision: int
    body: str
    created_at_ms: int


class SeenChangeRow(msgspec.Struct, frozen=True, array_like=True):
    """A change of any process, and whether the session may see that process."""

    seq: int
    process_id: str
    kind: str
    sequence: int | None
    status: str | None
    visible: bool
    transaction_id: int = 0


def encode_activity(items: object) -> EncodedActivity:
    """Check what is to be shown, and return what is stored."""
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        raise InvalidInput(f"items must be a sequence of ActivityDraft, not {type(items).__name__}")
    if not 1 <= len(items) <= MAX_ITEMS:
        raise InvalidInput(f"an append takes 1 to {MAX_ITEMS:,} items, not {len(items):,}")
    bodies = [encode_draft(item) for item in items]
    sizes, total = [], 0
    for body in bodies:
        total += len(body.encode())
        sizes.append(total)
    return EncodedActivity(bodies, sizes)


def encode_draft(item: object) -> str:
    """Return the stored form of one piece of activity."""
    if not isinstance(item, ActivityDraft):
        raise InvalidInput(f"an ActivityDraft is needed, not {type(item).__name__}")
    check_identifier("turn_id", item.turn_id)
    check_integer("lost", item.lost, at_least=0)
    body = encode(item, ActivityDraft, "activity")
    size = len(body.encode())
    if size > MAX_ITEM_BYTES:
        raise InvalidInput(f"the activity has {size:,} bytes; at most {MAX_ITEM_BYTES:,} are allowed")
    return body


def check_place(place: object) -> Place | None:
    """Return the place, or None for where the session stands now."""
    if place is None or isinstance(place, Place):
        return place
    raise InvalidInput(f"a Place is needed, not {type(place).__name__}")


def read_after(place: Place | None) -> int | None:
    """Return the position behind which a look reads activity; None where it reads none."""
    return None if place is None else place.position


def plan_look(place: Place | None, session: SessionRow, rows: Sequence[ActivityRow]) -> Look:
    """Return what a look shows to somebody who has seen the session up to a place, or why it cannot be shown."""
    now = _now(session)
    gap = None if place is None else _gap(place, now, rows)
    if place is None or gap is not None:
        return Look(place=now, gap=gap)
    return Look(place=now, activity=tuple(_decode(row) for row in rows))


def decode_seen_changes(rows: Sequence[SeenChangeRow], after: ChangeCursor, floor: ChangeCursor) -> SeenChanges | None:
    """Return the visible ones of a page of the feed, and the cursor behind all of it; None if a part of it is gone."""
    if after < floor:
        return None
    seen = tuple(_decode_seen_change(row) for row in rows if row.visible)
    last = ChangeCursor(rows[-1].transaction_id, rows[-1].seq) if rows else after
    return SeenChanges(changes=seen, cursor=_change_cursor(last))


def encode_place(session_id: str, place: Place) -> str:
    """Return the cursor that means a place: opaque, and fit for a URL."""
    queue = place.queue
    numbers = (place.life, place.position, place.revision, queue.queued, queue.claimed, queue.newest_seq, queue.dead)
    parts = (_VERSION, *map(str, numbers), place.epoch, place.change, session_id)
    return base64.urlsafe_b64encode(":".join(parts).encode()).decode().rstrip("=")


def decode_place(session_id: str, cursor: object) -> Place:
    """Return the place that a cursor means, or raise InvalidInput if it is no cursor, or one of another session."""
    if not isinstance(cursor, str):
        raise InvalidInput(f"a cursor is text, not {type(cursor).__name__}")
    owner, place = _decode_cursor(cursor)
    if owner != session_id:
        raise InvalidInput(f"the cursor belongs to session {owner!r}, not to {session_id!r}")
    return place


def arrive(place: Place | None, look: Look) -> Place:
    """Return the place from which somebody is told of a look; what had no number before has got one now."""
    now = look.place
    if place is None:
        return now
    return place if look.gap else replace(place, life=now.life, epoch=now.epoch, change=place.change or now.change)


class Telling:
    """Collects what an observer is told, each with the cursor behind it, from one place on."""

    def __init__(self, session_id: str, place: Place) -> None:
        self.place = place
        self.told: list[Observed] = []
        self._session_id = session_id

    def look(self, look: Look) -> None:
        """Tell what a look shows: activity in its order, and commits where they were made between it."""
        if look.gap is not None:
            self.gap(look.gap, look.place)
            return
        for activity in look.activity:
            self._commit(activity.revision)
            self._activity(activity)
        if not look.more:
            self._commit(look.place.revision)
            self._queue(look.place.queue)

    def changes(self, seen: SeenChanges) -> None:
        """Tell of changes of processes."""
        for each in seen.changes:
            cursor, change = self._move(change=each.cursor), each.change
            self.told.append(
                ProcessChanged(
                    cursor=cursor,
                    process_id=change.process_id,
                    kind=change.kind,
                    sequence=change.sequence,
                    status=change.status,
                )
            )
        self._move(change=seen.cursor)

    def gap(self, reason: GapReason, now: Place) -> None:
        """Tell that something is missing, and go on from another place."""
        self.place = now
        self.told.append(Gap(cursor=self._move(), reason=reason, revision=now.revision))

    def _commit(self, revision: int) -> None:
        if revision > self.place.revision:
            self.told.append(Committed(cursor=self._move(revision=revision), revision=revision))

    def _queue(self, queue: QueueMark) -> None:
        if queue != self.place.queue:
            self.told.append(QueueChanged(cursor=self._move(queue=queue), queue=queue))

    def _activity(self, activity: Activity) -> None:
        payload = activity.payload
        if payload is UNSET:
            self._move(position=activity.position)
        if activity.lost:
            cursor, revision = self._move(), self.place.revision
            self.told.append(Gap(cursor=cursor, reason=GapReason.DROPPED, revision=revision, lost=activity.lost))
        if payload is not UNSET:
            cursor = self._move(position=activity.position)
            self.told.append(TurnActivity(cursor=cursor, turn_id=activity.turn_id, payload=payload))

    def _move(self, **changes: object) -> str:
        self.place = replace(self.place, **changes)
        return encode_place(self._session_id, self.place)


def _now(session: SessionRow) -> Place:
    return Place(
        life=session.session_key,
        epoch=session.epoch or "",
        position=session.position or 0,
        revision=session.revision,
        queue=QueueMark(
            queued=session.queued, claimed=session.claimed, newest_seq=session.newest_seq or 0, dead=session.dead
        ),
        change=_change_cursor(ChangeCursor(session.change_transaction_id, session.change_seq)),
    )


def _change_cursor(place: ChangeCursor) -> str:
    return decode_changes((), place).cursor


def _decode_seen_change(row: SeenChangeRow) -> SeenChange:
    plain = ChangeRow(row.seq, row.process_id, row.kind, row.sequence, row.status, row.transaction_id)
    page = decode_changes([plain], ChangeCursor(0, 0))
    return SeenChange(change=page.changes[0], cursor=page.cursor)


def _gap(place: Place, now: Place, rows: Sequence[ActivityRow]) -> GapReason | None:
    if place.life not in {0, now.life} or place.epoch not in {"", now.epoch}:
        return GapReason.UNAVAILABLE
    if place.position > now.position or place.revision > now.revision or _is_ahead(place.change, now.change):
        return GapReason.UNAVAILABLE
    if place.position < now.position and (not rows or rows[0].position != place.position + 1):
        return GapReason.TRIMMED
    return None


def _is_ahead(change: str, newest: str) -> bool:
    return bool(change) and decode_change_cursor(change) > decode_change_cursor(newest)


def _decode(row: ActivityRow) -> Activity:
    draft = decode(row.body, ActivityDraft, f"activity {row.position}")
    return Activity(
        position=row.position,
        revision=row.revision,
        turn_id=draft.turn_id,
        payload=draft.payload,
        lost=draft.lost,
        created_at_ms=row.created_at_ms,
    )


def _decode_cursor(cursor: str) -> tuple[str, Place]:
    try:
        if len(cursor) <= _MAX_CURSOR:
            padded = cursor + "=" * (-len(cursor) % 4)
            parts = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode().split(":", 10)
            version, *numbers, epoch, change, session_id = parts
            if version == _VERSION and session_id:
                return session_id, _place(numbers, epoch, change)
    except (binascii.Error, ValueError, UnicodeError):
        pass
    raise InvalidInput(f"{cursor!r:.80} is not a cursor of a session")


def _place(numbers: Sequence[str], epoch: str, change: str) -> Place:
    if not all(number.isdecimal() and number.isascii() for number in numbers):
        raise ValueError
    life, position, revision, queued, claimed, newest_seq, dead = (
        check_integer("cursor", int(number)) for number in numbers
    )
    if change:
        decode_change_cursor(change)
    queue = QueueMark(queued=queued, claimed=claimed, newest_seq=newest_seq, dead=dead)
    return Place(life=life, epoch=epoch, position=position, revision=revision, queue=queue, change=change)
