"""The lease rows of sessions on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.ids import new_id
from lash.base.limits import saturating_add
from lash.model.lease import Acquired, Lease, LeaseFence, LeaseOutcome, LeaseOwner, session_resource
from lash.plan.lease import (
    Acquire,
    DecideClaim,
    DecideRenewal,
    LeaseClaim,
    LeaseRow,
    LiveLeaseRow,
    PreparedLeasePage,
    Reenter,
    encode_process,
    outcome_of,
)
from lash.plan.park import DecidePark, Parking
from lash.plan.session.session import missing_session
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlkit.rows import Flag


class SQLiteLeaseRows:
    """The session leases of one SQLite storage; the contract is `lash.stores.lease.LeaseRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def row(self, session_id: str) -> LeaseRow:
        return self._database.read(lambda reader: lease_row(reader, session_id))

    async def live(self, wanted: PreparedLeasePage) -> Sequence[LiveLeaseRow]:
        def body(reader: Reader) -> Sequence[LiveLeaseRow]:
            return reader.all(
                LiveLeaseRow,
                "lease_live",
                wanted=wanted.kind,
                limit=wanted.limit,
                now_ms=reader.now_ms,
                **wanted.after._asdict(),
            )

        return await self._database.read_in_thread(body)

    async def claim(self, claim: LeaseClaim, decide: DecideClaim) -> LeaseOutcome:
        session_id = claim.resource.id

        def body(transaction: Transaction) -> LeaseOutcome:
            decision = decide(lease_row(transaction, session_id), transaction.now_ms)
            if isinstance(decision, Acquire):
                lease = take_lease(transaction, decision.fencing, session_id, claim.owner, claim.ttl_ms, token=new_id())
                return Acquired(lease=lease, displaced=decision.displaced)
            if isinstance(decision, Reenter):
                _extend(transaction, decision.lease)
            return outcome_of(decision)

        return await self._database.write_briefly(body)

    async def renew(self, fence: LeaseFence, ttl_ms: int, decide: DecideRenewal) -> Lease:  # noqa: ARG002 (decided)
        def body(transaction: Transaction) -> Lease:
            lease = decide(lease_row(transaction, fence.resource.id), transaction.now_ms)
            _extend(transaction, lease)
            return lease

        return await self._database.write_briefly(body)

    async def release(self, fence: LeaseFence, pause_ms: int) -> bool:
        def body(transaction: Transaction) -> bool:
            lease_row(transaction, fence.resource.id)
            return release_lease(transaction, fence, pause_ms)

        return await self._database.write_briefly(body)

    async def park(self, fence: LeaseFence, parking: Parking, decide: DecidePark) -> bool:
        def body(transaction: Transaction) -> bool:
            session_id = fence.resource.id
            parked = decide(lease_row(transaction, session_id), transaction.now_ms)
            transaction.run(
                "lease_park",
                session_id=session_id,
                token=fence.token,
                fencing=fence.fencing,
                until_ms=parking.until_ms,
                waiting_for=parking.waiting_for if parked else None,
            )
            transaction.run("lease_park_input", session_id=session_id, fencing=fence.fencing, parked=parked)
            return parked

        return await self._database.write_briefly(body)


def unpark(transaction: Transaction, session_key: int) -> None:
    """Put the input of a parked turn that is ready back into the queue."""
    if transaction.run("lease_unpark", session_key=session_key, now_ms=transaction.now_ms):
        transaction.run("lease_unpark_input", session_key=session_key)


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


def take_lease(
    transaction: Transaction, fencing: int, session_id: str, owner: LeaseOwner, ttl_ms: int, *, token: str
) -> Lease:
    """Give the lease to a new holder under this fencing number and token."""
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
        process=encode_process(owner),
        token=lease.token,
        now_ms=lease.claimed_at_ms,
        expires_at_ms=lease.expires_at_ms,
    )
    return lease


def _extend(transaction: Transaction, lease: Lease) -> None:
    """Write the new expiry of a lease, and extend the claims made under it to the same moment."""
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
