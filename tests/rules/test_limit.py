"""Rules of limits."""

import pytest

from lash.errors import InvalidInput
from lash.model.limit import LimitState, Rate, Reservation
from lash.plan.limit import (
    LimitRow,
    ReservedRow,
    check_name,
    check_rate,
    decode_limit,
    decode_reservation,
    interval_us,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "count", "period_ms"),
    [
        ("1/second", 1, 1_000),
        ("60/minute", 60, 60_000),
        (" 5000 / hour ", 5_000, 3_600_000),
        ("1000000/day", 1_000_000, 86_400_000),
    ],
)
def test_rates_are_read(text: str, count: int, period_ms: int) -> None:
    """A rate is a number and a unit."""
    assert parse_rate(text) == Rate(count=count, period_ms=period_ms)
    assert parse_rate(text, burst=7) == Rate(count=count, period_ms=period_ms, burst=7)


@pytest.mark.parametrize("text", ["", "60", "60/week", "60/minutes", "-1/minute", "1.5/second", "a/minute", None, 60])
def test_a_bad_rate_says_what_is_expected(text: object) -> None:
    """The error has the form of a rate and the units."""
    with pytest.raises(InvalidInput, match=r"expected a rate such as '60/minute', got .*second, minute, hour, day"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("60/minute", "expected a Rate, got str"),
        (Rate(count=0, period_ms=1), "the count of a rate must lie between 1"),
        (Rate(count=1_000_001, period_ms=1), "the count of a rate is too large: 1,000,001"),
        (Rate(count=1, period_ms=0), "period_ms must lie between 1"),
        (Rate(count=1, period_ms=86_400_001), "period_ms is too large"),
        (Rate(count=1, period_ms=1, burst=0), "burst must lie between 1"),
        (Rate(count=1, period_ms=1, burst=1_000_001), "burst is too large"),
    ],
)
def test_bad_rates_are_refused(rate: object, message: str) -> None:
    """Counts, periods and bursts have bounds."""
    with pytest.raises(InvalidInput, match=message):
        check_rate(rate)


def test_the_bounds_of_rates_are_valid() -> None:
    """The smallest and the largest rate are accepted."""
    for rate in (Rate(count=1, period_ms=86_400_000), Rate(count=1_000_000, period_ms=1, burst=1_000_000)):
        assert check_rate(rate) is rate


def test_zero_of_a_period_and_a_burst_of_zero_are_refused() -> None:
    """A text with a count of zero, and a burst below one, are refused."""
    with pytest.raises(InvalidInput, match="the count of a rate"):
        parse_rate("0/minute")
    with pytest.raises(InvalidInput, match="burst"):
        parse_rate("1/minute", burst=0)


def test_names_and_keys() -> None:
    """A name is an identifier; a key may be empty."""
    assert check_name("api", "") == ("api", "")
    assert check_name("api", "ann") == ("api", "ann")
    for name, key in (("", ""), (" ", ""), ("api", " "), (None, ""), ("api", None)):
        with pytest.raises(InvalidInput, match="of a limit"):
            check_name(name, key)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (Rate(count=60, period_ms=60_000), 1_000_000),
        (Rate(count=7, period_ms=1_000), 142_858),
        (Rate(count=1_000_000, period_ms=1), 1),
    ],
)
def test_an_interval_is_rounded_up(rate: Rate, expected: int) -> None:
    """Intervals are microseconds, and never shorter than the rate says."""
    assert interval_us(rate) == expected


@pytest.mark.parametrize(
    ("free_at_us", "burst", "at_ms"),
    [(10_000, 1, 9), (10_001, 1, 10), (12_000, 1, 11), (12_000, 3, 9), (1_000, 1, 9)],
)
def test_a_reservation_begins_a_burst_before_the_limit_is_free(free_at_us: int, burst: int, at_ms: int) -> None:
    """Moments are rounded up to milliseconds, and are never in the past."""
    row = ReservedRow(free_at_us, 9)
    rate = Rate(count=1_000, period_ms=1_000, burst=burst)
    assert decode_reservation(row, rate) == Reservation(at_ms=at_ms, now_ms=9)


@pytest.mark.parametrize(("at_ms", "wait_ms"), [(9, 0), (12, 3), (1, 0)])
def test_a_wait_is_never_negative(at_ms: int, wait_ms: int) -> None:
    """A moment that has passed needs no wait."""
    assert Reservation(at_ms=at_ms, now_ms=9).wait_ms == wait_ms


@pytest.mark.parametrize(
    ("free_at_us", "burst", "waiting", "next_at_ms"),
    [(20_000, 1, 0, 20), (30_000, 1, 1, 30), (30_500, 1, 2, 31), (40_000, 2, 1, 30), (5_000, 1, 0, 10)],
)
def test_the_state_of_a_limit(free_at_us: int, burst: int, waiting: int, next_at_ms: int) -> None:
    """What waits are the reservations after now; the next one comes an interval after the last."""
    row = LimitRow("api", "k", 10_000, burst, free_at_us, 10)
    assert decode_limit(row) == LimitState(
        name="api", key="k", interval_us=10_000, burst=burst, waiting=waiting, next_at_ms=next_at_ms
    )
