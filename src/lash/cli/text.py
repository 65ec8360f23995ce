"""Formats values for people and for programs."""

from __future__ import annotations

import base64
import enum
import time
import unicodedata
from datetime import UTC, datetime
from typing import Final

UNITS: Final = (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_KIBI: Final = 1024
_SHORTER_UNIT_BELOW: Final = 2


def plain(value: object) -> object:
    """Return a value as plain JSON with every field, defaults included."""
    # Imported here so that help and completion stay fast.
    import msgspec

    if isinstance(value, msgspec.Struct):
        config = type(value).__struct_config__
        fields: dict[str, object] = {} if config.tag_field is None else {config.tag_field: config.tag}
        given = {name: getattr(value, name) for name in value.__struct_fields__}
        return fields | {name: plain(each) for name, each in given.items() if each is not msgspec.UNSET}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(str(plain(each)) for each in value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, enum.Enum):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def _columns(letter: str) -> int:
    # Marks, joiners, and the vowels and finals of Korean syllables are drawn into the letter before them.
    if unicodedata.category(letter) in ("Mn", "Me", "Cf") or _is_inner_jamo(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _is_inner_jamo(letter: str) -> bool:
    return "\u1160" <= letter <= "\u11ff" or "\ud7b0" <= letter <= "\ud7fb"


def shortened(text: str, width: int) -> str:
    """Return a text of at most this many columns, with an ellipsis if it was cut."""
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for letter in text:
        used += _columns(letter)
        if used > width - 1:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def age(then_ms: int | None, now_ms: int | None = None) -> str:
    """Return the age of a time, or, with a plus sign, how far in the future it is.

    An age is rounded down. A time in the future is rounded to the nearest, because what was due in three days a moment
    ago is due in three days.
    """
    if then_ms is None:
        return "-"
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if then_ms <= now + 999:
        return _duration(max(now - then_ms, 0) // 1_000)
    seconds = (then_ms - now + 500) // 1_000
    shown = _precision(seconds)
    return "+" + _duration((seconds + shown // 2) // shown * shown)


def _precision(seconds: int) -> int:
    """Return the size of the smallest unit that a duration is shown with."""
    for index, (_, size) in enumerate(UNITS[:-1]):
        if seconds >= _SHORTER_UNIT_BELOW * size:
            return size
        if seconds >= size:
            return UNITS[index + 1][1]
    return 1


def _duration(seconds: int) -> str:
    for index, (unit, size) in enumerate(UNITS):
        count = seconds // size
        if count >= _SHORTER_UNIT_BELOW or size == 1:
            return f"{count}{unit}"
        if count:
            # 1d5h says more than 1d, and 29h would be harder to read.
            smaller_unit, smaller_size = UNITS[index + 1]
            rest = (seconds - count * size) // smaller_size
            return f"{count}{unit}{rest}{smaller_unit}" if rest else f"{count}{unit}"
    return "0s"


def moment(at_ms: int) -> str:
    """Return a time in UTC, to the millisecond; outside the calendar as milliseconds since 1970."""
    try:
        at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1_000:03}Z"


def clock_time() -> str:
    """Return the time of day, as in 13:05:09."""
    return time.strftime("%H:%M:%S")


def size(count: int | None) -> str:
    """Return a number of bytes for people."""
    if count is None:
        return "-"
    amount: float = count
    for unit in _SIZES:
        if amount < _KIBI or unit == _SIZES[-1]:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIBI
    return f"{count} B"


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Return a count with its noun: ``1 session``, ``2 sessions``, ``3 processes``."""
    ending = "es" if noun.endswith(("s", "ch")) else "s"
    return f"{count:,} {noun if count == 1 else nouns or noun + ending}"
