"""The change feed: its cursors, and where a reader has a gap."""

from __future__ import annotations

import base64

import pytest

from lash.model.gap import GapReason
from lash.plan.process.change import (
    START,
    ChangeCursor,
    ChangeRow,
    EventTailRow,
    FeedState,
    decode_change_cursor,
    decode_changes,
    decode_tail,
    feed_gap,
)


def feed(transaction_id: int = 0, seq: int = 0, *, known: bool = True) -> FeedState:
    """Return the feed of the epoch ``e``, pruned up to a position."""
    return FeedState("e", seq, transaction_id, known)


def test_where_no_transactions_are_told_apart_a_place_is_a_number_alone() -> None:
    """A database with one writer stores no transaction with a change: all have transaction 0."""
    behind_four = base64.urlsafe_b64encode(b"c2:e:0:4").decode()
    assert decode_changes([ChangeRow(4, "p", "pruned", None, None)], START, feed()).cursor == behind_four
    event = EventTailRow(4, "p", 1, "note", None, "hash", '{"payload":1}', None, 50)
    assert decode_tail([event], START, feed()).cursor == behind_four


@pytest.mark.parametrize(
    ("after", "state", "gap"),
    [
        (START, feed(), None),
        (START, feed(7, 3, known=False), None),
        (ChangeCursor(0, 0, "e"), feed(known=False), None),
        (ChangeCursor(7, 4, "e"), feed(), None),
        (ChangeCursor(7, 4, "e"), feed(7, 3), None),
        (ChangeCursor(7, 4, "e"), feed(7, 4, known=False), None),
        (ChangeCursor(7, 4, "e"), feed(7, 5), GapReason.TRIMMED),
        (ChangeCursor(7, 4, "e"), feed(8, 1), GapReason.TRIMMED),
        (ChangeCursor(0, 0, "e"), feed(0, 1, known=False), GapReason.TRIMMED),
        (ChangeCursor(7, 4, "e"), feed(known=False), GapReason.UNAVAILABLE),
        (ChangeCursor(7, 4, "e"), feed(7, 3, known=False), GapReason.UNAVAILABLE),
        (ChangeCursor(7, 4, "d"), feed(), GapReason.UNAVAILABLE),
        (ChangeCursor(0, 0, "d"), feed(), GapReason.UNAVAILABLE),
        (ChangeCursor(7, 4, "d"), feed(7, 5), GapReason.UNAVAILABLE),
        (ChangeCursor(7, 4, ""), feed(), GapReason.UNAVAILABLE),
    ],
)
def test_gaps(after: ChangeCursor, state: FeedState, gap: GapReason | None) -> None:
    """A cursor is valid in its epoch if nothing after it was pruned and the feed has the change that it names."""
    assert feed_gap(after, state) is gap
    assert decode_changes([], after, state).gap is gap
    assert decode_tail([], after, state).gap is gap


def test_a_reader_goes_on_after_what_was_pruned() -> None:
    """A page without changes has the cursor of the reader, or of the last change that was pruned."""
    behind = decode_change_cursor(decode_changes([], ChangeCursor(7, 4, "e"), feed(8, 1)).cursor)
    assert (behind, feed_gap(behind, feed(8, 1, known=False))) == (ChangeCursor(8, 1, "e"), None)
    assert decode_change_cursor(decode_tail([], ChangeCursor(9, 4, "e"), feed(8, 1)).cursor) == (9, 4, "e")
    assert decode_change_cursor(decode_changes([], START, feed()).cursor) == (0, 0, "e")


def test_a_cursor_from_before_epochs_is_of_none() -> None:
    """A cursor of the first version is valid text without an epoch."""
    assert decode_change_cursor(base64.urlsafe_b64encode(b"c1:5:9").decode()) == ChangeCursor(5, 9, "")
