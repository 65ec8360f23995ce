"""Rules of activity: what is stored, where gaps are, what cursors mean, and what observers get."""

from __future__ import annotations

import base64

import pytest
from msgspec.structs import replace

from lash.errors import CorruptData, InvalidInput
from lash.model.activity import (
    ActivityDraft,
    ActivityPage,
    Committed,
    Gap,
    ObserveCursor,
    Observed,
    ProcessChanged,
    QueueChanged,
    QueueMark,
    TurnActivity,
)
from lash.model.gap import GapReason
from lash.model.process.process import ChangeKind, ProcessStatus
from lash.plan.activity import (
    ActivityRow,
    ObserverStream,
    SessionState,
    check_cursor,
    decode_cursor,
    decode_seen_changes,
    encode_activity,
    encode_cursor,
    plan_page,
    read_after,
    rebase,
)
from lash.plan.process.change import ChangeCursor, FeedState, SeenChangeRow

START = "YzI6ZmU6MDow"
"""The cursor of the beginning of the feed in its epoch, ``fe``."""
FEED = FeedState("fe", 0, 0, known=True)
BEGIN = ChangeCursor(0, 0, "fe")
HERE = ObserveCursor(
    life=3,
    epoch="e",
    position=5,
    revision=2,
    queue=QueueMark(queued=4, claimed=3, newest_seq=9, dead=1),
    change=START,
)


def session(*, revision: int = 2, epoch: str | None = "e", position: int | None = 5, change: int = 0) -> SessionState:
    return SessionState(3, revision, epoch, position, 4, 3, 9, 1, change, 0, "fe")


def row(position: int, payload: str = '"x"', *, revision: int = 2, lost: int = 0) -> ActivityRow:
    body = f'{{"turn_id":"t","payload":{payload},"lost":{lost}}}' if payload else f'{{"turn_id":"t","lost":{lost}}}'
    return ActivityRow(position, revision, body, 7)


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def told(place: ObserveCursor, look: ActivityPage) -> tuple[ObserveCursor, list[Observed]]:
    telling = ObserverStream("s", rebase(place, look))
    telling.page(look)
    return telling.cursor, telling.observed


def test_sizes_add_up_in_bytes() -> None:
    """An item counts with the bytes of its stored form, added to all before it."""
    encoded = encode_activity([ActivityDraft(turn_id="t", payload="é"), ActivityDraft(turn_id="t", payload="e")])
    assert encoded.bodies == ['{"turn_id":"t","payload":"é"}', '{"turn_id":"t","payload":"e"}']
    assert encoded.sizes == [30, 59]
    assert encoded.front == 20


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ("text", "items must be a sequence of ActivityDraft, not str"),
        (b"text", "items must be a sequence of ActivityDraft, not bytes"),
        (7, "items must be a sequence of ActivityDraft, not int"),
        ([], "not 0"),
        ([ActivityDraft(turn_id="t")] * 1_025, "not 1,025"),
        (["x"], "expected an ActivityDraft, got str"),
        ([ActivityDraft(turn_id=" ")], "turn_id is blank"),
        ([ActivityDraft(turn_id="t", lost=-1)], "lost must lie"),
        ([ActivityDraft(turn_id="t", payload="é" * 32_768)], "has 65,564 bytes"),
    ],
)
def test_what_cannot_be_shown_is_refused(items: object, why: str) -> None:
    """The error names the fault."""
    with pytest.raises(InvalidInput, match=why):
        encode_activity(items)


def test_as_much_as_may_be_is_taken() -> None:
    """An append has at most 1,024 items, each of at most 65,536 bytes."""
    assert len(encode_activity([ActivityDraft(turn_id="t")] * 1_024).bodies) == 1_024
    room = 65_536 - len('{"turn_id":"t","payload":""}')
    assert encode_activity([ActivityDraft(turn_id="t", payload="x" * room)]).sizes == [65_536]


def test_a_place_is_a_place() -> None:
    """Only a cursor is accepted; without one no activity is read."""
    assert check_cursor(None) is None
    assert check_cursor(HERE) is HERE
    with pytest.raises(InvalidInput, match="expected an ObserveCursor, got str"):
        check_cursor("x")
    assert read_after(None) is None
    assert read_after(HERE) == 5


def test_a_look_without_a_place_is_where_the_session_stands() -> None:
    """A missing number counts as 0, and a missing epoch as empty."""
    assert plan_page(None, session(), []) == ActivityPage(newest=HERE)
    bare = SessionState(3, 0, None, None, 0, 0, None, 0, 0, 0, "fe")
    assert plan_page(None, bare, []) == ActivityPage(newest=ObserveCursor(life=3, change=START))
    assert plan_page(None, session(), [row(5)]) == ActivityPage(newest=HERE), "a read without a cursor shows items"


def test_a_look_shows_what_follows_its_place() -> None:
    """Rows behind the cursor are returned; there is more if the last is not the newest."""
    look = plan_page(replace(HERE, position=2), session(), [row(3), row(4)])
    assert [item.position for item in look.activity] == [3, 4]
    assert look.more
    assert not plan_page(replace(HERE, position=3), session(), [row(4), row(5)]).more
    assert plan_page(HERE, session(), []) == ActivityPage(newest=HERE)
    assert plan_page(ObserveCursor(), session(position=1), [row(1)]).gap is None


@pytest.mark.parametrize(
    ("place", "now", "rows", "gap"),
    [
        (replace(HERE, life=2), session(), [], GapReason.UNAVAILABLE),
        (replace(HERE, epoch="f"), session(), [], GapReason.UNAVAILABLE),
        (HERE, session(epoch=None, position=None), [], GapReason.UNAVAILABLE),
        (replace(HERE, position=6), session(), [], GapReason.UNAVAILABLE),
        (replace(HERE, revision=3), session(), [], GapReason.UNAVAILABLE),
        (replace(HERE, change=cursor("c2:fe:0:2")), session(change=1), [], GapReason.UNAVAILABLE),
        (replace(HERE, change=cursor("c2:fe:1:0")), session(change=1), [], GapReason.UNAVAILABLE),
        (replace(HERE, change=cursor("c2:ff:0:1")), session(change=1), [], GapReason.UNAVAILABLE),
        (replace(HERE, change=cursor("c1:0:1")), session(change=1), [], GapReason.UNAVAILABLE),
        (replace(HERE, position=4), session(), [], GapReason.TRIMMED),
        (replace(HERE, position=2), session(), [row(4), row(5)], GapReason.TRIMMED),
        (ObserveCursor(), session(), [row(2), row(3)], GapReason.TRIMMED),
        (replace(HERE, change=cursor("c2:fe:0:1")), session(change=1), [], None),
        (replace(HERE, change=""), session(change=1), [], None),
    ],
)
def test_gaps(place: ObserveCursor, now: SessionState, rows: list[ActivityRow], gap: GapReason | None) -> None:
    """Missing activity is a gap, not a partial answer, and never that of another life."""
    look = plan_page(place, now, rows)
    assert (look.gap, look.activity) == (gap, ())


def test_a_page_names_the_oldest_piece_that_is_kept() -> None:
    """After a trim it is the first row; an empty session, another life and a page without a gap have none."""
    assert plan_page(ObserveCursor(), session(), [row(2), row(3)]).oldest == 2
    assert plan_page(replace(HERE, position=4), session(), []).oldest is None
    assert plan_page(replace(HERE, life=2), session(), [row(2)]).oldest is None
    assert plan_page(replace(HERE, position=2), session(), [row(3)]).oldest is None


def test_a_damaged_row_is_told() -> None:
    """An unreadable row is an error, not absence."""
    with pytest.raises(CorruptData, match="activity 5"):
        plan_page(replace(HERE, position=4), session(), [ActivityRow(5, 2, "{", 0)])


def test_changes_that_were_pruned_are_a_gap() -> None:
    """Only a cursor at or above the floor of the feed is valid."""
    pruned = FeedState("fe", 5, 1, known=False)
    assert decode_seen_changes([], ChangeCursor(1, 4, "fe"), pruned) is None
    seen = decode_seen_changes([], ChangeCursor(1, 5, "fe"), pruned)
    assert seen is not None
    assert (seen.changes, seen.cursor) == ((), cursor("c2:fe:1:5"))


def test_only_visible_changes_are_shown() -> None:
    """The page's cursor is behind all of its changes, and each change has the cursor behind itself."""
    rows = [
        SeenChangeRow(1, "p", "event", 4, "completed", visible=True, transaction_id=7),
        SeenChangeRow(2, "q", "event", 1, "running", visible=False, transaction_id=7),
    ]
    seen = decode_seen_changes(rows, BEGIN, FEED)
    assert seen is not None
    assert [each.cursor for each in seen.changes] == [cursor("c2:fe:7:1")]
    assert seen.cursor == cursor("c2:fe:7:2")
    third = SeenChangeRow(1, "r", "event", 1, "running", visible=False, transaction_id=8)
    longer = decode_seen_changes([*rows, third], BEGIN, FEED)
    assert longer is not None
    assert longer.cursor == cursor("c2:fe:8:1")
    telling = ObserverStream("s", HERE)
    telling.changes(seen)
    assert telling.observed == [
        ProcessChanged(
            cursor=encode_cursor("s", replace(HERE, change=seen.changes[0].cursor)),
            process_id="p",
            kind=ChangeKind.EVENT,
            sequence=4,
            status=ProcessStatus.COMPLETED,
        )
    ]
    assert telling.cursor == replace(HERE, change=seen.cursor)


def test_cursors_are_golden() -> None:
    """Cursors of earlier versions keep their meaning permanently; padding of any length is omitted."""
    for session_id in ("q", "qq", "qqq"):
        assert encode_cursor(session_id, HERE) == cursor(f"o1:3:5:2:4:3:9:1:e:YzI6ZmU6MDow:{session_id}")
        before_epochs = cursor(f"o1:3:5:2:4:3:9:1:e:YzE6MDow:{session_id}")
        assert decode_cursor(session_id, before_epochs) == replace(HERE, change=cursor("c1:0:0"))


@pytest.mark.parametrize("session_id", ["s", "a:b:c", "é 𝄞", "x" * 255, "\N{PILE OF POO}" * 255])
def test_a_cursor_means_its_place(session_id: str) -> None:
    """A cursor decodes to its position, for any session, and needs no quoting in a URL."""
    for place in (HERE, ObserveCursor(), replace(HERE, position=2**63 - 1)):
        text = encode_cursor(session_id, place)
        assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        assert decode_cursor(session_id, text) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "!!!!",
        "é",
        "A" * 4_097,
        cursor("o1:3:5:2:4:3:9:1:e"),
        cursor("o2:3:5:2:4:3:9:1:e::s"),
        cursor("o1:3:5:2:4:3:9:1:e::"),
        cursor("o1:3:5:2:4:3:9:-1:e::s"),
        cursor("o1:3:5:2:4:3:9:x:e::s"),
        cursor("o1:3:5:2:4:3:9:+1:e::s"),
        cursor("o1:3:5:2:4:3:9: 1:e::s"),
        cursor("o1:3:5:2:4:3:9:1_0:e::s"),
        cursor("o1:3:5:2:4:3:9:²:e::s"),
        cursor("o1:3:5:2:4:3:9:٣:e::s"),
        cursor("o1:3:5:2:4:3:9:99999999999999999999:e::s"),
        cursor("o1:3:5:2:4:3:9:1:e:nonsense:s"),
        base64.urlsafe_b64encode(b"o1:3:5:2:4:3:9:1:e::\xff").decode(),
        encode_cursor("s", HERE) + "\n",
        "!!!!" + encode_cursor("s", HERE),
        encode_cursor("s", HERE)[:8] + "\n\n\n\n" + encode_cursor("s", HERE)[8:],
    ],
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    """Malformed text is an error, never a gap."""
    with pytest.raises(InvalidInput):
        decode_cursor("s", text)


def test_a_cursor_has_up_to_4096_characters() -> None:
    """A longer text is refused unread."""
    start = "o1:3:5:2:4:3:9:1:e:YzI6ZmU6MDow:"
    for size, fits in ((3_072, True), (3_073, False), (3_075, False)):
        session_id = "s" * (size - len(start))
        text = cursor(start + session_id)
        assert (len(text) <= 4_096) is fits
        if fits:
            assert decode_cursor(session_id, text) == HERE
        else:
            with pytest.raises(InvalidInput, match="expected a cursor of a session"):
                decode_cursor(session_id, text)


def test_a_cursor_names_a_session() -> None:
    """A cursor that names no session is refused, not taken for that of another session."""
    with pytest.raises(InvalidInput, match="expected a cursor of a session"):
        decode_cursor("s", cursor("o1:3:5:2:4:3:9:1:e::"))


def test_a_cursor_belongs_to_its_session() -> None:
    """A cursor of another session is an error that names both."""
    with pytest.raises(InvalidInput, match="belongs to session 'other', not to 's'"):
        decode_cursor("s", encode_cursor("other", HERE))
    with pytest.raises(InvalidInput, match="expected the text of a cursor, got int"):
        decode_cursor("s", 7)


def test_commits_are_told_where_they_were_made() -> None:
    """Activity of the old revision comes before the commit, that of the new one after it, the queue last."""
    rows = [row(4, revision=1), row(5, '"y"')]
    look = plan_page(replace(HERE, position=3), session(revision=3), rows)
    begin = replace(HERE, position=3, revision=1, queue=QueueMark())
    place, observed = told(begin, look)
    at = [
        replace(begin, position=4),
        replace(begin, position=4, revision=2),
        replace(begin, position=5, revision=2),
        replace(begin, position=5, revision=3),
        replace(begin, position=5, revision=3, queue=HERE.queue),
    ]
    cursors = [encode_cursor("s", each) for each in at]
    assert observed == [
        TurnActivity(cursor=cursors[0], turn_id="t", payload="x"),
        Committed(cursor=cursors[1], revision=2),
        TurnActivity(cursor=cursors[2], turn_id="t", payload="y"),
        Committed(cursor=cursors[3], revision=3),
        QueueChanged(cursor=cursors[4], queue=HERE.queue),
    ]
    assert place == at[-1]
    assert told(place, plan_page(place, session(revision=3), [])) == (place, [])


def test_nothing_newer_is_told_before_all_activity_was() -> None:
    """With more activity to come, the commit and the queue wait for it."""
    look = plan_page(replace(HERE, position=3), session(revision=3), [row(4)])
    place, observed = told(replace(HERE, position=3, queue=QueueMark()), look)
    assert [type(each) for each in observed] == [TurnActivity]
    assert (place.revision, place.queue) == (2, QueueMark())


def test_a_loss_is_told_before_what_came_after_it() -> None:
    """The writer's drops are gaps at their position, with their number; a gap's cursor repeats it."""
    look = plan_page(replace(HERE, position=3), session(), [row(4, lost=6), row(5, "", lost=2)])
    place, observed = told(replace(HERE, position=3), look)
    before, after = encode_cursor("s", replace(HERE, position=3)), encode_cursor("s", HERE)
    assert observed == [
        Gap(cursor=before, reason=GapReason.DROPPED, revision=2, lost=6),
        TurnActivity(cursor=encode_cursor("s", replace(HERE, position=4)), turn_id="t", payload="x"),
        Gap(cursor=after, reason=GapReason.DROPPED, revision=2, lost=2),
    ]
    assert place == HERE


def test_a_gap_goes_on_from_now() -> None:
    """A gap names the revision of the session, and nothing else comes with it."""
    look = plan_page(replace(HERE, life=2), session(), [])
    assert told(replace(HERE, life=2), look) == (
        HERE,
        [Gap(cursor=encode_cursor("s", HERE), reason=GapReason.UNAVAILABLE, revision=2)],
    )


def test_who_arrives_gets_the_numbers_of_the_session() -> None:
    """A new observer starts at the end; one from before the session gets its life, epoch and feed."""
    look = plan_page(ObserveCursor(), session(position=1), [row(1)])
    assert rebase(None, look) == look.newest
    assert rebase(ObserveCursor(), look) == ObserveCursor(life=3, epoch="e", change=START)


def test_who_was_there_keeps_what_he_has_seen() -> None:
    """An observer keeps its cursor, across a page and across a gap."""
    seen = replace(HERE, change=cursor("c2:fe:0:1"))
    assert rebase(seen, plan_page(seen, session(change=2), [])) == seen
    lost = replace(HERE, life=2)
    assert rebase(lost, plan_page(lost, session(), [])) == lost


def test_where_no_transactions_are_told_apart_the_feed_goes_by_number() -> None:
    """A database with one writer stores no transaction with a change: all have transaction 0."""
    rows = [SeenChangeRow(1, "p", "event", 4, "completed", visible=True)]
    seen = decode_seen_changes(rows, BEGIN, FEED)
    assert seen is not None
    assert (seen.changes[0].cursor, seen.cursor) == (cursor("c2:fe:0:1"), cursor("c2:fe:0:1"))
