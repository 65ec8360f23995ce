"""Generated values of one backend (ids, tokens, cursors, row numbers), under names that are the same on all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar, cast

import msgspec

T = TypeVar("T")

MADE_UP: Final = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}(?![0-9a-f])"
    r"|(?:wake:|process:trigger:|(?<=wait ))[0-9a-f]{64}(?![0-9a-f])"
)
"""Ids and tokens of lash, 32 hex digits in the layout of UUID version 7; and hashes of those, or of row numbers."""
OPAQUE_FIELDS: Final = frozenset(
    {
        ("SessionPage", "next_cursor"),
        ("AttachmentPage", "next_cursor"),
        ("ChangePage", "cursor"),
        ("EventPage", "cursor"),
        ("ProcessRecord", "registration_hash"),
        ("WaitKey", "generation"),
        ("WaitKey", "key_id"),
        ("WaitKey", "text"),
        ("WaitRecord", "key_id"),
    }
)
"""Texts that are opaque to callers, and may differ."""
NUMBER_FIELDS: Final = {("Batch", "seq"): "batch", ("DeadLetter", "place"): "letter"}
"""Row numbers that a database gives out; only their order is promised."""
_SYMBOL: Final = re.compile(r"@\d+@")


class Names:
    """Translates the results of one side into symbols, in order of appearance, and arguments back."""

    def __init__(self) -> None:
        self._symbols: dict[str, str] = {}
        self._real: dict[str, str] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._real_numbers: dict[tuple[str, int], int] = {}

    @property
    def count(self) -> int:
        """The number of symbols so far; a symbol is new if its number is not below an earlier count."""
        return len(self._symbols)

    def symbolic(self, value: T) -> T:
        """Return the value with a symbol in place of everything generated."""
        return _walk(value, self._symbolic_text, self._symbolic_field)

    def own(self, value: T) -> T:
        """Return the value with this side's ids in place of symbols."""
        return _walk(value, self._real_text, self._real_field)

    def own_number(self, kind: str, number: int) -> int:
        """Return this side's row number for a symbolic one; 0 stands for itself."""
        return self._real_numbers.get((kind, number), 0) if number else 0

    def blind(self, text: str) -> str:
        """Return the text with known symbols, and a question mark for anything new."""
        return MADE_UP.sub(lambda found: self._symbols.get(found[0], "?"), text)

    def _symbolic_text(self, text: str) -> str:
        return MADE_UP.sub(lambda found: self._symbol(found[0]), text)

    def _symbol(self, real: str) -> str:
        symbol = self._symbols.get(real)
        if symbol is None:
            symbol = self._symbols[real] = f"@{len(self._symbols)}@"
            self._real[symbol] = real
        return symbol

    def _real_text(self, text: str) -> str:
        return _SYMBOL.sub(lambda found: self._real.get(found[0], found[0]), text)

    def _symbolic_field(self, field: tuple[str, str], value: object) -> object:
        if isinstance(value, int) and field in NUMBER_FIELDS:
            kind = NUMBER_FIELDS[field]
            number = self._numbers.setdefault((kind, value), len(self._numbers) + 1)
            self._real_numbers[kind, number] = value
            return number
        return self._symbol(value) if isinstance(value, str) and field in OPAQUE_FIELDS else value

    def _real_field(self, field: tuple[str, str], value: object) -> object:
        if isinstance(value, int) and field in NUMBER_FIELDS:
            return self.own_number(NUMBER_FIELDS[field], value)
        return value


def symbol_number(symbol: str) -> int:
    """Return the position of a symbol in the order of appearance."""
    return int(symbol.strip("@"))


def _walk(value: T, text: Callable[[str], str], field: Callable[[tuple[str, str], object], object]) -> T:
    return cast("T", _changed(value, text, field))


def _changed(value: object, text: Callable[[str], str], field: Callable[[tuple[str, str], object], object]) -> object:
    if isinstance(value, str):
        # An enumeration is a string too, and never generated.
        return text(value) if type(value) is str else value
    if isinstance(value, msgspec.Struct):
        return _changed_struct(value, text, field)
    if isinstance(value, dict):
        return {_changed(key, text, field): _changed(each, text, field) for key, each in value.items()}
    if isinstance(value, list | tuple | frozenset | set):
        return type(value)(_changed(each, text, field) for each in value)
    return value


def _changed_struct(
    value: msgspec.Struct, text: Callable[[str], str], field: Callable[[tuple[str, str], object], object]
) -> msgspec.Struct:
    kind = type(value).__name__
    changes: dict[str, object] = {}
    for name in value.__struct_fields__:
        before = getattr(value, name)
        after = _changed(field((kind, name), before), text, field)
        if after is not before and after != before:
            changes[name] = after
    return msgspec.structs.replace(value, **changes) if changes else value
