"""Rules of choosing queued work: which comes next, which joins it, and why none does."""

import pytest

from lash.model.queue import Boundary, EmptyReason, NothingClaimed, Slot
from lash.plan.queue.claim import (
    CandidateRow,
    QueueFacts,
    choose_command,
    choose_exactly,
    choose_turn_work,
    lanes_at,
    nothing_asked_for,
)


def early(seq: int, merge_key: str | None = None, slot: Slot = Slot.JOIN) -> CandidateRow:
    return CandidateRow(seq, f"b{seq}", "early", slot.value, merge_key)


def late(seq: int, merge_key: str | None = None, slot: Slot = Slot.JOIN) -> CandidateRow:
    return CandidateRow(seq, f"b{seq}", "late", slot.value, merge_key)


def facts(
    *candidates: CandidateRow,
    command: int | None = None,
    late_work: bool = False,
    claimed: bool = False,
    next_ms: int | None = None,
) -> QueueFacts:
    return QueueFacts(list(candidates), command, late_work, claimed, next_ms)


def turn_work(known: QueueFacts, boundary: Boundary = Boundary.IDLE, limit: int = 10) -> list[int] | NothingClaimed:
    return choose_turn_work(known, boundary=boundary, limit=limit)


def test_turn_work_is_taken_from_the_lanes_of_the_boundary() -> None:
    """While a turn runs only early work counts."""
    assert set(lanes_at(Boundary.IDLE)) == {"early", "late"}
    assert lanes_at(Boundary.ACTIVE_TURN_CHECKPOINT) == ("early",)


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        (facts(early(1)), [1]),
        (facts(early(1), early(2)), [1]),
        (facts(early(1, "g"), early(2, "g"), early(3, "g")), [1, 2, 3]),
        (facts(early(1, "g"), early(2, "h"), early(3, "g")), [1]),
        (facts(early(1, "g"), early(2), early(3, "g")), [1]),
        (facts(early(1, "g"), early(3, "g"), late(2, "g")), [1]),
        (facts(late(1, "g"), late(2, "g"), early(3, "g")), [1, 2]),
        (facts(early(4, "g"), late(2, "g")), [2]),
        (facts(early(1, "g", Slot.EXCLUSIVE), early(2, "g")), [1]),
        (facts(early(1, "g"), early(2, "g", Slot.EXCLUSIVE), early(3, "g")), [1]),
        (facts(early(1, "g"), early(3, "g"), command=2), [1]),
        (facts(early(1, "g"), early(2, "g"), command=9), [1, 2]),
        (facts(early(7, "g"), early(9, "g")), [7, 9]),
    ],
)
def test_the_first_batch_takes_along_those_directly_behind_it(known: QueueFacts, chosen: list[int]) -> None:
    """Neighbours join by delivery and merge key; an exclusive batch or one without a key comes alone."""
    assert turn_work(known) == chosen


@pytest.mark.parametrize(("limit", "chosen"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 3])])
def test_a_group_is_as_large_as_allowed(limit: int, chosen: list[int]) -> None:
    """The limit counts batches."""
    assert turn_work(facts(early(1, "g"), early(2, "g"), early(3, "g")), limit=limit) == chosen


@pytest.mark.parametrize(
    ("known", "boundary", "reason"),
    [
        (facts(), Boundary.IDLE, EmptyReason.EMPTY),
        (facts(), Boundary.ACTIVE_TURN_CHECKPOINT, EmptyReason.EMPTY),
        (facts(next_ms=50), Boundary.IDLE, EmptyReason.NOT_YET_AVAILABLE),
        (facts(claimed=True), Boundary.IDLE, EmptyReason.CLAIMED),
        (facts(claimed=True, next_ms=50), Boundary.IDLE, EmptyReason.CLAIMED),
        (facts(late_work=True), Boundary.ACTIVE_TURN_CHECKPOINT, EmptyReason.AFTER_TURN),
        (facts(late_work=True, claimed=True), Boundary.IDLE, EmptyReason.CLAIMED),
        (facts(command=3), Boundary.IDLE, EmptyReason.COMMAND_AT_HEAD),
        (facts(early(4), command=3), Boundary.IDLE, EmptyReason.COMMAND_AT_HEAD),
        (facts(early(4), command=3, late_work=True), Boundary.ACTIVE_TURN_CHECKPOINT, EmptyReason.COMMAND_AT_HEAD),
    ],
)
def test_an_empty_claim_says_why(known: QueueFacts, boundary: Boundary, reason: EmptyReason) -> None:
    """The first reason that applies is given, with the due time of delayed work."""
    expected = NothingClaimed(reason=reason, next_available_at_ms=known.next_available_at_ms)
    assert turn_work(known, boundary) == expected


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        (facts(command=5), [5]),
        (facts(early(6), late(7), command=5), [5]),
        (facts(early(4), command=5), EmptyReason.TURN_WORK_AT_HEAD),
        (facts(early(9), late(4), command=5), EmptyReason.TURN_WORK_AT_HEAD),
        (facts(late(4)), EmptyReason.TURN_WORK_AT_HEAD),
        (facts(), EmptyReason.EMPTY),
        (facts(claimed=True, late_work=True), EmptyReason.CLAIMED),
        (facts(next_ms=8), EmptyReason.NOT_YET_AVAILABLE),
    ],
)
def test_a_command_comes_when_no_turn_work_is_before_it(known: QueueFacts, chosen: list[int] | EmptyReason) -> None:
    """A command is taken alone, from the head of the queue only."""
    if isinstance(chosen, EmptyReason):
        expected = NothingClaimed(reason=chosen, next_available_at_ms=known.next_available_at_ms)
        assert choose_command(known) == expected
    else:
        assert choose_command(known) == chosen


@pytest.mark.parametrize(
    ("known", "batch_ids", "chosen"),
    [
        (facts(early(1, "g"), early(2, "g"), early(3, "g")), ["b1", "b2"], [1, 2]),
        (facts(early(1, "g"), early(2, "g")), ["b2", "b1"], EmptyReason.NOT_AT_HEAD),
        (facts(early(1, "g"), early(2, "g")), ["b2"], EmptyReason.NOT_AT_HEAD),
        (facts(early(1, "g"), early(2, "g")), ["b1", "b2", "b3"], EmptyReason.NOT_AT_HEAD),
        (facts(early(1), early(2)), ["b1", "b2"], EmptyReason.NOT_AT_HEAD),
        (facts(early(1), command=0), ["b1"], EmptyReason.COMMAND_AT_HEAD),
        (facts(), ["b1"], EmptyReason.EMPTY),
        (facts(next_ms=50), ["b1"], EmptyReason.NOT_YET_AVAILABLE),
    ],
)
def test_exact_batches_are_chosen_if_they_come_next(
    known: QueueFacts, batch_ids: list[str], chosen: list[int] | EmptyReason
) -> None:
    """A claim by ids never skips, reorders or widens."""
    expected: list[int] | NothingClaimed
    if isinstance(chosen, EmptyReason):
        expected = NothingClaimed(reason=chosen, next_available_at_ms=known.next_available_at_ms)
    else:
        expected = chosen
    assert choose_exactly(known, batch_ids=batch_ids) == expected


def test_a_claim_of_nothing_needs_no_reason_of_the_queue() -> None:
    """The answer says that no batch was requested."""
    assert nothing_asked_for() == NothingClaimed(reason=EmptyReason.NOTHING_ASKED_FOR)
