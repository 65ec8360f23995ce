"""The lease rows of sessions on PostgreSQL; the clock of the server decides."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.base.backoff import MAX_PLANS
from lash.base.ids import new_id
from lash.errors import CorruptData, StoreUnavailable
from lash.model.lease import Acquired, Lease, LeaseFence, LeaseOutcome, Resource
from lash.plan.lease import (
    DecideClaim,
    DecideRenewal,
    LeaseClaim,
    LeaseRow,
    LiveLeaseRow,
    PreparedLeasePage,
    Reenter,
    Refuse,
    held_lease,
    outcome_of,
)
from lash.plan.park import DecidePark, Parking
from lash.plan.session.session import missing_session
from lash.postgres.arguments import fence_proof
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Flag


class LeaseAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The time and a lease row."""

    now_ms: int
    row: LeaseRow


class _AcquireAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The time, the lease row before the statement, and the row after it if the lease was acquired."""

    now_ms: int
    before: LeaseRow
    taken: LeaseRow | None


class PostgresLeaseRows:
    """The session leases of one PostgreSQL storage; the contract is `lash.stores.lease.LeaseRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def row(self, session_id: str) -> LeaseRow:
        return (await self._answer(session_id)).row

    async def live(self, wanted: PreparedLeasePage) -> Sequence[LiveLeaseRow]:
        arguments = (wanted.kind, *wanted.after, wanted.limit)
        return await self._database.read_all(LiveLeaseRow, "lease_live", *arguments)

    async def claim(self, claim: LeaseClaim, decide: DecideClaim) -> LeaseOutcome:
        resource = claim.resource
        for _ in range(MAX_PLANS):
            answer = await self._acquire(claim)
            if answer.taken is not None:
                displaced = held_lease(answer.before, resource)
                return Acquired(lease=written_lease(answer.taken, resource), displaced=displaced)
            decision = decide(answer.before, answer.now_ms)
            if isinstance(decision, Refuse):
                return outcome_of(decision)
            if isinstance(decision, Reenter):
                extended = await self._extend(decision.lease.fence, claim.ttl_ms)
                if extended is not None:
                    return Acquired(lease=extended, reentered=True)
        raise _kept_changing(resource)

    async def renew(self, fence: LeaseFence, ttl_ms: int, decide: DecideRenewal) -> Lease:
        for _ in range(MAX_PLANS):
            renewed = await self._extend(fence, ttl_ms)
            if renewed is not None:
                return renewed
            answer = await self._answer(fence.resource.id)
            decide(answer.row, answer.now_ms)
        raise _kept_changing(fence.resource)

    async def release(self, fence: LeaseFence, pause_ms: int) -> bool:
        released = await release_lease(self._database, fence, pause_ms)
        if not released:
            await self._answer(fence.resource.id)
        return released

    async def park(self, fence: LeaseFence, parking: Parking, decide: DecidePark) -> bool:
        arguments = (*fence_arguments(fence), parking.wake_seq, parking.until_ms, parking.waiting_for)
        for _ in range(MAX_PLANS):
            # Not repeated after a lost connection: the fence that the first try gave up would be reported as lost.
            parked = await self._database.write_one(Flag, "lease_park", *arguments, repeatable=False)
            if parked is not None:
                return parked.value
            answer = await self._answer(fence.resource.id)
            decide(answer.row, answer.now_ms)
        raise _kept_changing(fence.resource)

    async def _acquire(self, claim: LeaseClaim) -> _AcquireAnswer:
        owner, displacing = claim.owner, claim.displacing
        # Safe to repeat after a lost connection: the same holder then re-enters.
        answer = await self._database.write_one(
            _AcquireAnswer,
            "lease_acquire",
            *(claim.resource.id, owner.owner_id, owner.incarnation_id, claim.process, new_id(), claim.ttl_ms),
            *((None, None) if displacing is None else (displacing.token, displacing.fencing)),
            repeatable=True,
        )
        if answer is None:
            raise await self._missing(claim.resource.id)
        return answer

    async def _extend(self, fence: LeaseFence, ttl_ms: int) -> Lease | None:
        row = await self._database.write_one(LeaseRow, "lease_extend", *fence_arguments(fence), ttl_ms, repeatable=True)
        return None if row is None else written_lease(row, fence.resource)

    async def _answer(self, session_id: str) -> LeaseAnswer:
        answer = await self._database.read_one(LeaseAnswer, "lease_row", session_id)
        if answer is None:
            raise await self._missing(session_id)
        return answer

    async def _missing(self, session_id: str) -> Exception:
        deleted = await self._database.read_one(Flag, "session_is_deleted", session_id)
        return missing_session(session_id, deleted=deleted is not None and deleted.value)


async def release_lease(database: Database, fence: LeaseFence, pause_ms: int = 0) -> bool:
    """Free the lease if the fence still holds it, and return whether it did; the session then pauses."""
    released = await database.write_one(Flag, "lease_release", *fence_arguments(fence), pause_ms, repeatable=True)
    return released is not None


def fence_arguments(fence: LeaseFence) -> tuple[str, str, str, str, int]:
    """Return the parts of a fence in the order of the statements' parameters."""
    return (fence.resource.id, *fence_proof(fence))


def written_lease(row: LeaseRow, resource: Resource) -> Lease:
    """Return the lease of a row that was just written."""
    lease = held_lease(row, resource)
    if lease is None:
        raise CorruptData(f"the lease of {resource} was written without a holder")
    return lease


def _kept_changing(resource: Resource) -> StoreUnavailable:
    return StoreUnavailable(f"the lease of {resource} changed {MAX_PLANS} times during the call; retry it")
