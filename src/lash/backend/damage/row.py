"""The rows that are read for damage, by the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

import msgspec

from lash.base.shapes import convert
from lash.errors import CorruptData

T = TypeVar("T")

Columns: TypeAlias = Mapping[str, int | str | bytes | None]
"""A stored row by the names of its columns; a boolean is 0 or 1."""


def shaped(shape: type[T], row: Columns, **others: object) -> T:
    """Return the row in a shape of the other rules, with values of columns that it takes from other tables."""
    names: tuple[str, ...] = getattr(shape, "__struct_fields__", ())
    values = [others[name] if name in others else row[name] for name in names if name in others or name in row]
    try:
        return convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise CorruptData(f"a column cannot be read: {error}") from None


def text(row: Columns, column: str) -> str:
    """Return the text of a column, or raise CorruptData."""
    value = row[column]
    if not isinstance(value, str):
        raise CorruptData(f"column {column} is not a text")
    return value


def require_same(what: str, stored: object, expected: object) -> None:
    """Raise CorruptData if a stored value is not the one that the rest of the row means."""
    if stored != expected:
        raise CorruptData(f"{what} does not match the rest of the row")
