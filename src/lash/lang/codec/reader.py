"""Reads plain JSON with checks: stored bytes may be damaged or forged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from lash.errors import CorruptData
from lash.lang.syntax.nodes import MAX_DEPTH
from lash.model.value import JSON

T = TypeVar("T")
Read = Callable[[JSON, int], T]
"""Reads a part of JSON at a depth."""

_MAX_JSON_DEPTH: Final = 3 * MAX_DEPTH
"""Levels of nodes, lists and types together, which bounds recursion while reading."""


def refused(what: str) -> CorruptData:
    return CorruptData(f"expected {what} in a lashlang artifact")


def text(value: JSON, _depth: int = 0) -> str:
    if not isinstance(value, str):
        raise refused("a text")
    return value


def flag(value: JSON, _depth: int = 0) -> bool:
    if not isinstance(value, bool):
        raise refused("true or false")
    return value


def items(value: JSON, read: Read[T], depth: int) -> tuple[T, ...]:
    """Read a list whose items have the same form."""
    if not isinstance(value, list):
        raise refused("a list")
    return tuple(read(item, deeper(depth)) for item in value)


def pairs(value: JSON, read: Read[T], depth: int) -> tuple[tuple[str, T], ...]:
    """Read a list of pairs of a text and a part."""
    return items(value, lambda item, below: _pair(item, read, below), depth)


def _pair(value: JSON, read: Read[T], depth: int) -> tuple[str, T]:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 (a pair)
        raise refused("a pair")
    return text(value[0]), read(value[1], depth)


def fields(value: JSON, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, JSON]:
    """Return an object that has all required fields and no unknown ones."""
    if not isinstance(value, dict) or not set(required) <= value.keys() or value.keys() - {*required, *optional}:
        raise refused(f"an object with {', '.join((*required, *optional))}")
    return value


def tagged(value: JSON) -> tuple[str, JSON]:
    """Return the tag and the operand of a node; the operand of a bare tag is None."""
    if isinstance(value, str):
        return value, None
    if not isinstance(value, dict) or len(value) != 1:
        raise refused("an object with one tag")
    return next(iter(value.items()))


def deeper(depth: int) -> int:
    """Return the depth one level below, or raise CorruptData if it is too deep."""
    if depth >= _MAX_JSON_DEPTH:
        raise refused(f"at most {_MAX_JSON_DEPTH} levels")
    return depth + 1
