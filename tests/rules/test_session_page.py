"""Rules of lists of sessions: by which index a page is read, from where, and its entries."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from lash.base.compression import BlobRef
from lash.errors import CorruptData, InvalidInput
from lash.model.session.session import (
    SessionConfig,
    SessionCounts,
    SessionFilter,
    SessionHead,
    SessionMeta,
    SessionOrder,
    SessionState,
    SessionSummary,
)
from lash.plan.session.checkpoint import ComponentRow
from lash.plan.session.page import (
    PageParts,
    PagePosition,
    PageRow,
    PreparedPage,
    check_filter,
    decode_cursor,
    decode_page,
    encode_cursor,
    prepare_page,
)
from tests.rules.kit import SESSION, sha256

replace = msgspec.structs.replace
CREATED, ACTIVE = SessionOrder.CREATED, SessionOrder.ACTIVE
MOST, LEAST = 2**63 - 1, -(2**63)

CHECKPOINT_REF = sha256(
    b'lash.checkpoint.v1\0{"turn_state":{"turn_index":1},"components":{"t":"' + sha256(b"tools").encode() + b'"}}'
)
ROW = PageRow(
    session_key=7,
    session_id=SESSION,
    name="A chat",
    created_at_ms=50,
    model="large",
    cwd="/tmp",
    relation='{"relation":{"kind":"root"}}',
    revision=4,
    first_user_message="hello",
    user_message_count=2,
    updated_at_ms=99,
    owner="ada",
    labels='{"a":"1"}',
    metadata="{}",
    expires_at_ms=70,
    agent="helper",
    keep_checkpoints=None,
    config='{"provider_id":"p"}',
    current_frame_id="f",
    leaf_node_id="c",
    checkpoint_ref=CHECKPOINT_REF,
    node_count=3,
    state="queued",
    waiting_for=None,
    queued=2,
    dead=1,
    waits=0,
    turn_state='{"turn_index":1}',
    plugin_snapshot_revision=None,
)
META = SessionMeta(
    session_id=SESSION,
    name="A chat",
    created_at_ms=50,
    model="large",
    cwd="/tmp",
    owner="ada",
    labels={"a": "1"},
    expires_at_ms=70,
)
SUMMARY = SessionSummary(
    meta=META, revision=4, first_user_message="hello", user_message_count=2, updated_at_ms=99, agent="helper"
)
COMPONENTS = {7: [ComponentRow("t", sha256(b"tools"), "plain", 5, b"tools")]}


def prepare(
    wanted: SessionFilter | None = None,
    *,
    order: SessionOrder = CREATED,
    oldest_first: bool = False,
    limit: int = 10,
    cursor: str | None = None,
    parts: PageParts = PageParts(),
) -> PreparedPage:
    return prepare_page(
        SessionFilter() if wanted is None else wanted,
        order=order,
        oldest_first=oldest_first,
        parts=parts,
        limit=limit,
        cursor=cursor,
    )


def rows(*keys: int) -> list[PageRow]:
    return [replace(ROW, session_key=key, session_id=f"s{key}", updated_at_ms=key * 10) for key in keys]


@pytest.mark.parametrize(
    ("wanted", "order", "oldest_first", "way"),
    [
        ({}, CREATED, False, "newest"),
        ({}, CREATED, True, "oldest"),
        ({}, ACTIVE, False, "active_newest"),
        ({}, ACTIVE, True, "active_oldest"),
        ({"agent": "a"}, CREATED, False, "agent_newest"),
        ({"agent": "a"}, CREATED, True, "agent_oldest"),
        ({"agent": "a"}, ACTIVE, True, "active_oldest"),
        ({"state": SessionState.IDLE}, CREATED, False, "newest"),
        ({"prefix": ""}, CREATED, False, "newest"),
        ({"prefix": "p", "agent": "a"}, ACTIVE, False, "prefix"),
        ({"prefix": "p", "state": SessionState.QUEUED}, CREATED, True, "state"),
        ({"state": SessionState.RUNNING}, ACTIVE, False, "state"),
        ({"state": SessionState.WAITING}, ACTIVE, False, "state"),
        ({"owner": "o", "state": SessionState.RUNNING}, CREATED, False, "label_newest"),
        ({"labels": {"k": "v"}, "prefix": "p"}, CREATED, True, "label_oldest"),
        ({"labels": {"k": "v"}}, ACTIVE, False, "label_active"),
        ({"owner": "o"}, ACTIVE, True, "label_active"),
        ({"source_session_id": "s", "owner": "o", "state": SessionState.RUNNING}, CREATED, False, "source"),
        ({"text": "money", "owner": "o", "state": SessionState.RUNNING}, ACTIVE, True, "search"),
    ],
)
def test_a_list_is_read_by_the_most_selective_index(
    *, wanted: dict[str, Any], order: SessionOrder, oldest_first: bool, way: str
) -> None:
    """A text leads, then the source of a fork, an owner or a label, a rare state, a prefix, an agent; or the order."""
    page = prepare(SessionFilter(**wanted), order=order, oldest_first=oldest_first)
    assert page.way == way
    assert page.limit == 11


def test_the_owner_leads_before_labels() -> None:
    """One term leads, and the others are checked on each session."""
    both = prepare(SessionFilter(owner="o", labels={"k": "v"}))
    assert (both.lead, both.terms) == (("", "o"), {"k": "v"})
    labels = prepare(SessionFilter(labels={"k": "v", "l": "w"}))
    assert (labels.lead, labels.terms) == (("k", "v"), {"l": "w"})
    assert (prepare().lead, prepare().terms) == (None, {})
    forks = prepare(SessionFilter(source_session_id="s", owner="o", labels={"k": "v"}))
    assert (forks.lead, forks.terms) == (None, {"": "o", "k": "v"})
    search = prepare(SessionFilter(text="my money", owner="o", labels={"k": "v"}))
    assert (search.words, search.lead, search.terms) == (("my", "money"), None, {"": "o", "k": "v"})


@pytest.mark.parametrize(
    ("wanted", "order", "oldest_first", "place"),
    [
        ({}, CREATED, False, {"key": MOST}),
        ({}, CREATED, True, {"key": LEAST}),
        ({}, ACTIVE, False, {"at_ms": MOST, "key": MOST, "first_ms": LEAST, "last_ms": MOST}),
        ({}, ACTIVE, True, {"at_ms": LEAST, "key": LEAST, "first_ms": LEAST, "last_ms": MOST}),
        (
            {"active_after_ms": 5, "active_before_ms": 9},
            *(ACTIVE, False, {"at_ms": MOST, "key": MOST, "first_ms": 6, "last_ms": 8}),
        ),
        (
            {"active_after_ms": MOST, "active_before_ms": LEAST},
            *(ACTIVE, True, {"at_ms": LEAST, "key": LEAST, "first_ms": MOST, "last_ms": LEAST}),
        ),
        ({"owner": "o"}, CREATED, False, {"key": MOST, "lead_key": "", "lead_value": "o"}),
        (
            {"owner": "o"},
            *(ACTIVE, False),
            {
                "by_activity": 1,
                "sign": -1,
                "sorted_at": LEAST,
                "sorted_key": LEAST,
                "lead_key": "",
                "lead_value": "o",
            },
        ),
        (
            {"prefix": "ab"},
            *(CREATED, True),
            {"by_activity": 0, "sign": 1, "sorted_at": LEAST, "sorted_key": LEAST, "prefix_end": "ac"},
        ),
        (
            {"source_session_id": "s"},
            *(CREATED, True),
            {"by_activity": 0, "sign": 1, "sorted_at": LEAST, "sorted_key": LEAST, "source_session_id": "s"},
        ),
    ],
)
def test_a_first_page_begins_before_all(
    *, wanted: dict[str, Any], order: SessionOrder, oldest_first: bool, place: dict[str, object]
) -> None:
    """The arguments are those of the query; times of activity are a range of its index."""
    assert prepare(SessionFilter(**wanted), order=order, oldest_first=oldest_first).place == place


@pytest.mark.parametrize(
    ("wanted", "order", "oldest_first", "place"),
    [
        ({}, CREATED, False, {"key": 8}),
        ({}, ACTIVE, False, {"at_ms": 80, "key": 8, "first_ms": LEAST, "last_ms": 80}),
        ({"active_before_ms": 50}, ACTIVE, False, {"at_ms": 80, "key": 8, "first_ms": LEAST, "last_ms": 49}),
        ({}, ACTIVE, True, {"at_ms": 80, "key": 8, "first_ms": 80, "last_ms": MOST}),
        ({"active_after_ms": 90}, ACTIVE, True, {"at_ms": 80, "key": 8, "first_ms": 91, "last_ms": MOST}),
        (
            {"state": SessionState.QUEUED},
            *(ACTIVE, False, {"by_activity": 1, "sign": -1, "sorted_at": -80, "sorted_key": -8}),
        ),
        (
            {"state": SessionState.QUEUED},
            *(CREATED, True, {"by_activity": 0, "sign": 1, "sorted_at": 0, "sorted_key": 8}),
        ),
    ],
)
def test_a_next_page_begins_after_the_last_session(
    *, wanted: dict[str, Any], order: SessionOrder, oldest_first: bool, place: dict[str, object]
) -> None:
    """The cursor of a page is the position of its last session in the order of the list."""
    fits = SessionFilter(**wanted)
    first = prepare(fits, order=order, oldest_first=oldest_first, limit=2)
    cursor = decode_page(first, rows(9, 8, 7), {}).next_cursor
    assert prepare(fits, order=order, oldest_first=oldest_first, cursor=cursor).place == place


def test_a_page_shows_what_a_picker_needs() -> None:
    """A page has metadata, revision, first message, count, time of the last change and agent."""
    page = decode_page(prepare(), [ROW], COMPONENTS)
    assert (page.sessions, page.next_cursor) == ((SUMMARY,), None)


def test_a_page_has_the_parts_that_were_asked_for() -> None:
    """Each part is decoded from its columns, and only on request."""
    head = SessionHead(
        session_id=SESSION,
        revision=4,
        config=SessionConfig(provider_id="p"),
        current_frame_id="f",
        leaf_node_id="c",
        checkpoint_ref=BlobRef(CHECKPOINT_REF),
        node_count=3,
        updated_at_ms=99,
    )
    assert _one(head=True) == replace(SUMMARY, head=head)
    assert _one(state=True) == replace(SUMMARY, state=SessionState.QUEUED)
    assert _one(counts=True) == replace(SUMMARY, counts=SessionCounts(queued=2, dead=1))
    saved = _one(checkpoint=True).checkpoint
    assert saved is not None
    assert (saved.revision, saved.components, saved.manifest.turn_state.turn_index) == (4, {"t": b"tools"}, 1)
    assert prepare(parts=PageParts(state=True)).needs_state
    assert prepare(SessionFilter(state=SessionState.IDLE)).needs_state
    assert not prepare().needs_state


def test_a_session_without_a_commit_has_neither_head_nor_checkpoint() -> None:
    """Both are None; a head without its checkpoint is damage."""
    fresh = replace(ROW, config=None, checkpoint_ref=None, turn_state=None)
    (entry,) = decode_page(prepare(parts=PageParts(head=True, checkpoint=True)), [fresh], {}).sessions
    assert (entry.head, entry.checkpoint) == (None, None)
    with pytest.raises(CorruptData, match="session 'session-1' has no checkpoint for its revision 4"):
        decode_page(prepare(parts=PageParts(checkpoint=True)), [replace(ROW, turn_state=None)], {})


def test_missing_counts_are_none() -> None:
    """A count that the database left out is 0."""
    bare = replace(ROW, queued=None, dead=None, waits=None)
    (entry,) = decode_page(prepare(parts=PageParts(counts=True)), [bare], {}).sessions
    assert entry.counts == SessionCounts()


def test_a_page_has_a_cursor_only_when_there_is_more() -> None:
    """The row beyond the limit is not shown, and the cursor points to the last row that is."""
    more = decode_page(prepare(limit=2), rows(9, 8, 7), {})
    assert [summary.meta.session_id for summary in more.sessions] == ["s9", "s8"]
    assert more.next_cursor == encoded(b"s1:8")
    exact = decode_page(prepare(limit=2), rows(9, 8), {})
    assert (len(exact.sessions), exact.next_cursor) == (2, None)
    assert decode_page(prepare(limit=2), [], {}).sessions == ()


@pytest.mark.parametrize(
    ("order", "oldest_first", "text", "position"),
    [
        (CREATED, False, b"s1:12", PagePosition(0, 12)),
        (CREATED, True, b"s2:co:0:12", PagePosition(0, 12)),
        (ACTIVE, False, b"s2:an:120:12", PagePosition(120, 12)),
        (ACTIVE, True, b"s2:ao:120:12", PagePosition(120, 12)),
    ],
)
def test_a_cursor_belongs_to_its_order(
    *, order: SessionOrder, oldest_first: bool, text: bytes, position: PagePosition
) -> None:
    """A cursor decodes to its position in the order that it was made for, and is refused in the others."""
    (last,) = rows(12)
    cursor = encode_cursor(prepare(order=order, oldest_first=oldest_first), last)
    assert cursor == encoded(text)
    assert decode_cursor(cursor, order, oldest_first=oldest_first) == position
    for other in SessionOrder:
        for direction in (False, True):
            if (other, direction) != (order, oldest_first):
                with pytest.raises(InvalidInput, match="cursor"):
                    decode_cursor(cursor, other, oldest_first=direction)
    assert decode_cursor(None, order, oldest_first=oldest_first) is None


def encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode()


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "not base64",
        "é",
        "czE",
        encoded(b"s2:1"),
        encoded(b"1"),
        encoded(b"s1:"),
        encoded(b"s1:x"),
        encoded(b"s1:-1"),
        encoded(b"s1:9223372036854775808"),
        encoded(b"s1:\xff"),
        encoded(b"s2:cn:0:1"),
        "c" * 256,
        7,
    ],
)
def test_what_is_no_cursor_is_refused(wrong: str) -> None:
    """Damaged, foreign and invented cursors are refused; none crashes or returns another page."""
    with pytest.raises(InvalidInput, match="cursor"):
        decode_cursor(wrong, CREATED, oldest_first=False)
    with pytest.raises(InvalidInput, match="cursor"):
        decode_cursor(encoded(b"s2:an:x:1"), ACTIVE, oldest_first=False)
    with pytest.raises(InvalidInput, match="cursor"):
        decode_cursor(encoded(b"s2:an:1:-1"), ACTIVE, oldest_first=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("all", "expected a SessionFilter, got str"),
        (SessionFilter(prefix="p" * 256), "prefix has 256 characters"),
        (SessionFilter(owner=" "), "owner is blank"),
        (SessionFilter(agent=""), "agent is blank"),
        (SessionFilter(labels={"": ""}), "a label is blank"),
        (SessionFilter(created_after_ms=2**63), "created_after_ms"),
        (SessionFilter(created_before_ms=1.5), "created_before_ms"),  # type: ignore[arg-type]
        (SessionFilter(active_after_ms="x"), "active_after_ms"),  # type: ignore[arg-type]
        (SessionFilter(active_before_ms=2**63), "active_before_ms"),
        (SessionFilter(state="asleep"), "filter"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_filter_is_refused(wrong: object, message: str) -> None:
    """The error names the part."""
    with pytest.raises(InvalidInput, match=message):
        check_filter(wrong)
    whole = SessionFilter(prefix="p" * 255, created_after_ms=0, active_before_ms=1, agent="a")
    assert check_filter(whole) is whole


def test_a_wrong_order_or_size_is_refused() -> None:
    """The order is one of two, and a page has at least one session."""
    with pytest.raises(InvalidInput, match="expected a SessionOrder, got 'newest'"):
        prepare(order="newest")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="limit"):
        prepare(limit=0)


def _one(**parts: bool) -> SessionSummary:
    (entry,) = decode_page(prepare(parts=PageParts(**parts)), [ROW], COMPONENTS).sessions
    return entry
