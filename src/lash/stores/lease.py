"""The contract of session leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.lease import Lease, LeaseFence, LeaseOutcome, LeaseOwner, LeasePage, ParkedTurn, ResourceKind

if TYPE_CHECKING:
    from lash.plan.lease import DecideClaim, DecideRenewal, LeaseClaim, LeaseRow, LiveLeaseRow, PreparedLeasePage
    from lash.plan.park import DecidePark, Parking


class LeaseStore(Protocol):
    """Expiring, fenced rights to execute a session.

    Each acquisition has a larger fencing number than all before it, across release, expiry and deletion. On PostgreSQL
    the clock of the server decides. Methods that name a session raise SessionNotFound or SessionDeleted if it does not
    exist.
    """

    async def claim(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> LeaseOutcome:
        """Acquire the lease if it is free or expired.

        The same holder re-enters its live lease: the expiry moves, never to an earlier moment, and so does that of the
        claims made under the lease; the token stays. Repeating a claim of unknown outcome is therefore safe.
        """
        ...

    async def reclaim(self, session_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> LeaseOutcome:
        """Acquire the lease from the observed holder if that is provably a dead process of this machine.

        A holder that is not provably dead, or has changed since, is treated as by ``claim``. Of several callers at most
        one acquires.
        """
        ...

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        """Extend a lease and every claim made under it, never shorten; raise LeaseLost if the fence does not hold it.

        An expired lease is extended too, if it was neither released nor taken by another owner: a worker keeps its
        work through an outage of the database. This is the heartbeat of a worker: one statement keeps everything that
        it holds of a session.
        """
        ...

    async def release(self, fence: LeaseFence, *, pause_ms: int = 0) -> bool:
        """Free the lease if this fence still holds it, expired or not, and return whether it did.

        A late release by an old holder changes nothing. The fencing number stays. A pause keeps the session off the
        work list for a while, so that failed work is not retried at once; a claim is still possible and ends the pause.
        """
        ...

    async def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None, waiting_for: str) -> bool:
        """Free a live lease with all claims under it, and park the turn until a moment, or (None) until it is woken.

        ``wake_seq`` comes from the claim of the turn. Until then no turn of the session can be claimed with
        ``claim_turn``, and its input stays in its place in the queue; the next claim of it counts no further attempt.
        If there was a reason to continue since the claim, the turn is not parked, its input is queued, and the method
        returns False: run it again. A fence that does not hold raises LeaseLost and changes nothing.
        """
        ...

    async def parked(self, session_id: str) -> ParkedTurn | None:
        """Return what the parked turn of a session waits for; None if none of its turns is parked."""
        ...

    async def holder(self, session_id: str) -> Lease | None:
        """Return the lease as it is stored, live or expired; None if it is free."""
        ...

    async def live(self, kind: ResourceKind | None = None, *, limit: int = 100, cursor: str | None = None) -> LeasePage:
        """Return the live leases of sessions and processes, or of one kind, in the order in which they were acquired.

        The lease of a process that ended is not listed. Pages do not overlap; a lease that is acquired while they are
        read may be missing. It is one statement, and its cost grows with the number of leases that are held, not with
        that of the sessions and processes.
        """
        ...


class LeaseRows(Protocol):
    """The lease rows of sessions in one database; `lash.backend.lease.Leases` makes a `LeaseStore` of them.

    Methods that name a session raise SessionNotFound or SessionDeleted if it does not exist.
    """

    async def live(self, wanted: PreparedLeasePage) -> Sequence[LiveLeaseRow]: ...

    async def row(self, session_id: str) -> LeaseRow:
        """Return the lease row of a session."""
        ...

    async def claim(self, claim: LeaseClaim, decide: DecideClaim) -> LeaseOutcome:
        """Read the row, decide, and write the acquisition or the new expiry, all atomically.

        PostgreSQL tries the acquisition first, in one statement whose condition is that of `lash.plan.lease.plan_claim`
        (the query ``lease_acquire``); ``decide`` then explains a refusal.
        """
        ...

    async def renew(self, fence: LeaseFence, ttl_ms: int, decide: DecideRenewal) -> Lease:
        """Extend the lease and the claims made under it if the fence holds; else ``decide`` raises LeaseLost."""
        ...

    async def release(self, fence: LeaseFence, pause_ms: int) -> bool:
        """Free the lease if the fence holds it, and pause the session; return whether it did."""
        ...

    async def park(self, fence: LeaseFence, parking: Parking, decide: DecidePark) -> bool:
        """Free the lease and its claims, and park the turn if ``decide`` says so, all atomically.

        PostgreSQL does so in one statement whose condition is that of `lash.plan.park.plan_park` (the query
        ``lease_park``); ``decide`` then explains a refusal by raising LeaseLost.
        """
        ...
