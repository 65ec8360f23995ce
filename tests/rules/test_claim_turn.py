"""Rules of claiming a turn: who may, and with which batches."""

import msgspec
import pytest

from lash.errors import LeaseLost
from lash.model.lease import Busy, LeaseOwner
from lash.model.queue import BatchDraft, EmptyReason, NothingClaimed, SessionCommand, TurnInput, turn_id_of
from lash.plan.lease import NEVER_HELD, LeaseRow
from lash.plan.queue.claim import CandidateRow, HeadRequest, NewClaim, QueueFacts, QueueHead, decide_claim
from lash.plan.queue.claim_turn import (
    ClaimedTurnRows,
    NewLease,
    TurnClaim,
    TurnClaimDecision,
    claimed_turn,
    may_begin,
    plan_turn_claim,
    plan_turn_start,
    turn_head,
)
from lash.plan.queue.queue import encode_batch
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


def test_the_claim_of_a_turn_reads_both_lanes_without_live_claims() -> None:
    """A new lease holder inherits no claims, so the query uses a fencing number that no lease has."""
    expected = HeadRequest(session_id=SESSION, fencing=-1, lanes=("early", "late"), limit=64)
    assert turn_head(SESSION) == expected


def test_lease_and_claim_of_a_turn_run_out_together() -> None:
    """Both carry the decided fencing number and start at the time of the database."""
    decision = TurnClaim(fencing=8, seqs=[9], scope_id="scope")
    claim, lease = NewClaim(claim_id="c", token="t", ttl_ms=50), NewLease(owner=RIVAL, token="l")
    turn = claimed_turn(SESSION, decision.fencing, lease, claim, ClaimedTurnRows(1_000, [], 4, "n4", True, 3))
    assert (turn.revision, turn.leaf_node_id, turn.recorded, turn.wake_seq) == (4, "n4", True, 3)
    assert (turn.lease.owner, turn.lease.token) == (RIVAL, "l")
    assert (turn.lease.resource.id, turn.claim.session_id, turn.claim.token) == (SESSION, SESSION, "t")
    assert (turn.lease.fencing, turn.claim.lease_fencing) == (8, 8)
    assert (turn.lease.claimed_at_ms, turn.claim.claimed_at_ms) == (1_000, 1_000)
    assert (turn.lease.expires_at_ms, turn.claim.expires_at_ms) == (1_050, 1_050)


def test_a_claim_is_decided_under_a_live_lease_only() -> None:
    """The fence is checked at the time of the head, before any batch is chosen."""
    live, expired = (QueueHead(now_ms=now_ms, lease=ROW, facts=_ready(LATE)) for now_ms in (1_999, 2_000))
    assert decide_claim(live, fence=LEASE.fence, choose=lambda facts: [facts.candidates[0].seq]) == [9]
    with pytest.raises(LeaseLost):
        decide_claim(expired, fence=LEASE.fence, choose=lambda facts: [facts.candidates[0].seq])


def _start(lease: LeaseRow, facts: QueueFacts) -> int | None:
    return plan_turn_start(QueueHead(now_ms=2_000, lease=lease, facts=facts))


@pytest.mark.parametrize(("lease", "number"), [(NEVER_HELD, 1), (FREE, 8)])
def test_a_message_begins_a_turn_in_an_idle_session(lease: LeaseRow, number: int) -> None:
    """With a free lease and an empty queue the turn takes the next fencing number."""
    assert _start(lease, EMPTY) == number


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param(ROW, id="held"),
        pytest.param(msgspec.structs.replace(ROW, expires_at_ms=1_000), id="lapsed"),
        pytest.param(msgspec.structs.replace(FREE, paused_until_ms=3_000), id="paused"),
        pytest.param(msgspec.structs.replace(FREE, paused_until_ms=1_000), id="paused before"),
        pytest.param(msgspec.structs.replace(FREE, paused_until_ms=0, waiting_for="x"), id="parked"),
        pytest.param(msgspec.structs.replace(FREE, waiting_for="x"), id="waiting"),
    ],
)
def test_a_message_begins_nothing_if_the_lease_is_not_free(lease: LeaseRow) -> None:
    """A lease that is held, live or not, and a pause, over or not, are left to a claim."""
    assert _start(lease, EMPTY) is None


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(_ready(EARLY), id="ready"),
        pytest.param(msgspec.structs.replace(EMPTY, command_seq=3), id="command"),
        pytest.param(msgspec.structs.replace(EMPTY, next_available_at_ms=1), id="delayed"),
    ],
)
def test_a_message_begins_nothing_behind_other_work(facts: QueueFacts) -> None:
    """Nothing that is queued is overtaken, whatever its state."""
    assert _start(FREE, facts) is None


def test_only_ready_turn_work_may_begin() -> None:
    """A command and delayed work begin no turn."""
    ready = BatchDraft(session_id=SESSION, payloads=(TurnInput.of_text("a"),))
    compact = BatchDraft(session_id=SESSION, payloads=(SessionCommand(command="compact"),))
    delayed = msgspec.structs.replace(ready, available_at_ms=1)
    assert [may_begin(encode_batch(each)) for each in (ready, compact, delayed)] == [True, False, False]
