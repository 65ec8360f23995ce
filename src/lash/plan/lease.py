"""Who may hold a session's lease, and whose fence still holds."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from lash.base.codec import decode
from lash.base.limits import MAX_INTEGER, check_identifier, check_integer, saturating_add
from lash.errors import CorruptData, InvalidInput, LeaseLost
from lash.model.lease import Acquired, Busy, Lease, LeaseFence, LeaseOutcome, LeaseOwner, LocalProcess
from lash.model.value import Value

MAX_TTL_MS: Final = 24 * 60 * 60 * 1000


class LeaseRow(msgspec.Struct, frozen=True, array_like=True):
    """The lease row of one session. It outlives its holder, so that fencing numbers only grow."""

    fencing: int
    owner_id: str | None
    incarnation_id: str | None
    process: str | None
    token: str | None
    claimed_at_ms: int
    expires_at_ms: int
    paused_until_ms: int | None = None
    """Until when nobody should begin a turn by itself; read where turns are begun."""

    def is_live(self, now_ms: int) -> bool:
        return self.token is not None and self.expires_at_ms > now_ms


NEVER_HELD: Final = LeaseRow(0, None, None, None, None, 0, 0)
"""The lease row of a new session; it also stands for one that nobody has asked about."""


class Acquire(Value, frozen=True, kw_only=True):
    """Take the lease over from ``displaced`` (or from nobody) with the next fencing number."""

    fencing: int
    displaced: Lease | None


class Reenter(Value, frozen=True, kw_only=True):
    """The same holder asks again: only the expiry moves, and never to an earlier moment."""

    lease: Lease


class Refuse(Value, frozen=True, kw_only=True):
    """Somebody else holds the lease."""

    holder: Lease


ClaimDecision: TypeAlias = Acquire | Reenter | Refuse


def plan_claim(row: LeaseRow, *, session_id: str, owner: LeaseOwner, ttl_ms: int, now_ms: int) -> ClaimDecision:
    """Decide about a claim. A live holder keeps the lease, dead or not: only ``plan_reclaim`` displaces one."""
    held = held_lease(row, session_id)
    if held is None or not row.is_live(now_ms):
        return Acquire(fencing=_next_fencing(row), displaced=held)
    if held.owner.same_holder(owner):
        return Reenter(lease=_extended(held, now_ms, ttl_ms))
    return Refuse(holder=held)


def plan_reclaim(
    row: LeaseRow,
    *,
    session_id: str,
    owner: LeaseOwner,
    observed: LeaseFence,
    observed_is_dead: bool,
    ttl_ms: int,
    now_ms: int,
) -> ClaimDecision:
    """Decide about a claim by somebody who saw the holder die: only that very holder can be displaced."""
    decision = plan_claim(row, session_id=session_id, owner=owner, ttl_ms=ttl_ms, now_ms=now_ms)
    if isinstance(decision, Refuse) and observed_is_dead and decision.holder.fence == observed:
        return Acquire(fencing=_next_fencing(row), displaced=decision.holder)
    return decision


def plan_renewal(row: LeaseRow, *, fence: LeaseFence, ttl_ms: int, now_ms: int) -> Lease:
    """Return the renewed lease, or raise LeaseLost. A renewal never shortens."""
    return _extended(require_fence(row, fence, now_ms), now_ms, ttl_ms)


def require_fence(row: LeaseRow, fence: LeaseFence, now_ms: int) -> Lease:
    """Return the lease that the fence proves, or raise LeaseLost saying why it does not hold."""
    held = held_lease(row, fence.session_id)
    if held is None:
        raise LeaseLost(fence.session_id, f"it was released; the fence shows fencing number {fence.fencing}")
    if held.fence != fence:
        raise LeaseLost(
            fence.session_id, f"it is held under fencing number {held.fencing}; the fence shows {fence.fencing}"
        )
    if not row.is_live(now_ms):
        raise LeaseLost(fence.session_id, "it expired")
    return held


def held_lease(row: LeaseRow, session_id: str) -> Lease | None:
    """Return the lease that the row carries, live or lapsed; None when it is free."""
    if row.token is None:
        return None
    if row.owner_id is None or row.incarnation_id is None:
        raise CorruptData(f"the lease row of session {session_id!r} has a token but no holder")
    process = None if row.process is None else decode(row.process, LocalProcess, f"the holder of {session_id!r}")
    return Lease(
        session_id=session_id,
        owner=LeaseOwner(owner_id=row.owner_id, incarnation_id=row.incarnation_id, process=process),
        token=row.token,
        fencing=row.fencing,
        claimed_at_ms=row.claimed_at_ms,
        expires_at_ms=row.expires_at_ms,
    )


def outcome_of(decision: Reenter | Refuse) -> LeaseOutcome:
    """Return what the caller of a claim is told when nothing was taken over."""
    if isinstance(decision, Reenter):
        return Acquired(lease=decision.lease, reentered=True)
    return Busy(holder=decision.holder)


def check_claim(owner: object, ttl_ms: object) -> None:
    """Raise InvalidInput unless owner and ttl can be stored."""
    if not isinstance(owner, LeaseOwner):
        raise InvalidInput(f"owner must be a LeaseOwner, not {type(owner).__name__}")
    check_identifier("owner_id", owner.owner_id)
    check_identifier("incarnation_id", owner.incarnation_id)
    check_ttl(ttl_ms)


def check_observed(observed: object) -> Lease:
    """Return the lease if it is one; it is what ``claim`` answered when it was busy."""
    if not isinstance(observed, Lease):
        raise InvalidInput(f"observed must be the Lease of a Busy answer, not {type(observed).__name__}")
    check_fence("observed", observed.fence)
    return observed


def check_ttl(ttl_ms: object) -> int:
    """Return the time to live in milliseconds if it lies between zero and a day."""
    milliseconds = check_integer("ttl_ms", ttl_ms, at_least=0)
    if milliseconds > MAX_TTL_MS:
        raise InvalidInput(f"ttl_ms must be at most {MAX_TTL_MS:,} (a day); a lease is renewed, not made long")
    return milliseconds


def check_fence(what: str, fence: object) -> LeaseFence:
    """Return the fence if its fields are of the right kind, so that no database has to compare nonsense."""
    if not isinstance(fence, LeaseFence):
        raise InvalidInput(f"{what} must be a LeaseFence, not {type(fence).__name__}")
    check_identifier(f"{what}.session_id", fence.session_id)
    check_identifier(f"{what}.owner_id", fence.owner_id)
    check_identifier(f"{what}.incarnation_id", fence.incarnation_id)
    check_identifier(f"{what}.token", fence.token)
    check_integer(f"{what}.fencing", fence.fencing, at_least=0)
    return fence


def _next_fencing(row: LeaseRow) -> int:
    if row.fencing == MAX_INTEGER:
        raise InvalidInput("the fencing numbers of this session are exhausted")
    return row.fencing + 1


def _extended(lease: Lease, now_ms: int, ttl_ms: int) -> Lease:
    expires_at_ms = max(lease.expires_at_ms, saturating_add(now_ms, ttl_ms))
    return msgspec.structs.replace(lease, expires_at_ms=expires_at_ms)
