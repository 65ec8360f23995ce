"""Claiming queued work on PostgreSQL: read the head of the queue, plan, and stamp what was chosen if it is still so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lash.base.codec import encode
from lash.base.ids import new_id
from lash.base.limits import saturating_add
from lash.errors import StoreUnavailable
from lash.model.lease import Lease, LeaseFence, LeaseOwner, LocalProcess, ResourceKind, session_resource
from lash.model.queue import Boundary, Claim, ClaimedTurn, ClaimOutcome, ClaimTurnOutcome, NothingClaimed
from lash.plan.lease import check_fence, check_ttl, require_fence
from lash.plan.queue.begin import MAX_INPUT, NO_FENCING, Beginning, plan_begin
from lash.plan.queue.queue import BatchRow, Choose, decode_batch, lanes_at
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.lookup import missing
from lash.postgres.rows.session.rows import BeginAnswer, QueueAnswer, StampAnswer
from lash.sqlkit.rows import Number

_MAX_PLANS: Final = 10


async def claim_turn(database: Database, session_id: str, owner: LeaseOwner, ttl_ms: int) -> ClaimTurnOutcome:
    """Take the lease and claim what comes next under it, or change nothing."""
    for _ in range(_MAX_PLANS):
        answer = await _ready_work(database, session_id, NO_FENCING, lanes_at(Boundary.IDLE), MAX_INPUT)
        decision = plan_begin(answer.lease, answer.facts, session_id=session_id, owner=owner, now_ms=answer.now_ms)
        if not isinstance(decision, Beginning):
            return decision
        begun = await _begin(database, session_id, answer.session_key, decision, owner, ttl_ms)
        if begun is not None:
            return begun
    raise _kept_changing(session_id)


async def claim_work(
    database: Database, fence: LeaseFence, ttl_ms: int, lanes: tuple[str, ...], limit: int, choose: Choose
) -> ClaimOutcome:
    """Claim what is chosen under a live lease."""
    check_fence("fence", fence, ResourceKind.SESSION)
    check_ttl(ttl_ms)
    for _ in range(_MAX_PLANS):
        answer = await _ready_work(database, fence.resource.id, fence.fencing, lanes, limit, fence)
        seqs = choose(answer.facts)
        if isinstance(seqs, NothingClaimed):
            return seqs
        claim = await _stamp(database, fence, answer.session_key, seqs, ttl_ms)
        if claim is not None:
            return claim
    raise _kept_changing(fence.resource.id)


async def _ready_work(
    database: Database,
    session_id: str,
    fencing: int,
    lanes: tuple[str, ...],
    limit: int,
    fence: LeaseFence | None = None,
) -> QueueAnswer:
    """Return the lease and the head of the queue, with due work made ready; a fence must hold the lease."""
    for _ in range(_MAX_PLANS):
        answer = await database.read_one(QueueAnswer, "queue_facts", session_id, fencing, list(lanes), limit)
        if answer is None:
            raise await missing(database, session_id)
        if fence is not None:
            require_fence(answer.lease, fence, answer.now_ms)
        if not answer.any_due:
            return answer
        await database.write_one(Number, "queue_promote", answer.session_key, repeatable=True)
    raise StoreUnavailable(f"work of session {session_id!r} became due {_MAX_PLANS} times during a claim")


async def _begin(
    database: Database, session_id: str, session_key: int, decision: Beginning, owner: LeaseOwner, ttl_ms: int
) -> ClaimedTurn | None:
    process = None if owner.process is None else encode(owner.process, LocalProcess, "owner.process")
    token, claim_id, claim_token = new_id(), new_id(), new_id()
    # Repeating it after a lost connection is harmless: the lease and the batches are then held under these tokens.
    answer = await database.write_one(
        BeginAnswer,
        "queue_begin_turn",
        *(session_key, list(decision.seqs), decision.fencing),
        *(owner.owner_id, owner.incarnation_id, process, token),
        *(claim_id, claim_token, ttl_ms, decision.scope_id),
        repeatable=True,
    )
    if answer is None:
        return None
    lease = Lease(
        resource=session_resource(session_id),
        owner=owner,
        token=token,
        fencing=decision.fencing,
        claimed_at_ms=answer.now_ms,
        expires_at_ms=saturating_add(answer.now_ms, ttl_ms),
    )
    return ClaimedTurn(
        lease=lease,
        claim=_claim(lease.fence, claim_id, claim_token, answer.now_ms, ttl_ms, answer.batches),
        revision=answer.revision,
        recorded=answer.recorded,
    )


async def _stamp(
    database: Database, fence: LeaseFence, session_key: int, seqs: Sequence[int], ttl_ms: int
) -> Claim | None:
    claim_id, token = new_id(), new_id()
    # Repeating it after a lost connection is harmless: the batches are then held by this very claim.
    answer = await database.write_one(
        StampAnswer,
        "queue_stamp",
        *(session_key, list(seqs)),
        *(fence.owner_id, fence.incarnation_id, fence.token, fence.fencing),
        *(claim_id, token, ttl_ms),
        repeatable=True,
    )
    return None if answer is None else _claim(fence, claim_id, token, answer.now_ms, ttl_ms, answer.batches)


def _claim(fence: LeaseFence, claim_id: str, token: str, now_ms: int, ttl_ms: int, rows: Sequence[BatchRow]) -> Claim:
    return Claim(
        session_id=fence.resource.id,
        claim_id=claim_id,
        token=token,
        lease_fencing=fence.fencing,
        claimed_at_ms=now_ms,
        expires_at_ms=saturating_add(now_ms, ttl_ms),
        batches=tuple(decode_batch(row, fence.resource.id) for row in rows),
    )


def _kept_changing(session_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"the queue of session {session_id!r} changed {_MAX_PLANS} times during a claim")
