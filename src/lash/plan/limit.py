"""Rules of limits: which rates there are, and which moment a reservation gets."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lash.base.limits import check_identifier, check_integer
from lash.errors import InvalidInput
from lash.model.limit import LimitState, Rate, Reservation

MAX_COUNT: Final = 1_000_000
"""The most starts in a period, and at once: an interval has at least a microsecond."""
_PERIODS_MS: Final = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_RATE: Final = re.compile(r"([0-9]{1,7})\s*/\s*([a-z]+)")


class ReservedRow(msgspec.Struct, frozen=True, array_like=True):
    """When a limit is free after a reservation, and the time of the storage."""

    free_at_us: int
    now_ms: int


class LimitRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored limit, and the time of the storage."""

    name: str
    key: str
    interval_us: int
    burst: int
    free_at_us: int
    now_ms: int


def parse_rate(text: object, *, burst: object = 1) -> Rate:
    """Return the rate of a text such as ``60/minute``, or raise InvalidInput."""
    found = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
    period_ms = None if found is None else _PERIODS_MS.get(found[2])
    if found is None or period_ms is None:
        units = ", ".join(_PERIODS_MS)
        raise InvalidInput(f"expected a rate such as '60/minute', got {text!r:.80}; the units are {units}")
    return check_rate(Rate(count=int(found[1]), period_ms=period_ms, burst=check_integer("burst", burst, at_least=1)))


def check_rate(rate: object) -> Rate:
    """Return the rate, or raise InvalidInput."""
    if not isinstance(rate, Rate):
        raise InvalidInput(f"expected a Rate, got {type(rate).__name__}")
    counts = ("the count of a rate", rate.count), ("burst", rate.burst), ("period_ms", rate.period_ms)
    for what, number in counts:
        if check_integer(what, number, at_least=1) > (MAX_COUNT if what != "period_ms" else _PERIODS_MS["day"]):
            raise InvalidInput(f"{what} is too large: {number:,}")
    return rate


def check_name(name: object, key: object) -> tuple[str, str]:
    """Return the name and the key of a limit, which may be empty, or raise InvalidInput."""
    return check_identifier("the name of a limit", name), "" if key == "" else check_identifier(
        "the key of a limit", key
    )


def interval_us(rate: Rate) -> int:
    """Return the microseconds between two starts, rounded up: the rate is never exceeded."""
    return -(-rate.period_ms * 1_000 // rate.count)


def decode_reservation(row: ReservedRow, rate: Rate) -> Reservation:
    """Return the moment of a reservation: a burst before the limit is free, rounded up, and now at the earliest."""
    at_us = row.free_at_us - interval_us(rate) * rate.burst
    return Reservation(at_ms=max(row.now_ms, -(-at_us // 1_000)), now_ms=row.now_ms)


def decode_limit(row: LimitRow) -> LimitState:
    """Return the state of a stored limit."""
    last_us, now_us = row.free_at_us - row.interval_us * row.burst, row.now_ms * 1_000
    next_us = max(now_us, last_us + row.interval_us)
    return LimitState(
        name=row.name,
        key=row.key,
        interval_us=row.interval_us,
        burst=row.burst,
        waiting=max(0, -(-(last_us - now_us) // row.interval_us)),
        next_at_ms=-(-next_us // 1_000),
    )
