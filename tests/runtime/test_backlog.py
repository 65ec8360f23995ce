"""Processes that a worker has found and not started yet."""

from __future__ import annotations

import random

import pytest

from lash.runtime.worker.backlog import Backlog
from lash.runtime.worker.slots import Slots


def made(limit: int, ahead: int) -> tuple[Slots[str], Backlog[str]]:
    slots: Slots[str] = Slots(limit, longest_pause_s=1.0)
    return slots, Backlog(slots, ahead)


def test_what_had_no_slot_starts_when_one_is_free() -> None:
    """Processes come in the order of the poll, each with a slot, and none is given out twice."""
    slots, backlog = made(2, 3)
    assert backlog.wanted() == 5
    backlog.put(["a", "b", "c", "d"], wanted=5)
    assert list(backlog.take()) == ["a", "b"]
    assert slots.names() == ("a", "b")
    assert (backlog.wanted(), backlog.may_be_longer) == (0, False)
    slots.leave("a", in_vain=False, for_good=True)
    assert list(backlog.take()) == ["c"]
    slots.leave("b", in_vain=False, for_good=True)
    assert list(backlog.take()) == ["d"]
    slots.leave("c", in_vain=False, for_good=True)
    assert list(backlog.take()) == []


def test_a_poll_replaces_what_an_earlier_one_found() -> None:
    """The backlog comes from the last poll that asked for processes; a full worker asks for none and keeps it."""
    slots, backlog = made(1, 2)
    backlog.put(["a", "b", "c"], wanted=3)
    assert (backlog.may_be_longer, *backlog.take()) == (True, "a")
    backlog.put([], wanted=0)
    slots.leave("a", in_vain=False, for_good=True)
    assert list(backlog.take()) == ["b"]
    slots.leave("b", in_vain=False, for_good=True)
    backlog.put([], wanted=backlog.wanted())
    assert (backlog.may_be_longer, *backlog.take()) == (False,)


def test_what_runs_or_is_avoided_is_left_out() -> None:
    """A poll also lists processes that were just started or are avoided; the backlog leaves them out."""
    slots, backlog = made(4, 4)
    assert slots.take("a")
    slots.avoid("b", 60)
    backlog.put(["a", "b", "c"], wanted=8)
    assert list(backlog.take()) == ["c"]


def test_after_a_lost_claim_the_order_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a claim was lost to another worker, only the results of the next poll are shuffled."""
    slots, backlog = made(3, 0)
    monkeypatch.setattr(random, "shuffle", list.reverse)
    backlog.note_lost_claim()
    backlog.put(["a", "b", "c"], wanted=3)
    assert list(backlog.take()) == ["c", "b", "a"]
    for name in "abc":
        slots.leave(name, in_vain=False, for_good=True)
    backlog.put(["a", "b", "c"], wanted=3)
    assert list(backlog.take()) == ["a", "b", "c"]
