"""Rules of activity: how much is kept, where an observer has a gap, and the values that it receives."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from lash.base.codec import decode, encode
from lash.base.limits import check_identifier, check_integer
from lash.errors import InvalidInput
from lash.model.activity import (
    Activity,
    ActivityDraft,
    ActivityPage,
    Committed,
    Gap,
    ObserveCursor,
    Observed,
    ProcessChanged,
    QueueChanged,
    QueueMark,
    SeenChange,
    SeenChanges,
    TurnActivity,
)
from lash.model.gap import GapReason
from lash.plan.process.change import (
    ChangeCursor,
    FeedState,
    SeenChangeRow,
    cursor_after,
    decode_change,
    decode_change_cursor,
    encode_change_cursor,
    feed_gap,
)
from lash.plan.sealed import ACTIVITY

KEPT_ITEMS: Final = 2_048
"""How many pieces of activity of a session are kept."""
KEPT_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of activity of a session are kept."""
KEPT_MS: Final = 120_000
"""For how long activity is kept: an observer that reconnects within two minutes misses nothing."""

MAX_ITEMS: Final = 1_024
"""How many pieces one append takes."""
MAX_ITEM_BYTES: Final = 65_536
"""The most bytes of one stored piece of activity."""
COUNTED: Final = 1_000
"""Up to how many batches a read counts, so that a long queue does not slow observers."""

_FRONT: Final = 16
"""How many rows more than twice what it adds an append checks for deletion."""
_VERSION: Final = "o1"
"""The first part of a cursor's text; another layout gets another one."""
_MAX_CURSOR: Final = 4_096
"""The longest text that is decoded as a cursor."""


class EncodedActivity(NamedTuple):
    """Activity ready to be written: the stored forms, and for each the bytes of it and all before it."""

    bodies: list[str]
    sizes: list[int]

    @property
    def front(self) -> int:
        """How many of the oldest rows an append checks for deletion: more than it adds, so that it keeps up."""
        return 2 * len(self.bodies) + _FRONT


class ActivityTailRow(msgspec.Struct, frozen=True, array_like=True):
    """The last position of a session's activity, and the bytes written so far."""

    position: int
    written_bytes: int


class SessionState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a session as observers see it. ``epoch`` is None before there is any activity."""

    session_key: int
    revision: int
    epoch: str | None
    position: int | None
    queued: int
    claimed: int
    newest_seq: int | None
    dead: int
    change_seq: int
    change_transaction_id: int
    change_epoch: str


class ActivityRow(msgspec.Struct, frozen=True, array_like=True):
    """Stored activity."""

    position: int
    revision: int
    body: Annotated[str, ACTIVITY]
    created_at_ms: int


def encode_activity(items: object) -> EncodedActivity:
    """Check activity and return its stored form."""
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
        raise InvalidInput(f"expected an ActivityDraft, got {type(item).__name__}")
    check_identifier("turn_id", item.turn_id)
    check_integer("lost", item.lost, at_least=0)
    body = encode(item, ActivityDraft, "activity")
    size = len(body.encode())
    if size > MAX_ITEM_BYTES:
        raise InvalidInput(f"the activity has {size:,} bytes; at most {MAX_ITEM_BYTES:,} are allowed")
    return body


def check_cursor(cursor: object) -> ObserveCursor | None:
    """Return the cursor; None stands for the newest state of the session."""
    if cursor is None or isinstance(cursor, ObserveCursor):
        return cursor
    raise InvalidInput(f"expected an ObserveCursor, got {type(cursor).__name__}")


def read_after(cursor: ObserveCursor | None) -> int | None:
    """Return the position after which activity is read; None if none is read."""
    return None if cursor is None else cursor.position


def plan_page(cursor: ObserveCursor | None, session: SessionState, rows: Sequence[ActivityRow]) -> ActivityPage:
    """Return the page for an observer that has read up to the cursor, or the gap if something after it is missing."""
    newest = _newest(session)
    gap = None if cursor is None else _gap(cursor, newest, rows)
    if cursor is None or gap is not None:
        oldest = rows[0].position if gap is GapReason.TRIMMED and rows else None
        return ActivityPage(newest=newest, gap=gap, oldest=oldest)
    return ActivityPage(newest=newest, activity=tuple(_decode(row) for row in rows))


def decode_seen_changes(rows: Sequence[SeenChangeRow], after: ChangeCursor, feed: FeedState) -> SeenChanges | None:
    """Return the visible changes of a page of the feed and the cursor after it; None if there is a gap before it."""
    if feed_gap(after, feed) is not None:
        return None
    seen = tuple(
        SeenChange(change=decode_change(row), cursor=cursor_after([row], after, feed)) for row in rows if row.visible
    )
    return SeenChanges(changes=seen, cursor=cursor_after(rows, after, feed))


def encode_cursor(session_id: str, cursor: ObserveCursor) -> str:
    """Return the text form of a cursor: opaque, and safe in a URL."""
    queue = cursor.queue
    numbers = (cursor.life, cursor.position, cursor.revision, queue.queued, queue.claimed, queue.newest_seq, queue.dead)
    parts = (_VERSION, *map(str, numbers), cursor.epoch, cursor.change, session_id)
    return base64.urlsafe_b64encode(":".join(parts).encode()).decode().rstrip("=")


def decode_cursor(session_id: str, text: object) -> ObserveCursor:
    """Return the cursor of a text; raise InvalidInput if it is not a cursor, or one of another session."""
    if not isinstance(text, str):
        raise InvalidInput(f"expected the text of a cursor, got {type(text).__name__}")
    owner, cursor = _decode_cursor(text)
    if owner != session_id:
        raise InvalidInput(f"the cursor belongs to session {owner!r}, not to {session_id!r}")
    return cursor


def rebase(cursor: ObserveCursor | None, page: ActivityPage) -> ObserveCursor:
    """Return the cursor from which a page is reported, with the life, epoch and change that it did not have yet."""
    newest = page.newest
    if cursor is None:
        return newest
    if page.gap:
        return cursor
    return replace(cursor, life=newest.life, epoch=newest.epoch, change=cursor.change or newest.change)


class ObserverStream:
    """Collects the values for an observer, from a cursor on, each with the cursor directly after it."""

    def __init__(self, session_id: str, cursor: ObserveCursor) -> None:
        self.cursor = cursor
        self.observed: list[Observed] = []
        self._session_id = session_id

    def page(self, page: ActivityPage) -> None:
        """Add a page: activity in its order, and commits between the pieces where they were made."""
        if page.gap is not None:
            self.gap(page.gap, page.newest)
            return
        for activity in page.activity:
            self._commit(activity.revision)
            self._activity(activity)
        if not page.more:
            self._commit(page.newest.revision)
            self._queue(page.newest.queue)

    def changes(self, seen: SeenChanges) -> None:
        """Add changes of processes."""
        for each in seen.changes:
            cursor, change = self._move(change=each.cursor), each.change
            self.observed.append(
                ProcessChanged(
                    cursor=cursor,
                    process_id=change.process_id,
                    kind=change.kind,
                    sequence=change.sequence,
                    status=change.status,
                )
            )
        self._move(change=seen.cursor)

    def gap(self, reason: GapReason, resume: ObserveCursor) -> None:
        """Add that something is missing, and continue from another cursor."""
        self.cursor = resume
        self.observed.append(Gap(cursor=self._move(), reason=reason, revision=resume.revision))

    def _commit(self, revision: int) -> None:
        if revision > self.cursor.revision:
            self.observed.append(Committed(cursor=self._move(revision=revision), revision=revision))

    def _queue(self, queue: QueueMark) -> None:
        if queue != self.cursor.queue:
            self.observed.append(QueueChanged(cursor=self._move(queue=queue), queue=queue))

    def _activity(self, activity: Activity) -> None:
        payload = activity.payload
        if payload is UNSET:
            self._move(position=activity.position)
        if activity.lost:
            cursor, revision = self._move(), self.cursor.revision
            self.observed.append(Gap(cursor=cursor, reason=GapReason.DROPPED, revision=revision, lost=activity.lost))
        if payload is not UNSET:
            cursor = self._move(position=activity.position)
            self.observed.append(TurnActivity(cursor=cursor, turn_id=activity.turn_id, payload=payload))

    def _move(self, **changes: object) -> str:
        self.cursor = replace(self.cursor, **changes)
        return encode_cursor(self._session_id, self.cursor)


def _newest(session: SessionState) -> ObserveCursor:
    return ObserveCursor(
        life=session.session_key,
        epoch=session.epoch or "",
        position=session.position or 0,
        revision=session.revision,
        queue=QueueMark(
            queued=session.queued, claimed=session.claimed, newest_seq=session.newest_seq or 0, dead=session.dead
        ),
        change=encode_change_cursor(
            ChangeCursor(session.change_transaction_id, session.change_seq, session.change_epoch)
        ),
    )


def _gap(cursor: ObserveCursor, newest: ObserveCursor, rows: Sequence[ActivityRow]) -> GapReason | None:
    if cursor.life not in {0, newest.life} or cursor.epoch not in {"", newest.epoch}:
        return GapReason.UNAVAILABLE
    is_ahead = cursor.position > newest.position or cursor.revision > newest.revision
    if is_ahead or not _is_within(cursor.change, newest.change):
        return GapReason.UNAVAILABLE
    if cursor.position < newest.position and (not rows or rows[0].position != cursor.position + 1):
        return GapReason.TRIMMED
    return None


def _is_within(change: str, newest: str) -> bool:
    """Return whether a cursor of the change feed, if there is one, is of its epoch and not ahead of its end."""
    if not change:
        return True
    cursor, end = decode_change_cursor(change), decode_change_cursor(newest)
    return cursor.epoch == end.epoch and cursor.position <= end.position


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


def _decode_cursor(text: str) -> tuple[str, ObserveCursor]:
    try:
        if len(text) <= _MAX_CURSOR:
            padded = text + "=" * (-len(text) % 4)
            parts = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode().split(":", 10)
            version, *numbers, epoch, change, session_id = parts
            if version == _VERSION and session_id:
                return session_id, _cursor(numbers, epoch, change)
    except (binascii.Error, ValueError, UnicodeError):
        pass
    raise InvalidInput(f"expected a cursor of a session, got {text!r:.80}; use the cursor of an observed value")


def _cursor(numbers: Sequence[str], epoch: str, change: str) -> ObserveCursor:
    if not all(number.isdecimal() and number.isascii() for number in numbers):
        raise ValueError
    life, position, revision, queued, claimed, newest_seq, dead = (
        check_integer("cursor", int(number)) for number in numbers
    )
    if change:
        decode_change_cursor(change)
    queue = QueueMark(queued=queued, claimed=claimed, newest_seq=newest_seq, dead=dead)
    return ObserveCursor(life=life, epoch=epoch, position=position, revision=revision, queue=queue, change=change)
