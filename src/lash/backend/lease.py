"""The session leases of every backend."""

from __future__ import annotations

from functools import partial

from lash.backend.liveness import is_provably_dead
from lash.base.limits import check_identifier
from lash.model.lease import (
    Lease,
    LeaseFence,
    LeaseOutcome,
    LeaseOwner,
    LeasePage,
    ParkedTurn,
    ResourceKind,
    session_resource,
)
from lash.plan.lease import (
    LeaseClaim,
    check_claim,
    check_fence,
    check_observed,
    check_ttl,
    decode_lease_page,
    held_lease,
    plan_claim,
    plan_renewal,
    prepare_lease_page,
)
from lash.plan.park import check_parking, parked_turn, plan_park
from lash.plan.work import check_pause
from lash.stores.hints import Hints
from lash.stores.lease import LeaseRows


class Leases:
    """The session leases of one storage; the contract is `lash.stores.lease.LeaseStore`."""

    def __init__(self, rows: LeaseRows, hints: Hints) -> None:
        self._rows = rows
        self._hints = hints

    async def claim(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> LeaseOutcome:
        check_identifier("session_id", session_id)
        check_claim(owner, ttl_ms)
        return await self._claim(LeaseClaim(resource=session_resource(session_id), owner=owner, ttl_ms=ttl_ms))

    async def reclaim(self, session_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> LeaseOutcome:
        check_identifier("session_id", session_id)
        check_claim(owner, ttl_ms)
        check_observed(observed, ResourceKind.SESSION)
        is_dead = is_provably_dead(observed.owner.process, owner.process)
        displacing = observed.fence if is_dead else None
        resource = session_resource(session_id)
        return await self._claim(LeaseClaim(resource=resource, owner=owner, ttl_ms=ttl_ms, displacing=displacing))

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        check_fence("fence", fence, ResourceKind.SESSION)
        check_ttl(ttl_ms)
        return await self._rows.renew(fence, ttl_ms, partial(plan_renewal, fence=fence, ttl_ms=ttl_ms))

    async def release(self, fence: LeaseFence, *, pause_ms: int = 0) -> bool:
        check_fence("fence", fence, ResourceKind.SESSION)
        check_pause(pause_ms)
        released = await self._rows.release(fence, pause_ms)
        if released:
            self._hints.notify(process=False, changed=fence.resource.id, timed=pause_ms > 0)
        return released

    async def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None, waiting_for: str) -> bool:
        check_fence("fence", fence, ResourceKind.SESSION)
        parking = check_parking(wake_seq, until_ms, waiting_for)
        parked = await self._rows.park(fence, parking, partial(plan_park, fence=fence, parking=parking))
        self._hints.notify(process=False, changed=fence.resource.id, timed=until_ms is not None)
        return parked

    async def parked(self, session_id: str) -> ParkedTurn | None:
        check_identifier("session_id", session_id)
        return parked_turn(await self._rows.row(session_id))

    async def holder(self, session_id: str) -> Lease | None:
        check_identifier("session_id", session_id)
        return held_lease(await self._rows.row(session_id), session_resource(session_id))

    async def live(self, kind: ResourceKind | None = None, *, limit: int = 100, cursor: str | None = None) -> LeasePage:
        wanted = prepare_lease_page(kind, limit=limit, cursor=cursor)
        return decode_lease_page(wanted, await self._rows.live(wanted))

    async def _claim(self, claim: LeaseClaim) -> LeaseOutcome:
        return await self._rows.claim(claim, partial(plan_claim, claim=claim))
