"""Frames of a machine, and their form as plain JSON.

A frame names its node by the path, which is part of the protocol of the language, and never by a position in compiled
code. So a state that one version of lash stored can be read by the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

from lash.errors import CorruptData
from lash.lang.machine.code import Code, Op
from lash.lang.values.fault import Fault
from lash.lang.values.value import List, ListBuilder, Record, Resource, Value, make_list, make_record, weight
from lash.model.value import JSON

_LIST: Final = 0
_RECORD: Final = 1
_NUMBER: Final = 2
_RESOURCE: Final = 3


@dataclass(slots=True)
class Loop:
    """One ``for`` of a comprehension: its clause, the items, the place of the next, and the name's earlier value."""

    clause: int
    items: List
    index: int
    saved: list[Value]


@dataclass(slots=True)
class Frame:
    """One node that is being evaluated."""

    op: Op
    at: int = 0
    """How far the node is; each kind of node counts in its own way."""
    values: list[Value] = field(default_factory=list)
    """What its children returned."""
    saved: list[Value] | None = None
    """In a loop: the earlier value of its variable, or nothing if there was none."""
    loops: list[Loop] = field(default_factory=list)
    """In a comprehension: its ``for`` clauses that are being evaluated."""
    built: ListBuilder | None = None
    """In a comprehension: the items so far."""
    held: int = 0
    """About how many bytes its values, loops and items have."""


def held_by(frame: Frame) -> int:
    """Return about how many bytes the parts of a frame have."""
    parts = sum(map(weight, frame.values)) + sum(weight(loop.items) for loop in frame.loops)
    return parts + (0 if frame.built is None else frame.built.weight)


def frame_to_json(frame: Frame) -> JSON:
    plain: dict[str, Any] = {"path": frame.op.path}
    if frame.at:
        plain["at"] = frame.at
    if frame.values:
        plain["values"] = [value_to_json(value) for value in frame.values]
    if frame.saved is not None:
        plain["saved"] = [value_to_json(value) for value in frame.saved]
    if frame.built is not None:
        plain["built"] = [value_to_json(value) for value in frame.built]
        plain["loops"] = [_loop_to_json(loop) for loop in frame.loops]
    return plain


def frame_from_json(plain: dict[str, Any], code: Code) -> Frame:
    saved, built = plain.get("saved"), plain.get("built")
    return Frame(
        op=code.op(plain["path"]),
        at=plain.get("at", 0),
        values=[value_from_json(value) for value in plain.get("values", ())],
        saved=None if saved is None else [value_from_json(value) for value in saved],
        loops=[_loop_from_json(loop) for loop in plain.get("loops", ())],
        built=None if built is None else ListBuilder(value_from_json(value) for value in built),
    )


def _loop_to_json(loop: Loop) -> JSON:
    return [loop.clause, value_to_json(loop.items), loop.index, [value_to_json(value) for value in loop.saved]]


def _loop_from_json(plain: list[Any]) -> Loop:
    clause, items, index, saved = plain
    sequence = value_from_json(items)
    if not isinstance(sequence, List):
        raise CorruptData("the items of a loop are not a list")
    return Loop(clause, sequence, index, [value_from_json(value) for value in saved])


def value_to_json(value: Value) -> JSON:
    """Return the exact form of a value: fields keep their order, and authorities and NaN stay what they are."""
    match value:
        case float():
            return value if math.isfinite(value) else [_NUMBER, repr(value)]
        case List():
            return [_LIST, *(value_to_json(item) for item in value.items)]
        case Record():
            pairs = ((key, value_to_json(item)) for key, item in value.fields.items())
            return [_RECORD, *(each for pair in pairs for each in pair)]
        case Resource():
            return [_RESOURCE, value.resource_type, value.alias]
    return value


def value_from_json(plain: JSON) -> Value:
    """Return the value of an exact form, or raise CorruptData."""
    match plain:
        case None | bool() | str():
            return plain
        case int() | float():
            return float(plain)
        case [0, *items]:
            return make_list(value_from_json(item) for item in items)
        case [1, *parts]:
            keys = parts[::2]
            return make_record(dict(zip(keys, map(value_from_json, parts[1::2]), strict=True)))
        case [2, str(text)]:
            return float(text)
        case [3, str(resource_type), str(alias)]:
            return Resource(resource_type, alias)
    raise CorruptData(f"expected the stored form of a value, got {plain!r:.80}")


def variables_from_json(plain: Any) -> dict[str, Value]:  # noqa: ANN401 (plain JSON)
    """Return stored variables, or raise CorruptData."""
    try:
        return {name: value_from_json(value) for name, value in plain}
    except (TypeError, ValueError, Fault) as error:
        raise CorruptData(f"stored variables cannot be read: {error}") from error
