"""The builtin functions as the linker sees them: how many arguments they take, and what they return."""

from __future__ import annotations

from typing import Final, NamedTuple

from lash.lang.syntax.types import ANY, BOOL, FLOAT, INT, STR, ListType, Type
from lash.lang.values.builtins import BUILTINS

_LIST: Final = ListType(ANY)


class BuiltinSignature(NamedTuple):
    """How many arguments a builtin takes, and the type of its result. ``most`` is None if there is no limit."""

    least: int
    most: int | None
    result: Type


_RESULTS: Final[dict[str, Type]] = {
    "len": INT,
    "empty": BOOL,
    "keys": _LIST,
    "values": _LIST,
    "contains": BOOL,
    "starts_with": BOOL,
    "ends_with": BOOL,
    "trim": STR,
    "split": _LIST,
    "join": STR,
    "grep_text": _LIST,
    "range": ListType(INT),
    "ceil_div": INT,
    "floor_div": INT,
    "push": _LIST,
    "to_string": STR,
    "to_int": INT,
    "to_float": FLOAT,
    "format": STR,
}
"""The types of results that are always the same."""

SIGNATURES: Final = {
    name: BuiltinSignature(each.least, each.most, _RESULTS.get(name, ANY)) for name, each in BUILTINS.items()
}
"""Every builtin by name."""
