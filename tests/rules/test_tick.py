"""Rules of ticks: which are emitted and when, by policy and jitter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lash.model.process.process import AgentScope, SessionOriginator
from lash.model.trigger.schedule import CatchUp, ScheduleDraft
from lash.plan.trigger.tick import MAX_TICKS, Moment, due_ticks, identity_of, moment_after

HOUR = 3_600_000
MINUTE = 60_000
DAY = 24 * HOUR
NOON = 1_780_315_200_000
"""2026-06-01T12:00:00Z."""


def hourly(catch_up: CatchUp, *, jitter_ms: int = 0, grace_ms: int = MINUTE, cron: str = "0 * * * *") -> ScheduleDraft:
    return ScheduleDraft(key="k", cron=cron, catch_up=catch_up, jitter_ms=jitter_ms, grace_ms=grace_ms)


def at(tick_ms: int) -> Moment:
    return Moment(tick_ms, tick_ms)


def test_ids_are_golden() -> None:
    """The id of a schedule, by which its occurrences are found, never changes."""
    assert identity_of("", "nightly") == "schedule:7d831e1db2b27d1647a43faadb9c5056822f31e3fe0559b415ba1a15f2ba47c9"
    assert identity_of("s", "nightly") == "schedule:061ac7521977bc54afd79907b649f7c6ce1fb8ac1e60d6bfb5af74424bf831d5"
    assert len({identity_of("", "a"), identity_of("a", ""), identity_of('","', "")}) == 3


def test_one_tick_in_time_is_emitted_under_every_policy() -> None:
    """A running worker emits each tick once."""
    for policy in CatchUp:
        assert due_ticks(hourly(policy), at(NOON), NOON) == ((NOON,), NOON)
        assert due_ticks(hourly(policy), at(NOON), NOON + MINUTE) == ((NOON,), NOON)


def test_skip_drops_what_is_late() -> None:
    """A tick later than the grace is dropped, the newest included."""
    draft = hourly(CatchUp.SKIP)
    assert due_ticks(draft, at(NOON), NOON + MINUTE + 1) == ((), NOON)
    assert due_ticks(draft, at(NOON - 50 * HOUR), NOON + MINUTE) == ((NOON,), NOON)
    assert due_ticks(draft, at(NOON - 50 * HOUR), NOON + MINUTE + 1) == ((), NOON)
    assert due_ticks(draft, at(NOON - 50 * HOUR), NOON - 1) == ((), NOON - HOUR)


def test_skip_keeps_all_that_are_within_a_long_grace() -> None:
    """Each tick is judged by its own time."""
    draft = hourly(CatchUp.SKIP, grace_ms=2 * HOUR)
    due = (NOON - 2 * HOUR, NOON - HOUR, NOON)
    assert due_ticks(draft, at(NOON - 9 * HOUR), NOON) == (due, NOON)


def test_the_first_moment_is_the_one_that_was_stored() -> None:
    """Lateness is measured from the stored due time, not from one computed now."""
    assert due_ticks(hourly(CatchUp.SKIP), Moment(NOON, NOON + 5), NOON + MINUTE + 3) == ((NOON,), NOON)


def test_last_emits_the_newest() -> None:
    """However many were missed and however late, one is emitted."""
    draft = hourly(CatchUp.LAST)
    assert due_ticks(draft, at(NOON), NOON + 30 * MINUTE) == ((NOON,), NOON)
    assert due_ticks(draft, at(NOON - 1_000 * HOUR), NOON + 59 * MINUTE) == ((NOON,), NOON)
    assert due_ticks(draft, at(NOON - 3 * HOUR), NOON) == ((NOON,), NOON)


def test_years_of_minutes_are_not_walked_through() -> None:
    """The result after ten years is the same as after a day."""
    first = NOON - 3_653 * DAY
    assert due_ticks(hourly(CatchUp.LAST, cron="* * * * *"), at(first), NOON + 7) == ((NOON,), NOON)
    assert due_ticks(hourly(CatchUp.SKIP, cron="* * * * *"), at(first), NOON + 7) == ((NOON,), NOON)


def test_all_emits_a_bounded_number_in_order() -> None:
    """Every tick is emitted, a bounded number per call."""
    draft = hourly(CatchUp.ALL)
    first = NOON - 150 * HOUR
    due, last = due_ticks(draft, at(first), NOON)
    assert due == tuple(first + number * HOUR for number in range(MAX_TICKS))
    assert last == due[-1]
    rest, last = due_ticks(draft, at(last + HOUR), NOON)
    assert rest == tuple(first + number * HOUR for number in range(MAX_TICKS, 151))
    assert last == NOON


def test_all_stops_where_the_line_does() -> None:
    """The last tick of a line has no next one."""
    # 9999-01-01T00:00:00Z.
    last = 253_370_764_800_000
    assert due_ticks(hourly(CatchUp.ALL, cron="0 0 1 1 *"), at(last), last + DAY) == ((last,), last)
    assert moment_after(hourly(CatchUp.ALL, cron="0 0 1 1 *"), last) is None
    assert moment_after(hourly(CatchUp.ALL, cron="0 0 1 1 *", jitter_ms=1_000), last - 1) is not None


def test_jitter_is_golden() -> None:
    """The delay of a tick depends on the schedule and the tick, and never changes."""
    draft = hourly(CatchUp.ALL, jitter_ms=600_000)
    assert moment_after(draft, NOON - 1) == Moment(NOON, NOON + 375_067)
    other = ScheduleDraft(
        owner=SessionOriginator(scope=AgentScope(session_id="s")), key="k", cron="0 * * * *", jitter_ms=600_000
    )
    assert moment_after(other, NOON - 1) == Moment(NOON, NOON + 324_857)
    # A jitter longer than the minute between two ticks is taken modulo 60,000, so a tick stays before the next.
    each_minute = hourly(CatchUp.ALL, jitter_ms=HOUR, cron="* * * * *")
    assert moment_after(each_minute, NOON - 1) == Moment(NOON, NOON + 13_648)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2 * HOUR), st.text(min_size=1, max_size=8), st.sampled_from(["* * * * *", "*/7 1-5 * * *"]))
def test_jitter_stays_within_its_bounds_and_before_the_next_tick(jitter_ms: int, key: str, cron: str) -> None:
    """Ticks are due in order, each at most the jitter after its time."""
    draft = ScheduleDraft(key=key, cron=cron, jitter_ms=jitter_ms)
    moment = moment_after(draft, NOON)
    for _ in range(5):
        assert moment is not None
        following = moment_after(draft, moment.tick_ms)
        assert following is not None
        assert moment.tick_ms <= moment.fire_ms <= moment.tick_ms + jitter_ms
        assert moment.fire_ms < following.tick_ms
        moment = following


def test_jitter_spreads() -> None:
    """Many schedules of one line do not fire at the same moment."""
    fires = set()
    for number in range(50):
        moment = moment_after(ScheduleDraft(key=f"k{number}", cron="0 0 * * *", jitter_ms=HOUR), NOON)
        assert moment is not None
        fires.add(moment.fire_ms)
    assert len(fires) == 50


def test_the_smallest_jitter_counts() -> None:
    """A jitter of one millisecond delays some schedules by it and others not at all."""
    delays = set()
    for number in range(50):
        moment = moment_after(ScheduleDraft(key=f"k{number}", cron="0 0 * * *", jitter_ms=1), NOON)
        assert moment is not None
        delays.add(moment.fire_ms - moment.tick_ms)
    assert delays == {0, 1}


@pytest.mark.parametrize("policy", list(CatchUp))
def test_a_tick_is_not_emitted_before_its_jitter_is_over(policy: CatchUp) -> None:
    """A tick whose jittered moment has not come stays the next one."""
    draft = hourly(policy, jitter_ms=HOUR // 2, grace_ms=MINUTE)
    newest = moment_after(draft, NOON - 1)
    before = moment_after(draft, NOON - HOUR - 1)
    assert newest is not None
    assert before is not None
    assert newest.fire_ms > NOON + MINUTE, "the example needs a delay of more than the grace"
    first = Moment(NOON - 3 * HOUR, NOON - 3 * HOUR)
    due, last = due_ticks(draft, first, newest.fire_ms - 1)
    assert last == NOON - HOUR
    assert (
        due
        == {
            CatchUp.SKIP: (),
            CatchUp.LAST: (NOON - HOUR,),
            CatchUp.ALL: (NOON - 3 * HOUR, NOON - 2 * HOUR, NOON - HOUR),
        }[policy]
    )
    assert due_ticks(draft, newest, newest.fire_ms) == ((NOON,), NOON)
