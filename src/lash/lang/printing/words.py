"""Writes names, strings and numbers so that the lexer reads the same ones."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def string_text(value: str) -> str:
    """Return a string literal in double quotes."""
    return f'"{value.translate(_ESCAPES)}"'


def key_text(key: str) -> str:
    """Return a key of a record or a field: bare if it is a name or a keyword, else as a string."""
    return key if _NAME.fullmatch(key) else string_text(key)


def number_text(value: float) -> str:
    """Return a number without an exponent; whole numbers have no point."""
    if value.is_integer():
        return str(int(value))
    return format(Decimal(repr(value)), "f")
