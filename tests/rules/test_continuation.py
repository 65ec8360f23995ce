"""The rules of runs that follow each other: which signals the next run has not received."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput, ProcessTerminal
from lash.model.process.continuation import Continuation, TakenSignals
from lash.model.process.process import ProcessStatus, Projection, SignalWait
from lash.plan.process.append import append_request
from lash.plan.process.event import InsertEvent, plan_append
from lash.plan.process.event_draft import continuation_draft
from lash.plan.process.process import encode_registration
from lash.plan.work import WorkChange
from tests.factories.process import process

NONE = TakenSignals()
SOME = TakenSignals(count=3, sequence=30, beyond=((5, 50),))


@pytest.mark.parametrize(
    ("before", "taken", "expected"),
    [
        (NONE, set(), 1),
        (NONE, {1, 2}, 3),
        (NONE, {2}, 1),
        (SOME, set(), 4),
        (SOME, {4}, 6),
        (SOME, {4, 6, 7}, 8),
    ],
)
def test_the_next_signal_is_the_first_that_was_not_taken(before: TakenSignals, taken: set[int], expected: int) -> None:
    """Places that earlier runs or this one have taken are left out."""
    assert before.next_place(taken) == expected


@pytest.mark.parametrize(
    ("before", "taken", "expected"),
    [
        (NONE, {}, NONE),
        (NONE, {1: 10, 2: 20}, TakenSignals(count=2, sequence=20)),
        (NONE, {2: 20}, TakenSignals(beyond=((2, 20),))),
        (SOME, {}, SOME),
        (SOME, {4: 40}, TakenSignals(count=5, sequence=50)),
        (SOME, {7: 70, 4: 40}, TakenSignals(count=5, sequence=50, beyond=((7, 70),))),
    ],
)
def test_what_was_taken_is_a_count_and_few_places(
    before: TakenSignals, taken: dict[int, int], expected: TakenSignals
) -> None:
    """The first ones without a gap are counted; the others are listed until the gap is closed."""
    assert before.after(taken) == expected


def test_the_event_of_the_next_run_moves_the_state_to_it() -> None:
    """The state has the number of the run and of its event, and no wait; the effects of the last run are deleted."""
    waiting = Projection(wait=SignalWait(name="go", ordinal=1))
    decision = _decided(waiting, Continuation(run=2, input={"x": 1}))
    assert (decision.projection.run, decision.projection.continued_at, decision.projection.wait) == (2, 8, None)
    assert decision.work == WorkChange(continues=True)
    assert decision.event.replay_key == "continued:2"


@pytest.mark.parametrize("run", [1, 3])
def test_runs_have_no_gaps(run: int) -> None:
    """Another number than the next one is refused."""
    with pytest.raises(InvalidInput, match=f"expected run 2 to follow, got {run}"):
        _decided(Projection(), Continuation(run=run, input=None))


def test_a_process_that_ended_does_not_continue() -> None:
    """The end is the end of all runs."""
    with pytest.raises(ProcessTerminal):
        _decided(Projection(status=ProcessStatus.COMPLETED), Continuation(run=2, input=None))


def test_only_a_continuation_by_the_holder_is_taken() -> None:
    """Something else is refused, and so is an event that is appended without a lease."""
    with pytest.raises(InvalidInput, match="expected a Continuation, got dict"):
        continuation_draft("p", {"run": 2})  # type: ignore[arg-type]
    draft = continuation_draft("p", Continuation(run=2, input=None))
    with pytest.raises(InvalidInput, match="only the run that holds the lease"):
        append_request("p", draft)


def _decided(before: Projection, continuation: Continuation) -> InsertEvent:
    registration = encode_registration(process("p")).registration
    draft = continuation_draft("p", continuation)
    decision = plan_append(
        registration, before, draft, life=1, last_sequence=7, wake_session_id=None, known=None, now_ms=5
    )
    assert isinstance(decision, InsertEvent)
    return decision
