"""Values that cross the border of a sandbox."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from lash.model.value import JSON

_DEEPEST: Final = 100
"""How deep values may be nested; JSON of a storage has the same bound."""
_MOST_VALUES: Final = 200_000
"""How many values one may contain; a list that contains a list twice, and so on, is small only in the sandbox."""
_MOST_CHARS: Final = 16 * 1024 * 1024
"""How much text one may contain; one text may be in it many times."""


def plain(value: object, what: str, *, levels: int = _DEEPEST) -> JSON:
    """Return a value of a sandbox as JSON: tuples become lists, times and decimals text.

    Raises TypeError if JSON cannot carry it, or if it is too deep or too large.
    """
    return _Copy(what).of(value, levels)


class _Copy:
    """Copies one value, within bounds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._values = 0
        self._chars = 0

    def of(self, value: object, levels: int) -> JSON:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise TypeError(f"{self._what} contains more than {_MOST_VALUES:,} values")
        if levels < 0:
            raise TypeError(f"{self._what} is nested too deep")
        if isinstance(value, list | tuple):
            return [self.of(each, levels - 1) for each in value]
        if isinstance(value, dict):
            return {self._text(self._key(key)): self.of(each, levels - 1) for key, each in value.items()}
        return self._text(value) if isinstance(value, str) else self._single(value)

    def _single(self, value: object) -> JSON:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise TypeError(f"{self._what} is {value}, which JSON cannot carry")
            return value
        if isinstance(value, datetime | date):
            return value.isoformat()
        if isinstance(value, Decimal):
            return str(value)
        raise TypeError(f"{self._what} is of type {type(value).__name__}; use text, numbers, lists and dicts")

    def _text(self, text: str) -> str:
        self._chars += len(text)
        if self._chars > _MOST_CHARS:
            raise TypeError(f"{self._what} contains more than {_MOST_CHARS:,} characters")
        return text

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise TypeError(f"{self._what} has the key {key!r:.80}; the keys of JSON are text")
        return key
