"""Who begins a turn, and with what."""

import pytest

from lash.model.lease import Busy, LeaseOwner
from lash.model.queue import EmptyReason, NothingClaimed
from lash.plan.lease import NEVER_HELD, LeaseRow
from lash.plan.queue.begin import Beginning, plan_begin, turn_id_of
from lash.plan.queue.queue import CandidateRow, QueueFacts
from tests.rules.kit import SESSION
from tests.rules.test_lease import HOLDER, LEASE, RIVAL, ROW

FREE = LeaseRow(7, None, None, None, None, 0, 0)
EMPTY = QueueFacts(candidates=[], command_seq=None, any_late=False, any_claimed=False, next_available_at_ms=None)


def _ready(*candidates: CandidateRow, command_seq: int | None = None) -> QueueFacts:
    return QueueFacts(
        candidates=list(candidates),
        command_seq=command_seq,
        any_late=True,
        any_claimed=False,
        next_available_at_ms=None,
    )


LATE = CandidateRow(9, "late", "late", "exclusive", None)
EARLY = CandidateRow(8, "early", "early", "exclusive", None)


@pytest.mark.parametrize(("row", "number"), [(NEVER_HELD, 1), (FREE, 8), (ROW, 6)])
def test_a_free_or_lapsed_lease_and_the_first_batch(row: LeaseRow, number: int) -> None:
    """The next fencing number, the batch that comes first, and the scope of the turn that is named after it."""
    scope = f"turn:{len(SESSION)}:{SESSION}:turn:early"
    expected = Beginning(fencing=number, seqs=[8], scope_id=scope)
    assert plan_begin(row, _ready(LATE, EARLY), session_id=SESSION, owner=RIVAL, now_ms=2_000) == expected


@pytest.mark.parametrize("who", [HOLDER, RIVAL])
def test_a_live_lease_is_busy_as_it_is(who: LeaseOwner) -> None:
    """Also to its holder, and without a word about an extension."""
    decision = plan_begin(ROW, _ready(LATE), session_id=SESSION, owner=who, now_ms=1_999)
    assert decision == Busy(holder=LEASE)


def test_no_work_no_turn() -> None:
    """Nothing is queued, or a command comes first."""
    nothing = plan_begin(FREE, EMPTY, session_id=SESSION, owner=RIVAL, now_ms=1)
    assert nothing == NothingClaimed(reason=EmptyReason.EMPTY)
    command = plan_begin(FREE, _ready(LATE, command_seq=3), session_id=SESSION, owner=RIVAL, now_ms=1)
    assert command == NothingClaimed(reason=EmptyReason.COMMAND_AT_HEAD)


@pytest.mark.parametrize(("now_ms", "paused"), [(499, True), (500, False)])
def test_a_pause_is_kept_to_its_end(now_ms: int, *, paused: bool) -> None:
    """A session that pauses is told of with the moment at which it goes on; who is busy is busy first."""
    row = LeaseRow(7, None, None, None, None, 0, 0, 500)
    decision = plan_begin(row, _ready(LATE), session_id=SESSION, owner=RIVAL, now_ms=now_ms)
    told = NothingClaimed(reason=EmptyReason.PAUSED, next_available_at_ms=500)
    assert (decision == told, isinstance(decision, Beginning)) == (paused, not paused)


def test_a_group_is_bounded() -> None:
    """At most 64 batches that may join come into one turn, which is named after the first."""
    joining = [CandidateRow(seq, f"b{seq}", "late", "join", "g") for seq in range(100, 200)]
    decision = plan_begin(FREE, _ready(*joining), session_id=SESSION, owner=RIVAL, now_ms=1)
    assert isinstance(decision, Beginning)
    assert decision.seqs == list(range(100, 164))
    assert decision.scope_id.endswith(":turn:b100")


def test_a_turn_is_named_after_its_first_batch() -> None:
    """The same name in every attempt."""
    assert turn_id_of("b") == "turn:b"
