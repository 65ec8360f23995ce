"""The feed of changes of all sessions: its cursors, and what a page of it says.

A change has a number: on SQLite its place in the order of all changes, on PostgreSQL its transaction. A session is in
the feed once, at its last change. Transactions of PostgreSQL become visible out of order, so a cursor also names those
that were running below its number: what they changed is read when they have ended.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from lash.base.limits import MAX_IDENTIFIER_LENGTH, MAX_INTEGER, check_text
from lash.base.shapes import read_json
from lash.errors import InvalidInput
from lash.model.gap import GapReason
from lash.model.session.change import SessionChange, SessionChangePage
from lash.model.session.session import SessionSummary
from lash.plan.session.meta import MetaRow, decode_meta

_MAX_CURSOR: Final = 65_536
"""The length of a cursor that names thousands of running transactions; the usual one has a hundred characters."""


class ChangedRow(MetaRow, frozen=True, array_like=True):
    """A session, and the number of its last change."""

    number: int


class DeletedRow(msgspec.Struct, frozen=True, array_like=True):
    """A deleted session, and the number of its deletion."""

    session_id: str
    revision: int
    number: int


FeedRow: TypeAlias = ChangedRow | DeletedRow


class FeedPlace(NamedTuple):
    """The number of a change and its session, which order the changes of one number."""

    number: Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
    session_id: Annotated[str, msgspec.Meta(max_length=MAX_IDENTIFIER_LENGTH)]


class SessionCursor(msgspec.Struct, frozen=True):
    """A position in the feed of one epoch; None at the start of any.

    ``late`` are transactions below ``place`` that were running when it was reached, each with the last session that was
    read of it.
    """

    place: FeedPlace = FeedPlace(0, "")
    late: tuple[FeedPlace, ...] = ()
    epoch: str | None = None


START: Final = SessionCursor()
"""Before the first change."""


class SessionFeed(msgspec.Struct, frozen=True, array_like=True):
    """What was read after a cursor: the first changes of each kind, unsorted, and the transactions that are running.

    ``known`` is whether the feed has the change that the cursor names, or a later one of the same session.
    """

    epoch: str
    known: bool
    running: list[int]
    sessions: list[ChangedRow]
    deleted: list[DeletedRow]


class FeedEnd(msgspec.Struct, frozen=True, array_like=True):
    """The last change of the feed, and the transactions that are running."""

    epoch: str
    number: int
    session_id: str
    running: list[int]


class _CursorText(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The text form of a cursor; another layout gets another version."""

    version: Literal["sc1"]
    epoch: str
    place: FeedPlace
    late: tuple[FeedPlace, ...]


def feed_gap(after: SessionCursor, feed: SessionFeed) -> GapReason | None:
    """Return why a cursor does not belong to the feed; None if it does.

    A change that the cursor names and the feed does not have was lost with the server that wrote it.
    """
    if after.epoch is None:
        return None
    is_known = after.place.number == 0 or feed.known
    return None if after.epoch == feed.epoch and is_known else GapReason.UNAVAILABLE


def decode_changes(
    feed: SessionFeed, after: SessionCursor, limit: int, gap: GapReason | None = None
) -> SessionChangePage:
    """Return a page of at most ``limit`` changes after a cursor that belongs to the feed."""
    found: list[FeedRow] = [*feed.sessions, *feed.deleted]
    rows = sorted(found, key=_place)[:limit]
    cursor = cursor_after(after, feed, rows, is_full=len(rows) == limit)
    return SessionChangePage(changes=tuple(map(_change, rows)), cursor=encode_session_cursor(cursor), gap=gap)


def cursor_after(after: SessionCursor, feed: SessionFeed, rows: Sequence[FeedRow], *, is_full: bool) -> SessionCursor:
    """Return the cursor after the rows of a page; if the page is not full, there were no others."""
    last = _place(rows[-1]) if rows else after.place
    place = max(after.place, last)
    unread = (each for each in after.late if each.number in feed.running or (is_full and each.number >= last.number))
    resumed = (last if each.number == last.number else each for each in unread)
    begun = (number for number in feed.running if after.place.number < number < place.number)
    late = (*resumed, *(FeedPlace(number, "") for number in begun))
    return SessionCursor(place=place, late=tuple(sorted(late)), epoch=feed.epoch)


def cursor_at(end: FeedEnd) -> SessionCursor:
    """Return the cursor after the last change of the feed."""
    late = tuple(FeedPlace(number, "") for number in sorted(end.running) if number < end.number)
    return SessionCursor(place=FeedPlace(end.number, end.session_id), late=late, epoch=end.epoch)


def decode_session_cursor(cursor: str | None) -> SessionCursor:
    """Return the position that a cursor means, the start of the feed for None, or raise InvalidInput."""
    if cursor is None:
        return START
    try:
        text = base64.urlsafe_b64decode(check_text("cursor", cursor, limit=_MAX_CURSOR))
        read = read_json(text, _CursorText)
        for place in (read.place, *read.late):
            check_text("cursor", place.session_id)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidInput(f"expected a cursor of the feed of sessions, got {cursor!r:.80}") from None
    return SessionCursor(place=read.place, late=read.late, epoch=read.epoch)


def encode_session_cursor(cursor: SessionCursor) -> str:
    """Return the text form of a cursor of an epoch: opaque, and safe in a URL."""
    text = _CursorText("sc1", cursor.epoch or "", cursor.place, cursor.late)
    return base64.urlsafe_b64encode(msgspec.json.encode(text)).decode()


def _place(row: FeedRow) -> FeedPlace:
    return FeedPlace(row.number, row.session_id)


def _change(row: FeedRow) -> SessionChange:
    session = _summary(row) if isinstance(row, ChangedRow) else None
    return SessionChange(session_id=row.session_id, revision=row.revision, session=session)


def _summary(row: ChangedRow) -> SessionSummary:
    return SessionSummary(
        meta=decode_meta(row),
        revision=row.revision,
        first_user_message=row.first_user_message,
        user_message_count=row.user_message_count,
        updated_at_ms=row.updated_at_ms,
        agent=row.agent,
    )
