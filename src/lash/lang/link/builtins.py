"""The types that builtins return, as far as the linker knows them."""

from __future__ import annotations

from typing import Final

from lash.lang.syntax.types import ANY, BOOL, FLOAT, INT, STR, ListType, Type

_LIST: Final = ListType(ANY)

RESULTS: Final[dict[str, Type]] = {
    "len": INT,
    "empty": BOOL,
    "keys": ListType(STR),
    "values": _LIST,
    "contains": BOOL,
    "starts_with": BOOL,
    "ends_with": BOOL,
    "trim": STR,
    "split": ListType(STR),
    "join": STR,
    # An index or null: unknown, so that it fits where a number is expected.
    "find": ANY,
    "grep_text": _LIST,
    "slice": ANY,
    "range": ListType(INT),
    "ceil_div": INT,
    "floor_div": INT,
    "push": _LIST,
    "to_string": STR,
    "to_int": INT,
    "to_float": FLOAT,
    "json_parse": ANY,
    "format": STR,
    "validate": ANY,
}
"""The type of the result of each builtin."""
