"""The right to run a process, on every backend."""

from __future__ import annotations

from functools import partial

from lash.backend.liveness import is_provably_dead
from lash.backend.process.process import notify_change
from lash.backend.waiter import SharedProcessWaiter
from lash.base.limits import check_identifier
from lash.model.lease import Lease, LeaseFence, LeaseOwner, ResourceKind, process_resource
from lash.model.process.continuation import Continuation
from lash.model.process.process import (
    Outcome,
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRecord,
    Registered,
    Registration,
)
from lash.plan.lease import (
    LeaseClaim,
    LeaseRow,
    check_claim,
    check_fence,
    check_observed,
    check_ttl,
    held_lease,
    plan_renewal,
    require_fence,
)
from lash.plan.process.append import AppendConditions, append_request
from lash.plan.process.event_draft import completion_draft, continuation_draft
from lash.plan.process.lease import run_claim
from lash.plan.process.process import encode_registration, same_registration
from lash.plan.work import check_park
from lash.stores.hints import Hints
from lash.stores.process.event import EventRows
from lash.stores.process.process import ProcessLeaseRows


class ProcessLeases:
    """The process leases of one storage; the contract is `lash.stores.process.process.ProcessLeaseStore`.

    The waiter learns from here which processes this storage runs and how they end. A refused claim changes nothing
    and gives no hint.
    """

    def __init__(self, rows: ProcessLeaseRows, events: EventRows, hints: Hints, waiter: SharedProcessWaiter) -> None:
        self._rows = rows
        self._events = events
        self._hints = hints
        self._waiter = waiter

    async def claim(self, process_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ProcessLeaseOutcome:
        check_identifier("process_id", process_id)
        check_claim(owner, ttl_ms)
        return await self._claim(LeaseClaim(resource=process_resource(process_id), owner=owner, ttl_ms=ttl_ms))

    async def register_and_claim(
        self, registration: Registration, owner: LeaseOwner, *, ttl_ms: int
    ) -> ProcessAcquired | Registered:
        check_claim(owner, ttl_ms)
        encoded = encode_registration(registration)
        claim = LeaseClaim(resource=process_resource(registration.process_id), owner=owner, ttl_ms=ttl_ms)
        stored = await self._rows.register_and_claim(encoded, run_claim(claim))
        if isinstance(stored, ProcessAcquired):
            self._note_run(claim)
            return stored
        if stored.created:
            self._hints.notify(process_id=registration.process_id)
        return Registered(record=same_registration(encoded, stored.row), created=stored.created)

    async def reclaim(self, process_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> ProcessLeaseOutcome:
        check_identifier("process_id", process_id)
        check_claim(owner, ttl_ms)
        check_observed(observed, ResourceKind.PROCESS)
        is_dead = is_provably_dead(observed.owner.process, owner.process)
        displacing = observed.fence if is_dead else None
        resource = process_resource(process_id)
        return await self._claim(LeaseClaim(resource=resource, owner=owner, ttl_ms=ttl_ms, displacing=displacing))

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        check_fence("fence", fence, ResourceKind.PROCESS)
        check_ttl(ttl_ms)
        renewed = await self._rows.renew(fence, ttl_ms, partial(plan_renewal, fence=fence, ttl_ms=ttl_ms))
        self._waiter.note_lease(fence.resource.id, ttl_ms)
        return renewed

    async def release(self, fence: LeaseFence) -> bool:
        check_fence("fence", fence, ResourceKind.PROCESS)
        self._waiter.note_free(fence.resource.id)
        released = await self._rows.release(fence)
        self._hints.notify(process_id=fence.resource.id)
        return released

    async def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None) -> bool:
        check_fence("fence", fence, ResourceKind.PROCESS)
        check_park(wake_seq, until_ms)
        self._waiter.note_free(fence.resource.id)

        def decide(row: LeaseRow, now_ms: int) -> Lease:
            return require_fence(row, fence, now_ms)

        parked = await self._rows.park(fence, wake_seq, until_ms, decide)
        self._hints.notify(process_id=fence.resource.id, timed=until_ms is not None)
        return parked

    async def continue_as_new(self, fence: LeaseFence, continuation: Continuation) -> ProcessRecord:
        check_fence("fence", fence, ResourceKind.PROCESS)
        process_id = fence.resource.id
        draft = continuation_draft(process_id, continuation)
        result = await self._events.append(append_request(process_id, draft, AppendConditions(fence=fence)))
        notify_change(self._hints, result.record)
        return result.record

    async def complete(self, fence: LeaseFence, outcome: Outcome) -> ProcessRecord:
        check_fence("fence", fence, ResourceKind.PROCESS)
        process_id = fence.resource.id
        conditions = AppendConditions(fence=fence, ends=True)
        result = await self._events.append(
            append_request(process_id, completion_draft(process_id, outcome), conditions)
        )
        self._waiter.deliver_end(result.record)
        notify_change(self._hints, result.record)
        return result.record

    async def holder(self, process_id: str) -> Lease | None:
        check_identifier("process_id", process_id)
        return held_lease(await self._rows.row(process_id), process_resource(process_id))

    async def _claim(self, claim: LeaseClaim) -> ProcessLeaseOutcome:
        outcome = await self._rows.claim(run_claim(claim))
        if isinstance(outcome, ProcessAcquired):
            self._note_run(claim)
        return outcome

    def _note_run(self, claim: LeaseClaim) -> None:
        self._waiter.note_lease(claim.resource.id, claim.ttl_ms)
        self._hints.notify(work=False, later=True, process_id=claim.resource.id)
