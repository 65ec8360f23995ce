"""Rules of limits."""

import pytest

from lash.errors import CorruptData, InvalidInput, LeaseLost
from lash.model.lease import LeaseFence, Resource, process_resource, session_resource
from lash.model.limit import Limit, LimitPlace, LimitState, PlaceState, Rate, Reservation
from lash.plan.limit import (
    EnteredRow,
    LimitRow,
    PlaceRow,
    PlaceStateRow,
    ReservedRow,
    Woken,
    check_concurrency,
    check_name,
    check_place,
    check_rate,
    decode_limit,
    decode_place,
    decode_reservation,
    interval_us,
    make_limit,
    parse_rate,
    require_entered,
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
    row = LimitRow("api", "k", 10_000, burst, free_at_us, None, 0, 0, 10)
    assert decode_limit(row) == LimitState(
        name="api", key="k", interval_us=10_000, burst=burst, waiting=waiting, next_at_ms=next_at_ms
    )


def test_the_state_of_a_line() -> None:
    """Places are counted beside the reservations of the same name and key; a limit without a rate has no moments."""
    row = LimitRow("api", "k", None, None, None, 4, 3, 2, 10)
    assert decode_limit(row) == LimitState(name="api", key="k", concurrency=4, held=3, waiting=2)
    both = decode_limit(LimitRow("api", "k", 10_000, 1, 30_000, 4, 3, 2, 10))
    assert (both.waiting, both.held, both.concurrency, both.next_at_ms) == (3, 3, 4, 30)


def test_limits_are_declared() -> None:
    """A limit has a rate, a concurrency, or both."""
    rate = Rate(count=1, period_ms=60_000, burst=2)
    assert make_limit("1/minute", 2, None) == Limit(rate=rate)
    assert make_limit(None, 1, 4) == Limit(concurrency=4)
    assert make_limit("1/minute", 2, 4) == Limit(rate=rate, concurrency=4)


@pytest.mark.parametrize(
    ("rate", "burst", "concurrency", "message"),
    [
        (None, 1, None, "a limit needs a rate or a concurrency"),
        (None, 2, 4, "burst needs a rate"),
        ("often", 1, 4, "expected a rate"),
        (None, 1, 0, "concurrency must lie between 1"),
        (None, 1, "4", "concurrency must be an integer"),
        (None, 1, 10_001, "concurrency is too large: 10,001; at most 10,000"),
    ],
)
def test_bad_limits_are_refused(rate: object, burst: object, concurrency: object, message: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(InvalidInput, match=message):
        make_limit(rate, burst, concurrency)


def test_the_bounds_of_concurrency_are_valid() -> None:
    """One may run at once, and ten thousand."""
    assert (check_concurrency(1), check_concurrency(10_000)) == (1, 10_000)


def test_a_place_is_of_one_step_of_one_run() -> None:
    """Limits, keys, sessions, processes and steps have places of their own; runs of one step share theirs."""
    session, process = _fence(session_resource("a")), _fence(process_resource("a"))
    given = [
        check_place("api", "", session, ""),
        check_place("other", "", session, ""),
        check_place("api", "k", session, ""),
        check_place("api", "", session, "s"),
        check_place("api", "", process, ""),
    ]
    assert len({each.holder for each in given}) == len(given)
    assert check_place("api", "", _fence(session_resource("a"), fencing=7), "").holder == given[0].holder
    assert (given[0].session_id, given[0].process_id) == ("a", None)
    assert (given[-1].session_id, given[-1].process_id) == (None, "a")


def test_bad_places_are_refused() -> None:
    """A fence and a step are needed."""
    with pytest.raises(InvalidInput, match="expected a LeaseFence, got str"):
        check_place("api", "", "fence", "")
    with pytest.raises(InvalidInput, match="step must be text"):
        check_place("api", "", _fence(session_resource("a")), None)


def test_a_run_without_its_lease_gets_no_place() -> None:
    """The error names the session."""
    request = check_place("api", "", _fence(session_resource("a")), "")
    assert require_entered(EnteredRow(1, 0), request) == EnteredRow(1, 0)
    with pytest.raises(LeaseLost, match="session 'a'"):
        require_entered(None, request)


def test_states_of_places() -> None:
    """The stored numbers are those of the migration."""
    assert [EnteredRow(1, state).is_held for state in range(3)] == [False, False, True]
    assert [PlaceStateRow("h", state).is_waiting for state in range(3)] == [True, False, False]
    states = [decode_place(PlaceRow(1, state, 2, "a", None)).state for state in range(3)]
    assert states == [PlaceState.WAITING, PlaceState.OFFERED, PlaceState.HELD]


def test_places_are_of_sessions_and_processes() -> None:
    """A place without an owner is damage."""
    expected = LimitPlace(number=1, resource=process_resource("p"), state=PlaceState.HELD, since_ms=9)
    assert decode_place(PlaceRow(1, 2, 9, None, "p")) == expected
    with pytest.raises(CorruptData, match="place 1 belongs to no session or process"):
        decode_place(PlaceRow(1, 2, 9, None, None))


def test_what_was_served_is_added_up() -> None:
    """Sessions are counted, processes are named."""
    assert Woken(1, ["a"]).merged(Woken(2, ["b"])) == Woken(3, ["a", "b"])
    assert Woken() == Woken(0, [])


def _fence(resource: Resource, fencing: int = 1) -> LeaseFence:
    return LeaseFence(resource=resource, owner_id="o", incarnation_id="i", token="t", fencing=fencing)
