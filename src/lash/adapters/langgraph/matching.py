"""Which items and namespaces of a store an operation asks for, and how similar they are to a query."""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langgraph.store.base import MatchCondition

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def matches_filter(value: Mapping[str, object], wanted: Mapping[str, object] | None) -> bool:
    """Return whether an item has the wanted fields; an operator such as ``$gt`` compares, plain values are equal.

    A name with dots that the item does not have is a path into nested objects.
    """
    return all(_matches(_field(value, name), each) for name, each in (wanted or {}).items())


def _field(value: Mapping[str, object], name: str) -> object:
    if name in value or "." not in name:
        return value.get(name)
    found: object = value
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _matches(value: object, wanted: object) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compare(value, str(name), each) for name, each in wanted.items())
        return isinstance(value, Mapping) and all(_matches(value.get(name), each) for name, each in wanted.items())
    if isinstance(wanted, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(wanted):
            return False
        return all(_matches(one, other) for one, other in zip(value, wanted, strict=True))
    return value == wanted


def _compare(value: object, name: str, wanted: object) -> bool:
    if name == "$eq":
        return value == wanted
    if name == "$ne":
        return value != wanted
    if name not in _ORDER:
        raise ValueError(f"unknown operator {name!r}; use $eq, $ne, $gt, $gte, $lt or $lte")
    if not isinstance(value, str | int | float) or not isinstance(wanted, str | int | float):
        return False
    try:
        return _ORDER[name](float(value), float(wanted))
    except ValueError:
        # Dates and other texts have the order of texts; a text and a number have none.
        return isinstance(value, str) and isinstance(wanted, str) and _ORDER[name](value, wanted)


def matches_namespace(namespace: Sequence[str], condition: MatchCondition) -> bool:
    """Return whether a namespace begins or ends with a path, in which ``*`` is any label."""
    path = condition.path
    if len(namespace) < len(path):
        return False
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"unknown match type {condition.match_type!r}; use 'prefix' or 'suffix'")
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors; 0 if one has no length."""
    length = math.hypot(*one) * math.hypot(*other)
    return sum(map(operator.mul, one, other)) / length if length else 0.0


def pack_vector(vector: Sequence[float]) -> bytes:
    return array("f", vector).tobytes()


def unpack_vector(content: bytes) -> array[float]:
    return array("f", content)
