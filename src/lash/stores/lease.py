"""The contract of session leases."""

from __future__ import annotations

from typing import Protocol

from lash.model.lease import Lease, LeaseFence, LeaseOutcome, LeaseOwner


class LeaseStore(Protocol):
    """Expiring, fenced rights to execute a session.

    Every acquisition has a larger fencing number than all before it, across release, expiry and deletion. Time is
    the server's on PostgreSQL. All methods raise SessionNotFound or SessionDeleted where there is no session.
    """

    async def claim(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> LeaseOutcome:
        """Take the lease if it is free or lapsed.

        The same holder re-enters its live lease, which is extended but never shortened and keeps its token, and so are
        the claims made under it, as by a renewal; repeating a claim of unknown outcome is therefore safe.
        """
        ...

    async def reclaim(self, session_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> LeaseOutcome:
        """Take the lease from a holder seen before, if it still holds and is provably a dead process of this machine.

        Otherwise the same as ``claim``. Of several callers at most one acquires.
        """
        ...

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        """Extend a live lease and every claim made under it, never shorten; raise LeaseLost if the fence does not hold.

        This is the heartbeat of a worker: one statement keeps all that it holds of a session.
        """
        ...

    async def release(self, fence: LeaseFence, *, pause_ms: int = 0) -> bool:
        """Free the lease if this fence still holds it, expired or not, and return whether it did.

        A late release by an old holder changes nothing. The fencing number stays. A pause keeps the session off the
        work list for a while, so that what failed is not tried again at once; anybody may still claim it, which ends
        the pause.
        """
        ...

    async def holder(self, session_id: str) -> Lease | None:
        """Return the lease as it stands, live or lapsed; None if it is free."""
        ...
