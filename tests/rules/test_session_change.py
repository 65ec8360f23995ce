"""The feed of sessions: its cursors, and that no order of commits hides a change."""

from __future__ import annotations

import random
from typing import Final

import pytest

from lash.errors import InvalidInput
from lash.model.gap import GapReason
from lash.plan.session.change import (
    START,
    ChangedRow,
    DeletedRow,
    FeedEnd,
    FeedPlace,
    SessionCursor,
    SessionFeed,
    cursor_after,
    cursor_at,
    decode_changes,
    decode_session_cursor,
    encode_session_cursor,
    feed_gap,
)

ROOT: Final = '{"relation":{"kind":"root"}}'


def changed(session_id: str, number: int, revision: int = 1) -> ChangedRow:
    """Return a session whose last change has this number."""
    return ChangedRow(
        1, session_id, "n", 5, "m", None, ROOT, revision, "hi", 2, 6, "ada", "{}", "{}", None, "bot", None, number
    )


def feed(*rows: ChangedRow | DeletedRow, running: tuple[int, ...] = (), known: bool = True) -> SessionFeed:
    """Return what a reader of the epoch ``e`` finds."""
    sessions = [row for row in rows if isinstance(row, ChangedRow)]
    return SessionFeed("e", known, list(running), sessions, [row for row in rows if isinstance(row, DeletedRow)])


def at(number: int, session_id: str = "s", *late: tuple[int, str]) -> SessionCursor:
    """Return a cursor of the epoch ``e``."""
    return SessionCursor(FeedPlace(number, session_id), tuple(FeedPlace(*each) for each in late), "e")


def test_sessions_and_deletions_are_one_order() -> None:
    """A page has the first changes by number and id; the cursor is after the last one."""
    page = decode_changes(feed(changed("b", 4), changed("a", 4), DeletedRow("c", 9, 3), changed("d", 7)), START, 3)
    assert [(each.session_id, each.revision) for each in page.changes] == [("c", 9), ("a", 1), ("b", 1)]
    assert page.changes[0].session is None
    shown = page.changes[1].session
    assert shown is not None
    assert (shown.meta.session_id, shown.meta.owner, shown.agent) == ("a", "ada", "bot")
    assert (shown.first_user_message, shown.user_message_count, shown.updated_at_ms) == ("hi", 2, 6)
    assert decode_session_cursor(page.cursor) == at(4, "b")
    assert page.gap is None


@pytest.mark.parametrize(
    ("after", "rows", "running", "size", "cursor"),
    [
        (at(5), (), (), 9, at(5)),
        (at(5), (changed("a", 9),), (7, 9, 11), 9, at(9, "a", (7, ""))),
        (at(5, "s", (3, "")), (), (3,), 9, at(5, "s", (3, ""))),
        (at(5, "s", (3, "")), (changed("a", 3),), (), 9, at(5)),
        (at(5, "s", (3, "")), (changed("a", 3),), (), 1, at(5, "s", (3, "a"))),
        (at(5, "s", (2, ""), (3, ""), (4, "k")), (changed("a", 3),), (), 1, at(5, "s", (3, "a"), (4, "k"))),
        (at(5, "s", (2, ""), (3, "")), (changed("a", 3),), (2,), 1, at(5, "s", (2, ""), (3, "a"))),
    ],
)
def test_a_transaction_that_was_running_is_read_when_it_has_ended(
    after: SessionCursor, rows: tuple[ChangedRow, ...], running: tuple[int, ...], size: int, cursor: SessionCursor
) -> None:
    """A cursor names what ran below it, and what a full page left of that."""
    assert cursor_after(after, feed(*rows, running=running), rows, is_full=len(rows) == size) == cursor


def test_the_end_is_after_every_change() -> None:
    """The cursor of the end names the transactions that run below it, in order."""
    assert cursor_at(FeedEnd("e", 5, "s", [9, 4, 2])) == at(5, "s", (2, ""), (4, ""))


@pytest.mark.parametrize(
    ("after", "state", "gap"),
    [
        (START, feed(known=False), None),
        (at(5), feed(), None),
        (at(0, ""), feed(known=False), None),
        (at(5), feed(known=False), GapReason.UNAVAILABLE),
        (SessionCursor(FeedPlace(5, "s"), (), "other"), feed(), GapReason.UNAVAILABLE),
    ],
)
def test_a_cursor_of_another_feed_has_a_gap(after: SessionCursor, state: SessionFeed, gap: GapReason | None) -> None:
    """So has one that names a change which the feed does not have."""
    assert feed_gap(after, state) is gap


def test_a_cursor_is_its_text() -> None:
    """Every part survives; the start has no text, and other text is refused."""
    cursor = at(2**63 - 1, "é", (3, "x"), (9, ""))
    assert decode_session_cursor(encode_session_cursor(cursor)) == cursor
    assert decode_session_cursor(None) == START
    assert decode_session_cursor(encode_session_cursor(START)).epoch == ""
    for bad in ("?", "WyJzYzEiXQ==", encode_session_cursor(at(1, "\0")), encode_session_cursor(at(1, "s", (1, "\0")))):
        with pytest.raises(InvalidInput):
            decode_session_cursor(bad)


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_commits_hides_a_change(seed: int) -> None:
    """Transactions that end in any order: a reader of small pages gets each state that stays once."""
    rng = random.Random(seed)
    running: dict[int, dict[str, int]] = {}
    stored: dict[str, tuple[int, int]] = {}
    read: list[tuple[str, int]] = []
    cursor, next_number = START, 3
    for step in range(300):
        match rng.randrange(4 if step < 240 else 3):
            case 3 if len(running) < 5:
                # A session is written by one transaction at a time: its row is locked.
                free = sorted(set("abcdefgh") - {name for each in running.values() for name in each})
                names = rng.sample(free, min(len(free), rng.randrange(4)))
                running[next_number] = {name: stored.get(name, (0, 0))[1] + 1 for name in names}
                next_number += 1
            case 2 if running:
                number = rng.choice(sorted(running))
                stored |= {name: (number, revision) for name, revision in running.pop(number).items()}
            case _:
                limit = rng.randrange(1, 4)
                found = [changed(name, *place) for name, place in stored.items() if _is_after(cursor, name, place[0])]
                page = decode_changes(feed(*found, running=tuple(running)), cursor, limit)
                cursor = decode_session_cursor(page.cursor)
                read += [(each.session_id, each.revision) for each in page.changes]
    while running:
        number, written = running.popitem()
        stored |= {name: (number, revision) for name, revision in written.items()}
    found = [changed(name, *place) for name, place in stored.items() if _is_after(cursor, name, place[0])]
    read += [(each.session_id, each.revision) for each in decode_changes(feed(*found), cursor, 99).changes]
    assert len(read) == len(set(read))
    for name, (_, revision) in stored.items():
        mine = [number for each, number in read if each == name]
        assert mine == sorted(mine)
        assert mine[-1] == revision


def _is_after(cursor: SessionCursor, session_id: str, number: int) -> bool:
    """What a backend must return for a cursor."""
    place = FeedPlace(number, session_id)
    return place > cursor.place or any(number == each.number and place > each for each in cursor.late)
