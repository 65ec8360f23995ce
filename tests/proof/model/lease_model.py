"""Leases: one holder at a time, and fencing numbers that only grow."""

from __future__ import annotations

import msgspec

from lash.model.lease import Acquired, Busy, Lease, LeaseFence, LeaseOutcome, LeaseOwner, session_resource
from tests.proof.model.base_model import Sessions, SessionState
from tests.proof.model.kit import Refused


def claim(
    sessions: Sessions, session_id: str, owner: LeaseOwner, ttl_ms: int, made: Lease | None, *, over_dead: bool = False
) -> LeaseOutcome:
    """Predict a claim; ``made`` is the lease of the result, for its token and number if it is a new one.

    ``over_dead`` means that the holder was seen, still holds, and is dead.
    """
    state = sessions.need(session_id).lease
    held, now = state.holder, sessions.now_ms
    if held is not None and now < held.expires_at_ms:
        if held.owner.same_holder(owner):
            state.holder = _extended(held, now + ttl_ms)
            return Acquired(lease=state.holder, reentered=True)
        if not over_dead:
            return Busy(holder=held)
    assert made is not None, "a free lease must be given"
    assert made.fencing > state.fencing, "fencing numbers only grow"
    # A claim makes a parked turn ready.
    state.fencing, state.paused_until_ms = made.fencing, None if state.waiting_for is None else 0
    state.holder = Lease(
        resource=session_resource(session_id),
        owner=owner,
        token=made.token,
        fencing=made.fencing,
        claimed_at_ms=now,
        expires_at_ms=now + ttl_ms,
    )
    return Acquired(lease=state.holder, displaced=held)


def renew(sessions: Sessions, fence: LeaseFence, ttl_ms: int) -> Lease:
    """Predict a renewal: a lease that expired and was not taken is extended too."""
    state = sessions.need(fence.resource.id)
    held = state.lease.holder
    if held is None or held.fence != fence:
        raise Refused("LeaseLost", resource=fence.resource)
    state.lease.holder = _extended(held, sessions.now_ms + ttl_ms)
    return state.lease.holder


def release(sessions: Sessions, fence: LeaseFence, pause_ms: int = 0) -> bool:
    """Return whether a release frees the lease; it does so also after its expiry."""
    state = sessions.need(fence.resource.id).lease
    if state.holder is None or state.holder.fence != fence:
        return False
    state.holder = None
    kept = None if state.waiting_for is None else 0
    state.paused_until_ms = sessions.now_ms + pause_ms if pause_ms else kept
    return True


def wake(sessions: Sessions) -> set[str]:
    """Count the reasons of all sessions, and return the sessions whose turn is parked."""
    woken: set[str] = set()
    for session_id, state in sessions.live.items():
        lease = state.lease
        if lease.reasons:
            lease.reasons = 0
            lease.wake_seq += 1
            if lease.waiting_for is not None and lease.paused_until_ms is not None:
                lease.paused_until_ms = min(lease.paused_until_ms, sessions.now_ms)
                woken.add(session_id)
    return woken


def live(state: SessionState, fence: LeaseFence, now_ms: int) -> Lease:
    """Return the lease if this is its fence and it has not expired; else refuse."""
    held = state.lease.holder
    if held is None or held.fence != fence or now_ms >= held.expires_at_ms:
        raise Refused("LeaseLost", resource=fence.resource)
    return held


def _extended(lease: Lease, expires_at_ms: int) -> Lease:
    return msgspec.structs.replace(lease, expires_at_ms=max(lease.expires_at_ms, expires_at_ms))
