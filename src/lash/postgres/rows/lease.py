"""Session leases on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from typing import Final

from lash.backend.liveness import is_provably_dead
from lash.base.codec import encode
from lash.base.ids import new_id
from lash.base.limits import check_identifier
from lash.errors import CorruptData, StoreUnavailable
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
    LeaseRow,
    Reenter,
    check_claim,
    check_fence,
    check_observed,
    check_ttl,
    held_lease,
    outcome_of,
    plan_claim,
    plan_renewal,
)
from lash.plan.session.session import missing_session
from lash.plan.work import check_pause
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.rows import AcquireAnswer, LeaseAnswer
from lash.sqlkit.rows import Flag
from lash.stores.hints import Hints

_MAX_PLANS: Final = 10


class PostgresLeaseStore:
    """The session leases of one PostgreSQL storage; the contract is `lash.stores.lease.LeaseStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def claim(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> LeaseOutcome:
        check_identifier("session_id", session_id)
        check_claim(owner, ttl_ms)
        return await self._acquire(session_id, owner, ttl_ms, displacing=None)

    async def reclaim(self, session_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> LeaseOutcome:
        check_identifier("session_id", session_id)
        check_claim(owner, ttl_ms)
        check_observed(observed, ResourceKind.SESSION)
        is_dead = is_provably_dead(observed.owner.process, owner.process)
        return await self._acquire(session_id, owner, ttl_ms, displacing=observed.fence if is_dead else None)

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        check_fence("fence", fence, ResourceKind.SESSION)
        check_ttl(ttl_ms)
        for _ in range(_MAX_PLANS):
            renewed = await self._extend(fence, ttl_ms)
            if renewed is not None:
                return renewed
            answer = await self._answer(fence.resource.id)
            plan_renewal(answer.row, fence=fence, ttl_ms=ttl_ms, now_ms=answer.now_ms)
        raise _kept_changing(fence.resource.id)

    async def release(self, fence: LeaseFence, *, pause_ms: int = 0) -> bool:
        check_fence("fence", fence, ResourceKind.SESSION)
        check_pause(pause_ms)
        released = await release_lease(self._database, fence, pause_ms)
        if released:
            self._hints.notify(process=False)
        else:
            await self._answer(fence.resource.id)
        return released

    async def holder(self, session_id: str) -> Lease | None:
        check_identifier("session_id", session_id)
        return held_lease((await self._answer(session_id)).row, session_resource(session_id))

    async def _acquire(
        self, session_id: str, owner: LeaseOwner, ttl_ms: int, *, displacing: LeaseFence | None
    ) -> LeaseOutcome:
        """Take a lease that is free, lapsed or held by the fence that may be displaced; else see what is in the way."""
        resource = session_resource(session_id)
        for _ in range(_MAX_PLANS):
            answer = await self._try_acquire(session_id, owner, ttl_ms, displacing)
            if answer.taken is not None:
                return Acquired(
                    lease=_held(answer.taken, session_id),
                    displaced=held_lease(answer.before, resource),
                )
            decision = plan_claim(answer.before, resource=resource, owner=owner, ttl_ms=ttl_ms, now_ms=answer.now_ms)
            if isinstance(decision, Acquire):
                continue
            if not isinstance(decision, Reenter):
                return outcome_of(decision)
            extended = await self._extend(decision.lease.fence, ttl_ms)
            if extended is not None:
                return Acquired(lease=extended, reentered=True)
        raise _kept_changing(session_id)

    async def _try_acquire(
        self, session_id: str, owner: LeaseOwner, ttl_ms: int, displacing: LeaseFence | None
    ) -> AcquireAnswer:
        # Repeating it after a lost connection is harmless: the same holder then re-enters.
        answer = await self._database.write_one(
            AcquireAnswer,
            "lease_acquire",
            session_id,
            owner.owner_id,
            owner.incarnation_id,
            None if owner.process is None else encode(owner.process, LocalProcess, "owner.process"),
            new_id(),
            ttl_ms,
            None if displacing is None else displacing.token,
            None if displacing is None else displacing.fencing,
            repeatable=True,
        )
        if answer is None:
            raise await self._missing(session_id)
        return answer

    async def _extend(self, fence: LeaseFence, ttl_ms: int) -> Lease | None:
        row = await self._database.write_one(
            LeaseRow, "lease_extend", *_fence_arguments(fence), ttl_ms, repeatable=True
        )
        return None if row is None else _held(row, fence.resource.id)

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
    released = await database.write_one(Flag, "lease_release", *_fence_arguments(fence), pause_ms, repeatable=True)
    return released is not None


def _fence_arguments(fence: LeaseFence) -> tuple[str, str, str, str, int]:
    return (fence.resource.id, fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)


def _held(row: LeaseRow, session_id: str) -> Lease:
    lease = held_lease(row, session_resource(session_id))
    if lease is None:
        raise CorruptData(f"the lease of session {session_id!r} was written without a holder")
    return lease


def _kept_changing(session_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"the lease of session {session_id!r} changed {_MAX_PLANS} times while it was asked for")
