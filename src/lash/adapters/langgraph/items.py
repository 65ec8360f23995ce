"""Items of list channels that this process has stored or read, so that a long list is not encoded and decoded again.

LangGraph passes the whole list at every checkpoint. Of an unchanged item it passes the same object, which is found here
by identity. Nodes of a graph may change objects in place: an object counts as unchanged only if its fields are what
they were, and each reader gets objects of its own.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})


class Item:
    """A stored item: the object that was passed in or handed out, and its fields at that time.

    ``fields`` is None for an object that cannot change, such as a string.
    """

    __slots__ = ("fields", "node_id", "value")

    def __init__(self, node_id: str, value: object, fields: dict[str, object] | None) -> None:
        self.node_id = node_id
        self.value = value
        self.fields = fields

    def for_reader(self) -> Item:
        """Return the same item with an object that no other code has; it must be unchanged.

        An object that only this item refers to is handed out as it is, and any other is copied.
        """
        if self.fields is None or self.count_references() == _ALONE:
            return self
        value = copy.copy(self.value)
        for name, field in self.fields.items():
            if type(field) not in _ATOMS:
                vars(value)[name] = _copied(field)
        return Item(self.node_id, value, self.fields)

    def count_references(self) -> int:
        return sys.getrefcount(self.value)


def _references_of_one_owner() -> int | None:
    """Return what `Item.count_references` returns if no other code has the object; None if counts are not exact."""
    is_exact = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
    return Item("", object(), {}).count_references() if is_exact else None


_ALONE: Final = _references_of_one_owner()


class ItemLists:
    """The last list of each channel of a thread."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str], list[Item]] = {}

    def known_prefix(self, namespace: str, channel: str, values: list[object]) -> list[Item]:
        """Return the items of the longest start of a list whose objects are known and unchanged."""
        items = self._lists.get((namespace, channel), [])
        return items[: _count_unchanged(items, values)]

    def keep(self, namespace: str, channel: str, items: list[Item]) -> None:
        """Remember a list that is stored, as far as its items can be compared."""
        self._lists[namespace, channel] = items

    def read(self, namespace: str, channel: str, leaf: str, length: int) -> list[object] | None:
        """Return the values of a list for a reader; None if they must be read from the storage."""
        items = self._lists.get((namespace, channel), [])
        if len(items) < length or items[length - 1].node_id != leaf:
            return None
        items = items[:length]
        if _count_unchanged(items, [item.value for item in items]) < length:
            return None
        handed_out = [item.for_reader() for item in items]
        self._lists[namespace, channel] = handed_out
        return [item.value for item in handed_out]


def _count_unchanged(items: Sequence[Item], values: Sequence[object]) -> int:
    """Return how many objects at the start of a list are the known ones, with the fields that they had."""
    count = 0
    for item, value in zip(items, values, strict=False):
        fields = item.fields
        if item.value is not value or (fields is not None and vars(value) != fields):
            break
        count += 1
    return count


def comparable(values: Iterable[tuple[str, object]]) -> list[Item]:
    """Return items for the start of a list up to the first object of which a change could not be noticed."""
    items: list[Item] = []
    for node_id, value in values:
        if type(value) in _ATOMS:
            items.append(Item(node_id, value, None))
            continue
        fields = _fields_of(value)
        if fields is None:
            break
        items.append(Item(node_id, value, fields))
    return items


def _fields_of(value: object) -> dict[str, object] | None:
    """Return the fields of a model of plain JSON, such as a message of LangChain; None for any other object."""
    if not hasattr(type(value), "__pydantic_fields__") or getattr(value, "__pydantic_private__", None):
        return None
    if getattr(value, "__pydantic_extra__", None):
        return None
    fields = dict(vars(value))
    for name, field in fields.items():
        if type(field) in _ATOMS:
            continue
        try:
            fields[name] = _copied(field)
        except TypeError:
            return None
    return fields


def _copied(value: object) -> object:
    """Return a copy of plain JSON; raise TypeError for anything else."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    copied = _COPIERS.get(kind)
    if copied is None:
        raise TypeError(kind)
    return copied(value)


_COPIERS: Final[dict[type, Callable[..., object]]] = {
    dict: lambda value: {key: _copied(each) for key, each in value.items()},
    list: lambda value: [_copied(each) for each in value],
}
