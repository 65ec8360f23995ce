"""The memory of stored items."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage

from lash.adapters.langgraph.items import KnownList


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
    assert _steps(lambda: short.count_unchanged(short.values)) == _steps(lambda: long.count_unchanged(long.values))
    assert _steps(short.handed_out) == _steps(long.handed_out)
    assert long.handed_out() is long


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


def test_a_changed_object_ends_the_known_start() -> None:
    """Also if only the content of a field has changed."""
    known = _known(6)
    changed: Any = known.values[3]
    changed.response_metadata["model"] = "m"
    assert known.count_unchanged(list(known.values)) == 3
