"""The builtin functions as the linker sees them: how many arguments they take, and what they return."""

from __future__ import annotations

from typing import Final, NamedTuple

from lash.lang.syntax.types import ANY, BOOL, FLOAT, INT, STR, ListType, Type

_LIST: Final = ListType(ANY)


class BuiltinSignature(NamedTuple):
    """How many arguments a builtin takes, and the type of its result. ``most`` is None if there is no limit."""

    least: int
    most: int | None
    result: Type


SIGNATURES: Final = {
    "len": BuiltinSignature(1, 1, INT),
    "empty": BuiltinSignature(1, 1, BOOL),
    "keys": BuiltinSignature(1, 1, _LIST),
    "values": BuiltinSignature(1, 1, _LIST),
    "contains": BuiltinSignature(2, 2, BOOL),
    "starts_with": BuiltinSignature(2, 2, BOOL),
    "ends_with": BuiltinSignature(2, 2, BOOL),
    "trim": BuiltinSignature(1, 1, STR),
    "split": BuiltinSignature(2, 2, _LIST),
    "join": BuiltinSignature(2, 2, STR),
    "find": BuiltinSignature(2, 3, ANY),
    "grep_text": BuiltinSignature(2, 2, _LIST),
    "slice": BuiltinSignature(3, 3, ANY),
    "range": BuiltinSignature(1, 3, ListType(INT)),
    "ceil_div": BuiltinSignature(2, 2, INT),
    "floor_div": BuiltinSignature(2, 2, INT),
    "push": BuiltinSignature(2, 2, _LIST),
    "to_string": BuiltinSignature(1, 1, STR),
    "to_int": BuiltinSignature(1, 1, INT),
    "to_float": BuiltinSignature(1, 1, FLOAT),
    "json_parse": BuiltinSignature(1, 1, ANY),
    "format": BuiltinSignature(1, None, STR),
    "validate": BuiltinSignature(2, 2, ANY),
}
