"""What a worker has found and not begun yet."""

from __future__ import annotations

import random

import pytest

from lash.runtime.worker.backlog import Backlog
from lash.runtime.worker.slots import Slots


def made(limit: int, ahead: int) -> tuple[Slots[str], Backlog[str]]:
    slots: Slots[str] = Slots(limit, longest_pause_s=1.0)
    return slots, Backlog(slots, ahead)


def test_what_had_no_slot_is_begun_when_one_is_free() -> None:
    """Processes come in the order of the look, each with a slot, and none is given out twice."""
    slots, backlog = made(2, 3)
    assert backlog.wanted() == 5
    backlog.put(["a", "b", "c", "d"], wanted=5)
    assert list(backlog.begin()) == ["a", "b"]
    assert slots.names() == ("a", "b")
    assert (backlog.wanted(), backlog.may_be_longer) == (0, False)
    slots.leave("a", in_vain=False, for_good=True)
    assert list(backlog.begin()) == ["c"]
    slots.leave("b", in_vain=False, for_good=True)
    assert list(backlog.begin()) == ["d"]
    slots.leave("c", in_vain=False, for_good=True)
    assert list(backlog.begin()) == []


def test_a_look_replaces_what_an_earlier_one_found() -> None:
    """What was found is of the last look that looked for any; a full worker looks for none, and forgets none."""
    slots, backlog = made(1, 2)
    backlog.put(["a", "b", "c"], wanted=3)
    assert (backlog.may_be_longer, *backlog.begin()) == (True, "a")
    backlog.put([], wanted=0)
    slots.leave("a", in_vain=False, for_good=True)
    assert list(backlog.begin()) == ["b"]
    slots.leave("b", in_vain=False, for_good=True)
    backlog.put([], wanted=backlog.wanted())
    assert (backlog.may_be_longer, *backlog.begin()) == (False,)


def test_what_runs_or_is_avoided_is_left_out() -> None:
    """A look names also what was begun a moment ago and what is to be left alone."""
    slots, backlog = made(4, 4)
    assert slots.take("a")
    slots.avoid("b", 60)
    backlog.put(["a", "b", "c"], wanted=8)
    assert list(backlog.begin()) == ["c"]


def test_who_meets_others_takes_what_was_found_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """After somebody else was faster, the next look, and only that, is taken in another order."""
    slots, backlog = made(3, 0)
    monkeypatch.setattr(random, "shuffle", list.reverse)
    backlog.note_rival()
    backlog.put(["a", "b", "c"], wanted=3)
    assert list(backlog.begin()) == ["c", "b", "a"]
    for name in "abc":
        slots.leave(name, in_vain=False, for_good=True)
    backlog.put(["a", "b", "c"], wanted=3)
    assert list(backlog.begin()) == ["a", "b", "c"]
