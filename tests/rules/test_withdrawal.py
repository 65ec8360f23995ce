"""When a worker withdraws, and for how long."""

from __future__ import annotations

import pytest

from lash.plan.withdrawal import LocalPlace, TurnTimes, are_full, is_slowed, may_withdraw, plan_pause, turns_to_judge


@pytest.mark.parametrize(
    ("storage_s", "total_s", "slowed"),
    [
        (0.2, 0.3, True),
        (0.051, 0.1, True),
        (0.051, 0.103, False),  # it waited longer for something else
        (0.2, 5.0, False),
        (0.05, 0.06, False),  # short
        (0.008, 0.008, False),  # an agent that only answers
    ],
)
def test_a_turn_is_slowed_if_it_waits_long_and_mostly_for_the_storage(
    storage_s: float, total_s: float, *, slowed: bool
) -> None:
    """50 ms and half of the time are the limits."""
    assert is_slowed([TurnTimes(storage_s=storage_s, total_s=total_s)]) is slowed


def test_turns_are_judged_together() -> None:
    """The mean counts, so one slow turn among quick ones does not."""
    quick, slow = TurnTimes(storage_s=0.01, total_s=0.06), TurnTimes(storage_s=0.3, total_s=0.35)
    assert is_slowed([quick, slow])
    assert not is_slowed([quick] * 7 + [slow])


def test_a_worker_comes_back_below_the_limits() -> None:
    """With a part of two thirds, 34 ms and a third of the time are the limits."""
    turn = TurnTimes(storage_s=0.04, total_s=0.1)
    assert not is_slowed([turn])
    assert is_slowed([turn], part=2 / 3)
    assert not is_slowed([TurnTimes(storage_s=0.03, total_s=0.08)], part=2 / 3)
    assert not is_slowed([TurnTimes(storage_s=0.04, total_s=0.13)], part=2 / 3)


@pytest.mark.parametrize(("place", "processors", "may"), [(0, 1, False), (1, 1, False), (2, 1, True), (15, 8, False)])
def test_two_workers_for_each_processor_stay(place: int, processors: int, *, may: bool) -> None:
    """The first places of a machine never withdraw."""
    assert may_withdraw(LocalPlace(place=place, workers=40), processors) is may


def test_the_last_place_sees_it_first() -> None:
    """The last place judges by four turns, the first one by sixteen, the middle one by ten."""
    assert [turns_to_judge(LocalPlace(place=each, workers=33)) for each in (32, 16, 0)] == [4, 10, 16]
    assert turns_to_judge(LocalPlace(place=0, workers=1)) == 4


def test_pauses_grow_with_the_place_and_with_each_try() -> None:
    """The first place that may withdraw pauses for two seconds, then for four; the last ones for longer."""
    first, last = LocalPlace(place=4, workers=32), LocalPlace(place=28, workers=32)
    assert [plan_pause(first, 2, times=times) for times in (0, 1, 2)] == [2.0, 4.0, 4.0]
    assert [plan_pause(last, 2, times=times) for times in (0, 1, 2)] == [8.0, 16.0, 16.0]


@pytest.mark.parametrize(
    ("pressure", "full"),
    [
        ("some avg10=80.01 avg60=1.00 avg300=1.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", True),
        ("some avg10=80.00 avg60=99.00 avg300=99.00 total=7\nfull avg10=90.00 avg60=0.00 avg300=0.00 total=0\n", False),
        ("some avg10=much avg60=99.00", False),
        ("", False),
    ],
)
def test_processors_are_full_if_programs_wait_for_them_most_of_the_time(*, pressure: str, full: bool) -> None:
    """More than 80 % of the last ten seconds; nothing is concluded from a report that cannot be read."""
    assert are_full(pressure) is full
