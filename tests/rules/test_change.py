"""The change feed of a database with one writer at a time."""

from __future__ import annotations

import base64

from lash.plan.process.change import ChangeCursor, ChangeRow, EventTailRow, decode_changes, decode_tail


def test_where_no_transactions_are_told_apart_a_place_is_a_number_alone() -> None:
    """A database with one writer stores no transaction with a change: all have transaction 0."""
    behind_four = base64.urlsafe_b64encode(b"c1:0:4").decode()
    beginning = ChangeCursor(0, 0)
    assert decode_changes([ChangeRow(4, "p", "pruned", None, None)], beginning).cursor == behind_four
    event = EventTailRow(4, "p", 1, "note", None, "hash", '{"payload":1}', None, 50)
    assert decode_tail([event], beginning).cursor == behind_four
