"""Values of programs: immutable, measured when they are made, and compared by content.

Each container knows its weight, about the bytes of it as a tree, and its depth. So no operation has to walk a value to
know that it is too large: a list that contains another one twice weighs twice as much, whether the memory is shared or
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias, Union

from lash.lang.values.fault import limit_error

MAX_TEXT: Final = 1_000_000
"""The most characters of one string."""
MAX_ITEMS: Final = 1_000_000
"""The most items of a list and fields of a record; the longest range."""
MAX_WEIGHT: Final = 16 * 1024 * 1024
"""The most bytes of one value: it is stored as JSON in one row, with every record of it."""
MAX_DEPTH: Final = 64
"""The deepest nesting of a value; stored JSON has at most 100 levels, some of which the storage itself uses."""
_SCALAR: Final = 8
_CONTAINER: Final = 16


class List:
    """A list. Its items never change; an assignment to one of them makes another list."""

    __slots__ = ("depth", "items", "weight")

    def __init__(self, items: tuple[Value, ...], weight: int, depth: int) -> None:
        self.items = items
        self.weight = weight
        self.depth = depth

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, List) or self.weight != other.weight or len(self.items) != len(other.items):
            return False
        return all(equal(mine, theirs) for mine, theirs in zip(self.items, other.items, strict=True))

    def __hash__(self) -> int:
        return hash((List, len(self.items), self.weight))

    def __repr__(self) -> str:
        return f"List({list(self.items)!r})"


class Record:
    """A record: fields in the order in which they were set. It never changes."""

    __slots__ = ("depth", "fields", "weight")

    def __init__(self, fields: Mapping[str, Value], weight: int, depth: int) -> None:
        self.fields = fields
        self.weight = weight
        self.depth = depth

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or self.weight != other.weight or len(self.fields) != len(other.fields):
            return False
        return all(key in other.fields and equal(item, other.fields[key]) for key, item in self.fields.items())

    def __hash__(self) -> int:
        return hash((Record, len(self.fields), self.weight))

    def __repr__(self) -> str:
        return f"Record({dict(self.fields)!r})"


class Resource:
    """An authority: a module of the host. Only the host makes one, never JSON."""

    __slots__ = ("alias", "resource_type")

    def __init__(self, resource_type: str, alias: str) -> None:
        self.resource_type = resource_type
        self.alias = alias

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Resource):
            return False
        return (self.resource_type, self.alias) == (other.resource_type, other.alias)

    def __hash__(self) -> int:
        return hash((self.resource_type, self.alias))

    def __repr__(self) -> str:
        return f"Resource({self.resource_type!r}, {self.alias!r})"


Value: TypeAlias = Union[None, bool, float, str, List, Record, Resource]  # noqa: UP007 (List is defined above it)
"""Null, a boolean, a number (always a double), a string, a list, a record, or an authority."""


def weight(value: Value) -> int:
    """Return about how many bytes a value has."""
    if isinstance(value, str):
        return _SCALAR + len(value)
    return value.weight if isinstance(value, List | Record) else _SCALAR


def depth(value: Value) -> int:
    """Return how deep a value is nested; 0 for scalars."""
    return value.depth if isinstance(value, List | Record) else 0


def make_list(items: Iterable[Value]) -> List:
    """Return a list; raise Fault if it exceeds a limit."""
    builder = ListBuilder()
    for item in items:
        builder.add(item)
    return builder.done()


def make_record(fields: Mapping[str, Value]) -> Record:
    """Return a record; raise Fault if it exceeds a limit. The caller does not change the fields later."""
    if len(fields) > MAX_ITEMS:
        raise limit_error(f"a record has at most {MAX_ITEMS:,} fields")
    total, deepest = _CONTAINER, 0
    for key, item in fields.items():
        total += _SCALAR + len(key) + weight(item)
        deepest = max(deepest, depth(item))
    _check_size("record", total, deepest + 1)
    return Record(fields, total, deepest + 1)


def make_text(text: str) -> str:
    """Return the text; raise Fault if it is too long."""
    check_length(len(text))
    return text


def check_length(length: int) -> None:
    """Raise Fault if no string may have this length."""
    if length > MAX_TEXT:
        raise limit_error(f"a string has at most {MAX_TEXT:,} characters, this one would have {length:,}")


class ListBuilder:
    """Collects the items of a list, and stops at the first that exceeds a limit."""

    def __init__(self, items: Iterable[Value] = ()) -> None:
        self.items: list[Value] = []
        self._weight = _CONTAINER
        self._depth = 0
        for item in items:
            self.add(item)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.items)

    @property
    def weight(self) -> int:
        """About how many bytes the list has so far."""
        return self._weight

    def add(self, item: Value) -> None:
        """Add an item; raise Fault if the list exceeds a limit."""
        if len(self.items) >= MAX_ITEMS:
            raise limit_error(f"a list has at most {MAX_ITEMS:,} items")
        self._weight += weight(item)
        self._depth = max(self._depth, depth(item))
        _check_size("list", self._weight, self._depth + 1)
        self.items.append(item)

    def done(self) -> List:
        """Return the list."""
        return List(tuple(self.items), self._weight, self._depth + 1)


def _check_size(what: str, total: int, deepest: int) -> None:
    if total > MAX_WEIGHT:
        raise limit_error(f"a {what} has at most {MAX_WEIGHT:,} bytes, with everything in it")
    if deepest > MAX_DEPTH:
        raise limit_error(f"a {what} is nested at most {MAX_DEPTH} levels deep")


def kind(value: Value) -> str:
    """Return what a value is, as error messages name it."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case float():
            return "number"
        case str():
            return "string"
        case List():
            return "list"
        case Record():
            return "record"
    return f"{value.resource_type} authority"


def truthy(value: Value) -> bool:
    """Return False for null, false, 0, NaN and the empty string; empty lists and records are true."""
    if isinstance(value, float):
        # NaN differs from itself.
        return value != 0 and value == value  # noqa: PLR0124
    return bool(value) if isinstance(value, bool | str) else value is not None


def equal(left: Value, right: Value) -> bool:
    """Return whether two values are of one kind and have the same content; the order of fields does not count."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return type(left) is type(right) and left == right
