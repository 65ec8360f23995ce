"""Whether a worker may claim a turn: the lease of its session and the work under it, decided together."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from lash.base.limits import saturating_add
from lash.model.lease import Busy, Lease, LeaseOwner, session_resource
from lash.model.queue import Boundary, ClaimedTurn, EmptyReason, NothingClaimed, turn_id_of
from lash.model.scope import turn_scope_id
from lash.plan.lease import Acquire, LeaseClaim, Reenter, plan_claim
from lash.plan.park import known_moment
from lash.plan.queue.claim import ClaimedRows, HeadRequest, NewClaim, QueueHead, choose_turn_work, lanes_at, new_claim
from lash.plan.queue.queue import COMMAND_LANE, BatchRow, EncodedBatch

MAX_INPUT: Final = 64
"""How many batches one turn starts with at most."""
NO_FENCING: Final = -1
"""A fencing number that no lease has: a new lease holder inherits no claims, so none counts as live."""


class NewLease(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a lease to take, and its token."""

    owner: LeaseOwner
    token: str


class TurnClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to take the lease with this fencing number, and to claim these batches under it."""

    fencing: int
    seqs: list[int]
    scope_id: str
    """The scope in which earlier attempts of the turn recorded their effects, if there were any."""


class ClaimedTurnRows(msgspec.Struct, frozen=True, array_like=True):
    """A turn that was claimed: when, its batches in order, the head of its session, whether its scope has effects.

    At last how many reasons to continue a turn of the session there have been.
    """

    now_ms: int
    batches: list[BatchRow]
    revision: int
    leaf_node_id: str | None
    recorded: bool
    wake_seq: int


class BegunTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that began with the batch that was enqueued, and the fencing number of its lease."""

    fencing: int
    rows: ClaimedTurnRows


TurnClaimDecision: TypeAlias = TurnClaim | Busy | NothingClaimed


def turn_head(session_id: str) -> HeadRequest:
    """Return which part of the queue the claim of a turn must read."""
    return HeadRequest(session_id=session_id, fencing=NO_FENCING, lanes=lanes_at(Boundary.IDLE), limit=MAX_INPUT)


def plan_turn_claim(head: QueueHead, *, session_id: str, owner: LeaseOwner) -> TurnClaimDecision:
    """Decide about a turn: take a free or lapsed lease and the next group of turn work, or change nothing.

    ``head`` is that of ``turn_head``. A live lease is Busy, also to its own holder.
    """
    row, now_ms = head.lease, head.now_ms
    # With no time to live, a re-entered lease is reported as it is stored, not as it would be extended.
    claim = LeaseClaim(resource=session_resource(session_id), owner=owner, ttl_ms=0)
    decision = plan_claim(row, now_ms, claim)
    if not isinstance(decision, Acquire):
        return Busy(holder=decision.lease if isinstance(decision, Reenter) else decision.holder)
    if row.paused_until_ms is not None and row.paused_until_ms > now_ms:
        reason = EmptyReason.PAUSED if row.waiting_for is None else EmptyReason.PARKED
        return NothingClaimed(reason=reason, next_available_at_ms=known_moment(row.paused_until_ms))
    seqs = choose_turn_work(head.facts, boundary=Boundary.IDLE, limit=MAX_INPUT)
    if isinstance(seqs, NothingClaimed):
        return seqs
    first = next(each.batch_id for each in head.facts.candidates if each.seq == seqs[0])
    return TurnClaim(fencing=decision.fencing, seqs=seqs, scope_id=turn_scope_id(session_id, turn_id_of(first)))


def may_begin(batch: EncodedBatch) -> bool:
    """Return whether a turn can begin with a batch as it is enqueued: it is turn work, and it is not delayed."""
    return batch.lane != COMMAND_LANE and batch.draft.available_at_ms == 0


def plan_turn_start(head: QueueHead) -> int | None:
    """Decide whether a turn begins with a batch that is being enqueued; return the fencing number of its lease.

    ``head`` is that of ``turn_head``, before the batch. None if the batch has to wait: something else is queued, or the
    lease is not free. A session that was paused or parked, and a lapsed lease, are left to ``plan_turn_claim``.
    """
    lease, facts = head.lease, head.facts
    is_free = lease.token is None and lease.paused_until_ms is None and lease.waiting_for is None
    # No claim is live without a lease, so whatever is ready is a candidate.
    is_empty = not facts.candidates and facts.command_seq is None and facts.next_available_at_ms is None
    return lease.fencing + 1 if is_free and is_empty else None


def claimed_turn(
    session_id: str, fencing: int, lease: NewLease, claim: NewClaim, written: ClaimedTurnRows
) -> ClaimedTurn:
    """Return the turn that was claimed: lease and claim run out together."""
    return ClaimedTurn(
        lease=Lease(
            resource=session_resource(session_id),
            owner=lease.owner,
            token=lease.token,
            fencing=fencing,
            claimed_at_ms=written.now_ms,
            expires_at_ms=saturating_add(written.now_ms, claim.ttl_ms),
        ),
        claim=new_claim(session_id, fencing, claim, ClaimedRows(written.now_ms, written.batches)),
        revision=written.revision,
        leaf_node_id=written.leaf_node_id,
        recorded=written.recorded,
        wake_seq=written.wake_seq,
    )
