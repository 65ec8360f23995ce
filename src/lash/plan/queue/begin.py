"""Whether a worker may begin a turn: the lease of its session and the work under it, decided together."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from lash.model.lease import Busy, LeaseOwner, session_resource
from lash.model.queue import Boundary, EmptyReason, NothingClaimed
from lash.plan.effect.scope import turn_scope_id
from lash.plan.lease import Acquire, LeaseRow, Reenter, plan_claim
from lash.plan.queue.queue import QueueFacts, choose_turn_work

MAX_INPUT: Final = 64
"""How many batches one turn begins with at most."""
NO_FENCING: Final = -1
"""A fencing number that no lease has: to whom takes a lease anew, no claim made under an earlier one is live."""


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """Take the lease with this fencing number, and claim these batches under it."""

    fencing: int
    seqs: list[int]
    scope_id: str
    """Where earlier attempts of the turn have left their records, if there were any."""


BeginDecision: TypeAlias = Beginning | Busy | NothingClaimed


def plan_begin(row: LeaseRow, facts: QueueFacts, *, session_id: str, owner: LeaseOwner, now_ms: int) -> BeginDecision:
    """Decide about a turn: a lease that is free or lapsed, and the next group of turn work, or nothing.

    ``facts`` are those of ``NO_FENCING``. Who holds the lease already begins no turn by this either.
    """
    # No time to live: the holder is told of as it is, not as it would be extended.
    decision = plan_claim(row, resource=session_resource(session_id), owner=owner, ttl_ms=0, now_ms=now_ms)
    if not isinstance(decision, Acquire):
        return Busy(holder=decision.lease if isinstance(decision, Reenter) else decision.holder)
    if row.paused_until_ms is not None and row.paused_until_ms > now_ms:
        return NothingClaimed(reason=EmptyReason.PAUSED, next_available_at_ms=row.paused_until_ms)
    seqs = choose_turn_work(facts, boundary=Boundary.IDLE, limit=MAX_INPUT)
    if isinstance(seqs, NothingClaimed):
        return seqs
    first = next(each.batch_id for each in facts.candidates if each.seq == seqs[0])
    return Beginning(fencing=decision.fencing, seqs=seqs, scope_id=turn_scope_id(session_id, turn_id_of(first)))


def turn_id_of(batch_id: str) -> str:
    """Return the id of the turn that is named after its first batch, the same in every attempt."""
    return f"turn:{batch_id}"
