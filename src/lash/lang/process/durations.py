"""Durations and moments as programs write them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from lash.lang.values.convert import shown
from lash.lang.values.fault import value_error
from lash.lang.values.value import Value

_DURATION: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(ms|s|m|h)?\s*", re.ASCII)
_UNITS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0, None: 1.0}
_LONGEST_MS: Final = 100 * 366 * 24 * 3_600_000
"""A hundred years; the calendar of Python ends in the year 9999."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HINT: Final = 'a number is in milliseconds; text has a unit: "500ms", "2s", "5m", "1h"'


def read_duration(value: Value) -> float:
    """Return a duration in seconds, or raise Fault."""
    if isinstance(value, float):
        number = value
    elif isinstance(value, str) and len(value) < 50 and (match := _DURATION.fullmatch(value)):  # noqa: PLR2004
        number = float(match[1]) * _UNITS[match[2]]
    else:
        raise value_error(f"sleep needs a duration, got {shown(value)}", _HINT)
    if not math.isfinite(number) or not 0 <= number <= _LONGEST_MS:
        raise value_error(f"sleep needs a duration of at most a hundred years, got {shown(value)}", _HINT)
    return number / 1_000


def read_moment(value: Value) -> datetime:
    """Return a moment: milliseconds since 1970, or RFC 3339 with a time zone; raise Fault if it is neither."""
    if isinstance(value, float) and math.isfinite(value) and abs(value) <= _LONGEST_MS:
        return _EPOCH + timedelta(milliseconds=value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            return moment
    hint = 'use milliseconds since 1970, or text such as "2026-01-31T08:00:00Z"'
    raise value_error(f"sleep until needs a moment, got {shown(value)}", hint)
