"""The memory of stored items."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from lash.adapters.langgraph.items import NEWEST, ItemLists, KnownList


def _known(length: int) -> KnownList:
    """Items whose objects nothing else refers to."""
    return KnownList.of((str(place), AIMessage(f"text {place}", id=str(place))) for place in range(length))


def _steps(work: Callable[[], object]) -> int:
    """Return how many functions are called from Python while the work runs."""
    calls = [0]

    def count(_frame: object, event: str, _argument: object) -> None:
        calls[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls[0]


def test_an_unchanged_list_takes_as_many_steps_at_any_length() -> None:
    """A list is compared and handed out as a whole, and not item by item."""
    short, long = _known(40), _known(4_000)
    assert _steps(lambda: short.count_same(short.values)) == _steps(lambda: long.count_same(long.values))
    assert _steps(short.count_unchanged) == _steps(long.count_unchanged)
    assert _steps(short.handed_out) == _steps(long.handed_out)
    assert long.handed_out() is long


def test_the_newest_objects_are_compared_alone() -> None:
    """A change of an older object is not looked for, and the steps do not depend on the length."""
    short, long = _known(40), _known(4_000)
    assert _steps(short.count_newest_unchanged) == _steps(long.count_newest_unchanged)
    older: Any = long.values[-NEWEST - 1]
    older.content = "new"
    assert long.count_newest_unchanged() == 4_000
    newest: Any = long.values[-NEWEST]
    newest.response_metadata["model"] = "m"
    assert long.count_newest_unchanged() == 4_000 - NEWEST
    assert long.count_unchanged() == 4_000 - NEWEST - 1


def _kept(length: int) -> tuple[ItemLists, list[Any]]:
    values: list[Any] = [AIMessage(f"text {place}", id=str(place)) for place in range(length)]
    lists = ItemLists()
    items = lists.known((str(place), value) for place, value in enumerate(values))
    lists.keep("", "items", KnownList.of(()), items)
    return lists, values


def test_a_change_between_two_checkpoints_of_a_run_is_handed_on() -> None:
    """A reader gets it, in an object of its own; the next checkpoint stores everything from it on."""
    lists, values = _kept(100)
    assert len(lists.known_prefix("", "items", values, goes_on=True)) == 100
    values[5].content = "changed by a node"
    read: Any = lists.read("", "items", "99", 100)
    assert [each.content for each in read] == [each.content for each in values]
    assert read[5] is not values[5]
    assert len(lists.known_prefix("", "items", read)) == 5


def test_a_change_after_the_end_of_a_run_is_not_handed_on() -> None:
    """The list is read from the storage again."""
    lists, values = _kept(100)
    for goes_on in (True, False):
        assert len(lists.known_prefix("", "items", values, goes_on=goes_on)) == 100
    values[5].content = "changed by a caller"
    assert lists.read("", "items", "99", 100) is None


def test_an_object_that_is_in_use_is_copied() -> None:
    """The copy is equal and shares nothing that can change; the other objects are handed out as they are."""
    known = _known(6)
    held: Any = known.values[2]
    held.additional_kwargs["a"] = [1]
    known.fields[2] = {**vars(held), "additional_kwargs": {"a": [1]}}
    handed_out = known.handed_out()
    copied: Any = handed_out.values[2]
    assert copied == held
    assert copied is not held
    assert copied.additional_kwargs["a"] is not held.additional_kwargs["a"]
    assert [one is other for one, other in zip(known.values, handed_out.values, strict=True)].count(False) == 1


_CHANGES: dict[str, Callable[[Any], object]] = {
    "a field": lambda message: setattr(message, "content", "new"),
    "the content of a field": lambda message: message.response_metadata.update(model="m"),
    "a list in a field": lambda message: message.tool_calls.append({"name": "f", "args": {}, "id": "1"}),
    "a further field": lambda message: setattr(message, "further", 1),
    "a missing field": lambda message: vars(message).pop("name"),
    "all fields": lambda message: object.__setattr__(message, "__dict__", {**vars(message), "content": "new"}),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_a_changed_object_ends_the_known_start(change: Callable[[Any], object]) -> None:
    """Whatever was changed in it, and wherever it is in the list."""
    known = _known(300)
    change(known.values[3])
    assert known.count_unchanged() == 3


def test_an_object_of_another_class_is_not_trusted() -> None:
    """Nothing is known of a list if an object is another one with equal fields."""
    known = _known(6)
    object.__setattr__(known.values[3], "__class__", HumanMessage)
    assert known.count_unchanged() == 0


def test_a_dict_of_fields_that_was_replaced_is_compared_too() -> None:
    """A change of the dict that took the place of the known one is found."""
    known = _known(6)
    changed: Any = known.values[3]
    object.__setattr__(changed, "__dict__", dict(vars(changed)))
    assert known.count_unchanged() == 6
    changed.content = "new"
    assert known.count_unchanged() == 3


def test_an_object_with_an_unknown_type_in_it_is_not_known() -> None:
    """Also if it is empty: a change of it would not be found."""
    items = [("1", AIMessage("text")), ("2", AIMessage("text", response_metadata={"seen": set()}))]
    empty = AIMessage("text")
    object.__setattr__(empty, "response_metadata", set())
    assert len(KnownList.of(items)) == 1
    assert len(KnownList.of([("1", empty)])) == 0


def test_copies_share_no_empty_field() -> None:
    """An empty field inside a field is copied too."""
    known = KnownList.of([("1", AIMessage("text", additional_kwargs={"a": {"b": []}}))])
    held = known.values[0]
    copied: Any = known.handed_out().values[0]
    copied.additional_kwargs["a"]["b"].append(1)
    copied.response_metadata["model"] = "m"
    again: Any = known.handed_out().values[0]
    assert again == held == AIMessage("text", additional_kwargs={"a": {"b": []}})


def test_frozen_items_are_shared_and_not_looked_at() -> None:
    """Readers get the objects themselves, of any type; a list of any length takes as many steps."""

    def kept(length: int) -> tuple[ItemLists, list[object]]:
        values: list[object] = [{"text": place} for place in range(length)]
        lists = ItemLists(are_frozen=True)
        items = lists.known((str(place), value) for place, value in enumerate(values))
        lists.keep("", "items", KnownList.of(()), items)
        return lists, values

    lists, values = kept(40)
    read = lists.read("", "items", "39", 40)
    assert read is not None
    assert [one is other for one, other in zip(read, values, strict=True)] == [True] * 40
    assert len(lists.known_prefix("", "items", [*values, {}])) == 40
    longer, more = kept(4_000)
    assert _steps(lambda: lists.read("", "items", "39", 40)) == _steps(lambda: longer.read("", "items", "3999", 4_000))
    assert _steps(lambda: lists.known_prefix("", "items", values)) == _steps(
        lambda: longer.known_prefix("", "items", more)
    )
