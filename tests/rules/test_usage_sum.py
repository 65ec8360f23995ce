"""Rules of sums of usage: what is read, and what a sum is of."""

import base64

import pytest

from lash.errors import CorruptData, InvalidInput
from lash.model.session.usage import TokenUsage, UsagePage, UsageSum
from lash.plan.session.usage_sum import (
    GROUPS,
    PreparedSums,
    SumKey,
    UsageFilter,
    UsageSumRow,
    decode_sums,
    prepare_sums,
)

HOUR_MS = 3_600_000
LEAST = -(2**63)
MOST = 2**63 - 1


ANY = UsageFilter()


def prepare(*by: str, chosen: UsageFilter = ANY, limit: int = 10, cursor: str | None = None) -> PreparedSums:
    return prepare_sums(by, chosen, limit=limit, cursor=cursor)


def row(day: int = -1, model: str = "", agent: str = "", session_id: str = "", source: str = "") -> UsageSumRow:
    return UsageSumRow(
        day,
        model,
        agent,
        session_id,
        source,
        input_high=1,
        input_low=2,
        output_high=0,
        output_low=3,
        cached_high=0,
        cached_low=4,
        reasoning_high=2,
        reasoning_low=0,
    )


USAGE = TokenUsage(input_tokens=2**32 + 2, output_tokens=3, cached_input_tokens=4, reasoning_tokens=2**33)


def test_groups_come_in_a_fixed_order() -> None:
    """The order of the sums does not depend on the order of the arguments."""
    assert GROUPS == ("day", "model", "agent", "session", "source")
    assert prepare("model", "day").by == prepare("day", "model", "day").by == {"day", "model"}


def test_a_sum_without_a_time_reads_everything() -> None:
    """Entries without a time count, and no session is too old."""
    wanted = prepare()
    assert (wanted.is_timed, wanted.since_ms, wanted.until_ms, wanted.floor_ms) == (False, LEAST, MOST, None)
    assert wanted.limit == 11


def test_an_hour_before_the_start_is_read_too() -> None:
    """A clock that was set back by up to an hour loses no entry."""
    wanted = prepare(chosen=UsageFilter(since_ms=5 * HOUR_MS))
    assert (wanted.is_timed, wanted.since_ms, wanted.floor_ms) == (True, 5 * HOUR_MS, 4 * HOUR_MS)
    assert prepare(chosen=UsageFilter(since_ms=LEAST)).floor_ms == LEAST
    until = prepare(chosen=UsageFilter(until_ms=7))
    assert (until.is_timed, until.until_ms, until.floor_ms) == (True, 7, None)


def test_a_ledger_is_read_in_the_cheapest_way() -> None:
    """A whole one from end to end, or in the order of the sessions; one by one to leave out what is too old."""
    assert prepare("day", "model").way == prepare(chosen=UsageFilter(until_ms=7)).way == "all"
    assert prepare("day", "session").way == prepare("day", chosen=UsageFilter(since_ms=7)).way == "each"
    assert prepare("session").way == prepare("session", "source").way == "in_order"
    assert prepare("session", chosen=UsageFilter(session_id="s")).way == "one"


def test_a_sum_names_what_it_is_grouped_by() -> None:
    """Other parts are None, and so are an unknown day and a missing agent; an empty model is a name."""
    page = decode_sums(prepare("day", "model", "agent"), [row(20_773, "m", "helper"), row()])
    assert page == UsagePage(
        sums=(UsageSum(day="2026-11-16", model="m", agent="helper", usage=USAGE), UsageSum(model="", usage=USAGE))
    )
    by_others = decode_sums(prepare("session", "source"), [row(session_id="s", source="turn")])
    assert by_others.sums == (UsageSum(session_id="s", source="turn", usage=USAGE),)


def test_a_page_continues_after_its_last_sum() -> None:
    """The cursor carries the key of the last sum, and belongs to its groups."""
    wanted = prepare("model", "day", limit=1)
    page = decode_sums(wanted, [row(3, "a"), row(3, "b")])
    assert len(page.sums) == 1
    assert prepare("day", "model", cursor=page.next_cursor).after == SumKey(3, "a")
    with pytest.raises(InvalidInput, match="expected a cursor of a list of sums by day, got"):
        prepare("day", cursor=page.next_cursor)


@pytest.mark.parametrize("text", [b"?", b"[]", b'["u2",["day"],[1]]', b'["u1",["day"],["x"]]', b"\xff"])
def test_a_cursor_of_another_list_is_refused(text: bytes) -> None:
    """A text that no page returned raises InvalidInput."""
    with pytest.raises(InvalidInput, match="expected a cursor of a list of sums by day"):
        prepare("day", cursor=base64.urlsafe_b64encode(text).decode())
    with pytest.raises(InvalidInput, match="expected a cursor of a list of sums by day"):
        prepare("day", cursor="ä")


def test_arguments_are_checked() -> None:
    """Groups, times and names that cannot be stored raise InvalidInput."""
    with pytest.raises(InvalidInput, match="unknown group 'week'; sum by day, model, agent, session, source"):
        prepare("week")
    for by in ("day", 1, {"day"}):
        with pytest.raises(InvalidInput, match="expected a sequence of day, model, agent, session, source, got"):
            prepare_sums(by, ANY, limit=1, cursor=None)
    for chosen, name in (
        (UsageFilter(since_ms="1"), "since_ms"),  # type: ignore[arg-type]
        (UsageFilter(until_ms=MOST + 1), "until_ms"),
        (UsageFilter(session_id=" "), "session_id"),
        (UsageFilter(agent=""), "agent"),
        (UsageFilter(model="m" * 256), "model"),
    ):
        with pytest.raises(InvalidInput, match=name):
            prepare(chosen=chosen)
    assert prepare(chosen=UsageFilter(model="m" * 255, session_id="s", agent="a")).chosen.agent == "a"


@pytest.mark.parametrize("day", [2**31, 2**63 - 1])
def test_a_day_beyond_the_calendar_is_damage(day: int) -> None:
    """A time that no clock of a database has cannot be read."""
    with pytest.raises(CorruptData, match=f"the day {day}, which is beyond the calendar"):
        decode_sums(prepare("day"), [row(day)])
