"""The feed of changes and its cursors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from lash.base.limits import check_identifier, check_integer
from lash.errors import (
    CorruptData,
    InvalidInput,
)
from lash.model.gap import GapReason
from lash.model.process.event import EventPage, ProcessEvent
from lash.model.process.process import (
    ChangeKind,
    ChangePage,
    ProcessChange,
    ProcessStatus,
)
from lash.plan.process.event import EventRow, decode_event
from lash.plan.sealed import EVENT, WAKE

_VERSION: Final = "c2"
"""The first part of a cursor's text; another layout gets another one."""
_LAYOUTS: Final = frozenset({(_VERSION, 1), ("c1", 0)})
"""The versions, and how many epochs a cursor of them has. A cursor without one is of no epoch of any feed."""


class ChangeRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored change. The feed is ordered by ``transaction_id`` (PostgreSQL only) and then by ``seq``."""

    seq: int
    process_id: str
    kind: str
    sequence: int | None
    status: str | None
    transaction_id: int = 0


class EventTailRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored event of any process, with its position in the feed."""

    seq: int
    process_id: str
    sequence: int
    event_type: str
    replay_key: str | None
    payload_hash: str
    payload: Annotated[str, EVENT]
    wake: Annotated[str | None, WAKE]
    occurred_at_ms: int
    transaction_id: int = 0


class SeenChangeRow(msgspec.Struct, frozen=True, array_like=True):
    """A change of any process, and whether the session may see that process."""

    seq: int
    process_id: str
    kind: str
    sequence: int | None
    status: str | None
    visible: bool
    transaction_id: int = 0


FeedRow: TypeAlias = ChangeRow | EventTailRow | SeenChangeRow


class ChangeCursor(NamedTuple):
    """A position in the feed of changes, and the epoch of the feed that it belongs to; None at the start of any."""

    transaction_id: int
    seq: int
    epoch: str | None = None

    @property
    def position(self) -> tuple[int, int]:
        """What orders the cursors of one epoch."""
        return self.transaction_id, self.seq


START: Final = ChangeCursor(0, 0)
"""Before the first change that is kept."""


class FeedState(msgspec.Struct, frozen=True, array_like=True):
    """The feed at the moment of a read: its epoch, the last pruned position, and whether the cursor names a change.

    ``known`` does not matter for a cursor that is not after the last pruned position.
    """

    epoch: str
    floor_seq: int
    floor_transaction_id: int
    known: bool

    @property
    def floor(self) -> tuple[int, int]:
        """The position of the last change that was pruned."""
        return self.floor_transaction_id, self.floor_seq


def feed_gap(after: ChangeCursor, feed: FeedState) -> GapReason | None:
    """Return why a reader that resumes at a cursor misses changes; None if it misses none.

    A change that the cursor names and the feed does not have was lost with the server that wrote it.
    """
    if after.epoch is None:
        return None
    if after.epoch != feed.epoch:
        return GapReason.UNAVAILABLE
    if after.position < feed.floor:
        return GapReason.TRIMMED
    return None if after.position == feed.floor or feed.known else GapReason.UNAVAILABLE


def decode_changes(rows: Sequence[ChangeRow], after: ChangeCursor, feed: FeedState) -> ChangePage:
    """Return a page of the feed and the cursor after it; the cursor must belong to this feed."""
    changes = tuple(decode_change(row) for row in rows)
    return ChangePage(changes=changes, cursor=cursor_after(rows, after, feed), gap=feed_gap(after, feed))


def decode_tail(rows: Sequence[EventTailRow], after: ChangeCursor, feed: FeedState) -> EventPage:
    """Return a page of events of all processes and the cursor after it; the cursor must belong to this feed."""
    events = tuple(_decode_tail_event(row) for row in rows)
    return EventPage(events=events, cursor=cursor_after(rows, after, feed), gap=feed_gap(after, feed))


def decode_change_cursor(cursor: str | None) -> ChangeCursor:
    """Return the position that a cursor means, the start of the feed for None, or raise InvalidInput."""
    if cursor is None:
        return START
    try:
        text = base64.urlsafe_b64decode(check_identifier("cursor", cursor)).decode()
        version, *epoch, transaction_id, seq = text.split(":")
        if (version, len(epoch)) in _LAYOUTS:
            return ChangeCursor(
                check_integer("cursor", int(transaction_id), at_least=0),
                check_integer("cursor", int(seq), at_least=0),
                next(iter(epoch), ""),
            )
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"expected a cursor of the change feed, got {cursor!r:.80}")


def encode_change_cursor(cursor: ChangeCursor) -> str:
    """Return the text form of a cursor of an epoch: opaque, and safe in a URL."""
    text = f"{_VERSION}:{cursor.epoch}:{cursor.transaction_id}:{cursor.seq}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def cursor_after(rows: Sequence[FeedRow], after: ChangeCursor, feed: FeedState) -> str:
    """Return the cursor after the last row; without rows, after the reader's cursor and what was pruned."""
    last = (rows[-1].transaction_id, rows[-1].seq) if rows else max(after.position, feed.floor)
    return encode_change_cursor(ChangeCursor(*last, feed.epoch))


def decode_change(row: ChangeRow | SeenChangeRow) -> ProcessChange:
    """Return the change of a row."""
    try:
        return ProcessChange(
            process_id=row.process_id,
            kind=ChangeKind(row.kind),
            sequence=row.sequence,
            status=None if row.status is None else ProcessStatus(row.status),
        )
    except ValueError as error:
        raise CorruptData(f"change {row.seq} of process {row.process_id!r} cannot be read: {error}") from None


def _decode_tail_event(row: EventTailRow) -> ProcessEvent:
    event = EventRow(
        row.sequence, row.event_type, row.replay_key, row.payload_hash, row.payload, row.wake, row.occurred_at_ms
    )
    return decode_event(event, row.process_id)
