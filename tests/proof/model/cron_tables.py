"""When the cron lines of the machine tick, day by day and by hand: nothing here parses a cron line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

_DAY_MS: Final = 86_400_000
_EPOCH: Final = date(1970, 1, 1)
_SPRING, _AUTUMN = date(2024, 3, 31), date(2024, 10, 27)
"""When clocks were changed in Berlin, within the time span of the machine."""


def _berlin_half_past_two(day: date) -> list[int]:
    """Return 02:30 in Berlin in minutes of UTC: the end of the gap if it does not exist, the first of two."""
    if day == _SPRING:
        return [60]
    return [30] if _SPRING < day <= _AUTUMN else [90]


TABLES: Final[dict[tuple[str, str], Callable[[date], list[int]]]] = {
    ("*/15 * * * *", "UTC"): lambda _day: list(range(0, 1440, 15)),
    ("0 * * * *", "UTC"): lambda _day: list(range(0, 1440, 60)),
    ("30 6 * * *", "UTC"): lambda _day: [390],
    ("5 4 * * 1", "UTC"): lambda day: [245] if day.isoweekday() == 1 else [],
    ("0 0 1 * *", "UTC"): lambda day: [0] if day.day == 1 else [],
    ("30 2 * * *", "Europe/Berlin"): _berlin_half_past_two,
}
"""For each line and zone, the minutes of a day (in UTC) at which it ticks."""


def ticks_after(line: tuple[str, str], after_ms: int) -> Iterator[int]:
    """Yield the ticks after a moment."""
    day = _EPOCH + timedelta(days=after_ms // _DAY_MS)
    while True:
        for tick in _of_day(line, day):
            if tick > after_ms:
                yield tick
        day += timedelta(days=1)


def newest_tick(line: tuple[str, str], until_ms: int) -> int:
    """Return the newest tick up to a moment."""
    day = _EPOCH + timedelta(days=until_ms // _DAY_MS)
    while True:
        found = [tick for tick in _of_day(line, day) if tick <= until_ms]
        if found:
            return found[-1]
        day -= timedelta(days=1)


def written(tick_ms: int) -> str:
    """Return a tick as the text that its occurrence carries."""
    return datetime.fromtimestamp(tick_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _of_day(line: tuple[str, str], day: date) -> list[int]:
    start = (day - _EPOCH).days * _DAY_MS
    return [start + minute * 60_000 for minute in TABLES[line](day)]
