"""Ticks of cron expressions, by the rules of Debian's cron, daylight saving time included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from lash.base.limits import check_text
from lash.errors import InvalidInput

MAX_CRON_LENGTH: Final = 1_024
"""Longer than any sensible expression; bounds the work of the parser."""
_FIELDS: Final = 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_YEAR_2000_MS: Final = 946_684_800_000
"""A fixed start for the check that an expression ticks, so that its result never depends on the clock."""


def check_cron(cron: object, time_zone: object) -> None:
    """Raise InvalidInput unless the expression ticks, in a time zone that this machine knows."""
    line = check_text("cron", cron, limit=MAX_CRON_LENGTH)
    if len(line.split()) != _FIELDS:
        raise InvalidInput(f"cron line {line!r:.80}: expected five fields: minute, hour, day, month, day of week")
    if next_tick(line, zone_of(time_zone), _YEAR_2000_MS) is None:
        raise InvalidInput(f"cron line {line!r:.80} never ticks")


def zone_of(time_zone: object) -> ZoneInfo:
    """Return the zone of an IANA name, or raise InvalidInput."""
    name = check_text("time_zone", time_zone, limit=255)
    # Zone files with other names differ between machines, or count leap seconds.
    if name[:1].isupper():
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    raise InvalidInput(f"unknown time zone {name!r:.80}; use an IANA name such as Europe/Berlin")


def next_tick(cron: str, zone: ZoneInfo, after_ms: int) -> int | None:
    """Return the first tick after a moment, or None if there is none in 50 years.

    The result depends only on the arguments, so all workers agree on it.
    """
    # Imported here, so that programs without schedules do not pay for it.
    from cronsim import CronSim, CronSimError

    try:
        start = (_EPOCH + after_ms * _MILLISECOND).astimezone(zone)
        for tick in CronSim(cron, start):
            tick_ms = (tick - _EPOCH) // _MILLISECOND
            # When clocks are set back, a fixed hour means the first of the two, which may be over.
            if tick_ms > after_ms:
                return tick_ms
    except CronSimError as error:
        raise InvalidInput(f"cron line {cron!r:.80}: {error}") from error
    except OverflowError:
        # Beyond the year 9999.
        pass
    return None


def newest_tick(cron: str, zone: ZoneInfo, first_ms: int, until_ms: int) -> int:
    """Return the newest tick up to a moment, given an earlier tick; the cost does not grow with the ticks between."""
    # Most often there is no later tick, which the first call shows.
    newest, end, asked = first_ms, until_ms, first_ms
    # Invariant: ``newest`` is a tick, and no tick lies between ``end`` and ``until_ms``.
    while newest < end:
        tick = next_tick(cron, zone, asked)
        if tick is not None and tick <= until_ms:
            newest = tick
        else:
            end = asked
        asked = (newest + end) // 2
    return newest


def instant(tick_ms: int) -> str:
    """Return a tick as text: ISO 8601 in UTC, to the second."""
    return (_EPOCH + tick_ms * _MILLISECOND).strftime("%Y-%m-%dT%H:%M:%SZ")
