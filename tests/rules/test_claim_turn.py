"""Who may claim a turn, and with which batches."""

import pytest

from lash.model.lease import Busy, LeaseOwner
from lash.model.queue import EmptyReason, NothingClaimed, turn_id_of
from lash.plan.lease import NEVER_HELD, LeaseRow
from lash.plan.queue.claim_turn import TurnClaim, TurnClaimDecision, plan_turn_claim
from lash.plan.queue.queue import CandidateRow, QueueFacts, QueueHead
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


def _plan(lease: LeaseRow, facts: QueueFacts, owner: LeaseOwner, now_ms: int) -> TurnClaimDecision:
    return plan_turn_claim(QueueHead(now_ms=now_ms, lease=lease, facts=facts), session_id=SESSION, owner=owner)


LATE = CandidateRow(9, "late", "late", "exclusive", None)
EARLY = CandidateRow(8, "early", "early", "exclusive", None)


@pytest.mark.parametrize(("row", "number"), [(NEVER_HELD, 1), (FREE, 8), (ROW, 6)])
def test_a_free_or_lapsed_lease_and_the_first_batch(row: LeaseRow, number: int) -> None:
    """A claim takes the next fencing number and the first batch, and names the turn after that batch."""
    scope = f"turn:{len(SESSION)}:{SESSION}:turn:early"
    expected = TurnClaim(fencing=number, seqs=[8], scope_id=scope)
    assert _plan(row, _ready(LATE, EARLY), RIVAL, 2_000) == expected


@pytest.mark.parametrize("who", [HOLDER, RIVAL])
def test_a_live_lease_is_busy_as_it_is(who: LeaseOwner) -> None:
    """A live lease is Busy also to its holder, and is reported without an extension."""
    decision = _plan(ROW, _ready(LATE), who, 1_999)
    assert decision == Busy(holder=LEASE)


def test_no_work_no_turn() -> None:
    """No turn is claimed if nothing is queued, or if a command comes first."""
    nothing = _plan(FREE, EMPTY, RIVAL, 1)
    assert nothing == NothingClaimed(reason=EmptyReason.EMPTY)
    command = _plan(FREE, _ready(LATE, command_seq=3), RIVAL, 1)
    assert command == NothingClaimed(reason=EmptyReason.COMMAND_AT_HEAD)


@pytest.mark.parametrize(("now_ms", "paused"), [(499, True), (500, False)])
def test_a_pause_is_kept_to_its_end(now_ms: int, *, paused: bool) -> None:
    """A paused session yields NothingClaimed with the moment at which the pause ends."""
    row = LeaseRow(7, None, None, None, None, 0, 0, 500)
    decision = _plan(row, _ready(LATE), RIVAL, now_ms)
    told = NothingClaimed(reason=EmptyReason.PAUSED, next_available_at_ms=500)
    assert (decision == told, isinstance(decision, TurnClaim)) == (paused, not paused)


def test_a_group_is_bounded() -> None:
    """One turn takes at most 64 batches that may join, and is named after the first."""
    joining = [CandidateRow(seq, f"b{seq}", "late", "join", "g") for seq in range(100, 200)]
    decision = _plan(FREE, _ready(*joining), RIVAL, 1)
    assert isinstance(decision, TurnClaim)
    assert decision.seqs == list(range(100, 164))
    assert decision.scope_id.endswith(":turn:b100")


def test_a_turn_is_named_after_its_first_batch() -> None:
    """The id of a turn is the same in every attempt."""
    assert turn_id_of("b") == "turn:b"
