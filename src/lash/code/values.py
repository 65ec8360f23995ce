"""Values that cross the border of a sandbox."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from lash.model.value import JSON

_DEEPEST: Final = 100
"""How deep values may be nested; a list that contains itself has no end."""


def plain(value: object, what: str, depth: int = 0) -> JSON:
    """Return a value of a sandbox as JSON: tuples become lists, times and decimals text. Raises TypeError."""
    if depth > _DEEPEST:
        raise TypeError(f"{what} is nested more than {_DEEPEST} levels deep")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{what} is {value}, which JSON cannot carry")
        return value
    if isinstance(value, list | tuple):
        return [plain(each, what, depth + 1) for each in value]
    if isinstance(value, dict):
        return {_key(key, what): plain(each, what, depth + 1) for key, each in value.items()}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{what} is of type {type(value).__name__}; use text, numbers, lists and dicts")


def _key(key: object, what: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{what} has the key {key!r:.80}; the keys of JSON are text")
    return key
