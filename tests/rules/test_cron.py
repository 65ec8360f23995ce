"""Ticks of cron lines, with times computed by hand."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lash.errors import InvalidInput
from lash.plan.trigger import cron as cron_plan
from lash.plan.trigger.cron import check_cron, instant, newest_tick, next_tick, zone_of


def ms(text: str) -> int:
    """Return a moment written in ISO 8601, by default in UTC."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 1000


def ticks(cron: str, zone: str, after: str, count: int) -> list[str]:
    """Return the next ticks in UTC, each found from the one before."""
    found: list[str] = []
    moment: int | None = ms(after)
    while len(found) < count:
        assert moment is not None
        moment = next_tick(cron, ZoneInfo(zone), moment)
        assert moment is not None
        found.append(datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        # 02:30 does not exist in Berlin on 2026-03-29: the line ticks at the end of the gap, at 03:00 summer time.
        (
            *("30 2 * * *", "Europe/Berlin", "2026-03-28"),
            ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"],
        ),
        # Two times in the gap are one tick.
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-28T22:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
        # A line with "every …" has no fixed time: a time that does not exist does not tick.
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T22:00", ["2026-03-30 00:00", "2026-03-30 00:30"]),
        ("0 * * * *", "Europe/Berlin", "2026-03-28T23:30", ["2026-03-29 00:00", "2026-03-29 01:00"]),
        # 02:30 comes twice on 2026-10-25: the first one counts.
        (
            *("30 2 * * *", "Europe/Berlin", "2026-10-24"),
            ["2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30"],
        ),
        # From between the two, the first one is over and the second one does not count.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45", ["2026-10-26 01:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:05", ["2026-10-26 01:30"]),
        # Every half hour of the doubled hour.
        (
            *("*/30 2 * * *", "Europe/Berlin", "2026-10-24T22:00"),
            ["2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-26 01:00"],
        ),
        # In New York the gap is on 2026-03-08 at 02:00, the doubled hour on 2026-11-01 at 01:00.
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["2026-03-08 07:00", "2026-03-09 06:30"]),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["2026-11-01 05:30", "2026-11-02 06:30"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T06:00", ["2026-11-02 06:30"]),
        ("15 * * * *", "America/New_York", "2026-11-01T05:00", ["2026-11-01 05:15", "2026-11-01 06:15"]),
        # In Cairo the gap begins at midnight, on 2026-04-24: there is no 00:00.
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00", ["2026-04-23 22:00", "2026-04-24 21:00"]),
        # India is half an hour off and has no summer time.
        ("0 9 * * *", "Asia/Kolkata", "2026-05-01T04:00", ["2026-05-02 03:30"]),
        # Leap years: 2028 and 2096 are, 2100 is not.
        ("0 0 29 2 *", "UTC", "2026-01-01", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 2 *", "UTC", "2096-01-01", ["2096-02-29 00:00", "2104-02-29 00:00"]),
        # Day of month and day of week: either, unless one of them is a star.
        ("0 0 13 * 5", "UTC", "2026-02-01", ["2026-02-06 00:00", "2026-02-13 00:00", "2026-02-20 00:00"]),
        ("0 0 * * 1#1", "UTC", "2026-02-03", ["2026-03-02 00:00"]),
        ("0 0 L * *", "UTC", "2028-02-01", ["2028-02-29 00:00", "2028-03-31 00:00"]),
        ("0 12 31 * *", "UTC", "2026-03-31T12:00", ["2026-05-31 12:00"]),
        # The end of a year.
        ("59 23 31 12 *", "UTC", "2026-12-31T23:58", ["2026-12-31 23:59", "2027-12-31 23:59"]),
    ],
)
def test_ticks(cron: str, zone: str, after: str, expected: list[str]) -> None:
    """A line ticks by the rules of Debian's cron, in gaps, doubled hours and leap years too."""
    assert ticks(cron, zone, after, len(expected)) == expected


def test_a_tick_is_after_the_moment_to_the_millisecond() -> None:
    """The next tick is strictly after the given moment."""
    minute, zone = ms("2026-05-01T12:00"), ZoneInfo("UTC")
    assert next_tick("* * * * *", zone, minute - 1) == minute
    assert next_tick("* * * * *", zone, minute) == minute + 60_000
    assert next_tick("* * * * *", zone, minute + 999) == minute + 60_000


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 1,2 * * *", "0 */3 * * *", "17 1 * * 0"])
def test_the_ticks_do_not_depend_on_where_one_starts(cron: str, zone: str) -> None:
    """From any moment around a change of clocks the next tick is the first of the same ticks."""
    for day in ("2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"):
        start, place = ms(day) - 86_400_000, ZoneInfo(zone)
        walked = [start]
        while walked[-1] < start + 4 * 86_400_000:
            tick = next_tick(cron, place, walked[-1])
            assert tick is not None
            walked.append(tick)
        for moment in range(start, start + 3 * 86_400_000, 13 * 60_000):
            assert next_tick(cron, place, moment) == next(tick for tick in walked[1:] if tick > moment)


@pytest.mark.parametrize(
    "cron",
    [
        *("", "*", "* * * *", "0 * * * * *", "@daily", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *"),
        *("* * * * 8", "*/0 * * * *", "5-1 * * * *", "a * * * *", "1,,2 * * * *", "-1 * * * *", "* * * * L"),
        *("0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *", "* * */20 * 1L", "x" * 2_000, "0 0 * * *\0"),
        *("9" * 900 + " * * * *", 5, None),
    ],
)
def test_lines_that_cannot_be(cron: object) -> None:
    """A line that cannot be parsed, or that never ticks, is refused."""
    with pytest.raises(InvalidInput, match="cron"):
        check_cron(cron, "UTC")


@pytest.mark.parametrize(
    "zone",
    [
        *("", "Mars/Olympus", "europe/berlin", "America", "localtime", "right/UTC", "posixrules", "../etc/passwd"),
        *("/etc/localtime", "Europe/Berlin\0", "E" * 300, "\ud800", "Europe/../UTC", "tzdata.zi", 1, None),
    ],
)
def test_zones_that_are_not_known(zone: object) -> None:
    """A name that is not an IANA zone is refused, whatever the machine has under that name."""
    with pytest.raises(InvalidInput, match=r"time.zone"):
        check_cron("* * * * *", zone)


def test_the_longest_line_and_the_longest_name_are_looked_at() -> None:
    """A line may have 1,024 characters and a zone name 255; longer ones are refused for their length."""
    check_cron("10" + ",0" * 507 + " * * * *", "UTC")
    with pytest.raises(InvalidInput, match="cron has 1,025 characters"):
        check_cron("10" + ",0" * 506 + ",10 * * * *", "UTC")
    with pytest.raises(InvalidInput, match=r"unknown time zone 'EEE"):
        zone_of("E" * 255)
    with pytest.raises(InvalidInput, match="time_zone has 256 characters"):
        zone_of("E" * 256)


def test_a_line_that_cannot_be_read_has_no_next_tick() -> None:
    """An unparsable line is refused, not treated as one that never ticks."""
    with pytest.raises(InvalidInput, match=r"^cron line '60 \* \* \* \*': "):
        next_tick("60 * * * *", ZoneInfo("UTC"), 0)


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789*/,-#LWMONFEB ", max_size=30), st.integers(0, 4_000_000_000_000))
def test_any_text_is_a_line_or_is_refused(line: str, after_ms: int) -> None:
    """Any text is parsed or raises InvalidInput, and a tick is always after the moment."""
    try:
        check_cron(line, "Europe/Berlin")
    except InvalidInput:
        return
    tick = next_tick(line, ZoneInfo("Europe/Berlin"), after_ms)
    assert tick is None or tick > after_ms


def test_there_is_an_end_of_time() -> None:
    """Beyond the year 9999 nothing ticks."""
    assert next_tick("0 0 1 1 *", ZoneInfo("UTC"), ms("9999-06-01T00:00")) is None
    assert next_tick("0 0 1 1 *", ZoneInfo("UTC"), 2**62) is None


@pytest.mark.parametrize("cron", ["* * * * *", "0 0 1 1 *", "* * * 1 *", "30 2 * * *"])
def test_the_newest_tick(cron: str) -> None:
    """The newest tick up to and including the moment is found among those of many years."""
    zone = zone_of("Europe/Berlin")
    first = next_tick(cron, zone, ms("2000-01-01"))
    assert first is not None
    for until in ("2020-02-29T11:31", "2026-10-25T01:30", "2026-10-25T00:30", "2026-03-29T01:00"):
        newest = newest_tick(cron, zone, first, ms(until))
        assert newest <= ms(until)
        following = next_tick(cron, zone, newest)
        assert following is not None
        assert following > ms(until)


def test_the_newest_tick_is_found_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty years of minutes, 26 million ticks, take as many steps as the milliseconds have bits."""
    asked: list[int] = []

    def counted(line: str, zone: ZoneInfo, after_ms: int) -> int | None:
        asked.append(after_ms)
        return next_tick(line, zone, after_ms)

    monkeypatch.setattr(cron_plan, "next_tick", counted)
    until = ms("2050-01-01")
    assert newest_tick("* * * * *", zone_of("UTC"), ms("2000-01-01"), until + 59_999) == until
    assert len(asked) <= 42
    asked.clear()
    assert newest_tick("0 0 1 1 *", zone_of("UTC"), ms("2000-01-01"), ms("2000-12-31")) == ms("2000-01-01")
    assert len(asked) == 1


def test_the_newest_tick_may_be_the_first() -> None:
    """If there is no later one, the known tick is the newest."""
    first = ms("2026-01-01")
    for until in (first - 1, first, first + 1):
        assert newest_tick("0 0 1 1 *", zone_of("UTC"), first, until) == first
    last = ms("9999-01-01")
    assert newest_tick("0 0 1 1 *", zone_of("UTC"), last, ms("9999-12-31")) == last


def test_instants_are_iso_in_utc() -> None:
    """A tick is written to the second, with a Z."""
    assert [instant(moment) for moment in itertools.accumulate([0, 86_400_000, 1_000])] == [
        "1970-01-01T00:00:00Z",
        "1970-01-02T00:00:00Z",
        "1970-01-02T00:00:01Z",
    ]
    assert instant(ms("2026-03-29T01:00")) == "2026-03-29T01:00:00Z"
