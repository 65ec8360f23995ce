"""Ranges of ids and keys: a page of those with a prefix."""

from __future__ import annotations

from typing import NamedTuple

from lash.base.limits import MAX_IDENTIFIER_LENGTH, check_identifier, check_text, prefix_end


class KeyRange(NamedTuple):
    """Keys from ``first`` up to, but not including, ``end``."""

    first: str
    end: str


def key_range(prefix: object, after: object, *, reverse: bool) -> KeyRange:
    """Return the keys of a page: those with the prefix, after a key in the direction of reading."""
    start = check_text("prefix", prefix, limit=MAX_IDENTIFIER_LENGTH)
    first, end = start, prefix_end(start)
    if after is None:
        return KeyRange(first, end)
    last = check_identifier("after", after)
    # No key has a NUL character, so nothing lies between a key and the same key with a \x01 behind it.
    return KeyRange(first, min(end, last)) if reverse else KeyRange(max(first, last + "\x01"), end)
