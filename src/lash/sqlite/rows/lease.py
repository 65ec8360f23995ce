"""Session leases on SQLite."""

from __future__ import annotations

from lash.backend.liveness import is_provably_dead
from lash.base.codec import encode
from lash.base.ids import new_id
from lash.base.limits import check_identifier, saturating_add
from lash.model.lease import (
    Acquired,
    Lease,
    LeaseFence,
    LeaseOutcome,
    LeaseOwner,
    LocalProcess,
    ResourceKind,
    session_resource,
)
from lash.plan.lease import (
    Acquire,
    ClaimDecision,
    LeaseRow,
    Reenter,
    check_claim,
    check_fence,
    check_observed,
    check_ttl,
    held_lease,
    outcome_of,
    plan_claim,
    plan_reclaim,
    plan_renewal,
)
from lash.plan.session.session import missing_session
from lash.plan.work import check_pause
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlkit.rows import Flag
from lash.stores.hints import Hints


class SQLiteLeaseStore:
    """The session leases of one SQLite storage; the contract is `lash.stores.lease.LeaseStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def claim(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> LeaseOutcome:
        check_identifier("session_id", session_id)
        check_claim(owner, ttl_ms)

        def body(transaction: Transaction) -> LeaseOutcome:
            row, now_ms = lease_row(transaction, session_id), transaction.now_ms
            decision = plan_claim(row, resource=session_resource(session_id), owner=owner, ttl_ms=ttl_ms, now_ms=now_ms)
            return _carry_out(transaction, decision, session_id, owner, ttl_ms)

        return await self._database.write_briefly(body)

    async def reclaim(self, session_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> LeaseOutcome:
        check_identifier("session_id", session_id)
        check_claim(owner, ttl_ms)
        check_observed(observed, ResourceKind.SESSION)
        is_dead = is_provably_dead(observed.owner.process, owner.process)

        def body(transaction: Transaction) -> LeaseOutcome:
            decision = plan_reclaim(
                lease_row(transaction, session_id),
                resource=session_resource(session_id),
                owner=owner,
                observed=observed.fence,
                observed_is_dead=is_dead,
                ttl_ms=ttl_ms,
                now_ms=transaction.now_ms,
            )
            return _carry_out(transaction, decision, session_id, owner, ttl_ms)

        return await self._database.write_briefly(body)

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        check_fence("fence", fence, ResourceKind.SESSION)
        check_ttl(ttl_ms)

        def body(transaction: Transaction) -> Lease:
            row = lease_row(transaction, fence.resource.id)
            lease = plan_renewal(row, fence=fence, ttl_ms=ttl_ms, now_ms=transaction.now_ms)
            _extend(transaction, lease)
            return lease

        return await self._database.write_briefly(body)

    async def release(self, fence: LeaseFence, *, pause_ms: int = 0) -> bool:
        check_fence("fence", fence, ResourceKind.SESSION)
        check_pause(pause_ms)

        def body(transaction: Transaction) -> bool:
            lease_row(transaction, fence.resource.id)
            return release_lease(transaction, fence, pause_ms)

        released = await self._database.write_briefly(body)
        if released:
            self._hints.notify(process=False)
        return released

    async def holder(self, session_id: str) -> Lease | None:
        check_identifier("session_id", session_id)
        row = self._database.read(lambda reader: lease_row(reader, session_id))
        return held_lease(row, session_resource(session_id))


def lease_row(reader: Reader, session_id: str) -> LeaseRow:
    """Return the lease row of a session, or raise SessionNotFound or SessionDeleted."""
    row = reader.one(LeaseRow, "lease_row", session_id=session_id)
    if row is None:
        deleted = reader.one(Flag, "session_is_deleted", session_id=session_id)
        raise missing_session(session_id, deleted=deleted is not None and deleted.value)
    return row


def release_lease(transaction: Transaction, fence: LeaseFence, pause_ms: int = 0) -> bool:
    """Free the lease if the fence still holds it, and return whether it did; the session then pauses."""
    released = transaction.run(
        "lease_release",
        session_id=fence.resource.id,
        owner_id=fence.owner_id,
        incarnation_id=fence.incarnation_id,
        token=fence.token,
        fencing=fence.fencing,
        pause_ms=pause_ms,
        now_ms=transaction.now_ms,
    )
    return released > 0


def _carry_out(
    transaction: Transaction, decision: ClaimDecision, session_id: str, owner: LeaseOwner, ttl_ms: int
) -> LeaseOutcome:
    if isinstance(decision, Acquire):
        lease = take_lease(transaction, decision.fencing, session_id, owner, ttl_ms, token=new_id())
        return Acquired(lease=lease, displaced=decision.displaced)
    if isinstance(decision, Reenter):
        _extend(transaction, decision.lease)
    return outcome_of(decision)


def take_lease(
    transaction: Transaction, fencing: int, session_id: str, owner: LeaseOwner, ttl_ms: int, *, token: str
) -> Lease:
    """Give the lease to a new holder under this number."""
    lease = Lease(
        resource=session_resource(session_id),
        owner=owner,
        token=token,
        fencing=fencing,
        claimed_at_ms=transaction.now_ms,
        expires_at_ms=saturating_add(transaction.now_ms, ttl_ms),
    )
    transaction.run(
        "lease_acquire",
        session_id=session_id,
        fencing=lease.fencing,
        owner_id=owner.owner_id,
        incarnation_id=owner.incarnation_id,
        process=None if owner.process is None else encode(owner.process, LocalProcess, "owner.process"),
        token=lease.token,
        now_ms=lease.claimed_at_ms,
        expires_at_ms=lease.expires_at_ms,
    )
    return lease


def _extend(transaction: Transaction, lease: Lease) -> None:
    """Write the new expiry of a lease, and keep the claims made under it as long."""
    transaction.run(
        "lease_extend",
        session_id=lease.resource.id,
        token=lease.token,
        fencing=lease.fencing,
        expires_at_ms=lease.expires_at_ms,
    )
    transaction.run(
        "queue_extend_under_lease",
        session_id=lease.resource.id,
        fencing=lease.fencing,
        expires_at_ms=lease.expires_at_ms,
    )
