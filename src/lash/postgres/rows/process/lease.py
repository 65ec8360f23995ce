"""The right to run a process, on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from typing import Final

from lash.backend.liveness import is_provably_dead
from lash.backend.waiter import SharedProcessWaiter
from lash.base.ids import new_id
from lash.base.limits import check_identifier
from lash.errors import StoreUnavailable
from lash.model.lease import Lease, LeaseFence, LeaseOwner, ResourceKind, process_resource
from lash.model.process.process import (
    Outcome,
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRecord,
    Registered,
    Registration,
)
from lash.plan.lease import check_claim, check_fence, check_observed, check_ttl, held_lease, plan_renewal, require_fence
from lash.plan.process.event import check_draft
from lash.plan.process.event_draft import completion_draft
from lash.plan.process.process import EncodedRegistration, encode_registration
from lash.plan.work import check_park, parent_of
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.postgres.rows.lease import LeaseAnswer
from lash.postgres.rows.process.append import Terms, missing_record, run_append
from lash.postgres.rows.process.process import register
from lash.postgres.rows.process.process_begin import begin
from lash.postgres.rows.process.process_claim import Claim, ProcessClaims, extend, fence_arguments, held
from lash.postgres.rows.process.process_end import ProcessEnds
from lash.sqlkit.rows import Flag
from lash.stores.hints import Hints

_MAX_PLANS: Final = 10


class PostgresProcessLeaseStore:
    """The process leases of one PostgreSQL storage; the contract is `lash.stores.process.process.ProcessLeaseStore`."""

    def __init__(self, database: Database, seen: ProcessCache, hints: Hints, waiter: SharedProcessWaiter) -> None:
        """Build the store; it tells the waiter which processes are run here, and how they end."""
        self._database = database
        self._seen = seen
        self._hints = hints
        self._waiter = waiter
        self._claims = ProcessClaims(database, seen)
        self._ends = ProcessEnds(database, seen)

    async def claim(self, process_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ProcessLeaseOutcome:
        check_identifier("process_id", process_id)
        check_claim(owner, ttl_ms)
        return await self._claim(Claim(process_id=process_id, owner=owner, ttl_ms=ttl_ms, displacing=None))

    async def register_and_claim(
        self, registration: Registration, owner: LeaseOwner, *, ttl_ms: int
    ) -> ProcessAcquired | Registered:
        check_claim(owner, ttl_ms)
        encoded, token = encode_registration(registration), new_id()
        begun: ProcessAcquired | Registered | None = None
        if encoded.runnable:
            begun = await begin(self._database, self._seen, encoded, owner, token, ttl_ms)
        if begun is None:
            begun = await self._register(encoded, token)
        if isinstance(begun, ProcessAcquired):
            self._waiter.note_lease(registration.process_id, ttl_ms)
            self._hints.notify(work=False, later=True)
        return begun

    async def reclaim(self, process_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> ProcessLeaseOutcome:
        check_identifier("process_id", process_id)
        check_claim(owner, ttl_ms)
        check_observed(observed, ResourceKind.PROCESS)
        is_dead = is_provably_dead(observed.owner.process, owner.process)
        displacing = observed.fence if is_dead else None
        return await self._claim(Claim(process_id=process_id, owner=owner, ttl_ms=ttl_ms, displacing=displacing))

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        check_fence("fence", fence, ResourceKind.PROCESS)
        check_ttl(ttl_ms)
        for _ in range(_MAX_PLANS):
            renewed = await extend(self._database, fence, ttl_ms)
            if renewed is not None:
                self._waiter.note_lease(fence.resource.id, ttl_ms)
                return held(renewed.row, fence.resource.id)
            answer = await self._answer(fence.resource.id)
            plan_renewal(answer.row, answer.now_ms, fence=fence, ttl_ms=ttl_ms)
        raise _kept_changing(fence.resource.id)

    async def release(self, fence: LeaseFence) -> bool:
        check_fence("fence", fence, ResourceKind.PROCESS)
        self._waiter.note_free(fence.resource.id)
        released = await self._release(fence)
        if not released:
            await self._answer(fence.resource.id)
        self._hints.notify()
        return released

    async def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None) -> bool:
        check_fence("fence", fence, ResourceKind.PROCESS)
        check_park(wake_seq, until_ms)
        self._waiter.note_free(fence.resource.id)
        for _ in range(_MAX_PLANS):
            # Not repeated after a lost connection: the fence that the first try gave up would look like a lost one.
            parked = await self._database.write_one(
                Flag, "process_lease_park", *fence_arguments(fence), wake_seq, until_ms, repeatable=False
            )
            if parked is not None:
                self._hints.notify()
                return parked.value
            answer = await self._answer(fence.resource.id)
            require_fence(answer.row, fence, answer.now_ms)
        raise _kept_changing(fence.resource.id)

    async def complete(self, fence: LeaseFence, outcome: Outcome) -> ProcessRecord:
        check_fence("fence", fence, ResourceKind.PROCESS)
        process_id, draft = fence.resource.id, check_draft(completion_draft(fence.resource.id, outcome))
        record = await self._ends.end(fence, draft)
        if record is None:
            result = await run_append(self._database, self._seen, process_id, draft, Terms(fence=fence, ends=True))
            record = result.record
            if result.appended.replayed:
                # Somebody ended the process likewise without this lease, which is then still held.
                await self._release(fence)
        self._waiter.deliver_end(record)
        self._hints.notify(work=parent_of(record.registration) is not None)
        return record

    async def holder(self, process_id: str) -> Lease | None:
        check_identifier("process_id", process_id)
        lease = held_lease((await self._answer(process_id)).row, process_resource(process_id))
        return None if lease is None else lease

    async def _claim(self, claim: Claim) -> ProcessLeaseOutcome:
        outcome = await self._claims.claim(claim)
        if isinstance(outcome, ProcessAcquired):
            self._waiter.note_lease(claim.process_id, claim.ttl_ms)
            self._hints.notify(work=False, later=True)
        return outcome

    async def _register(self, encoded: EncodedRegistration, token: str) -> ProcessAcquired | Registered:
        """Register a process without its lease, unless a try to begin it whose answer was lost has taken that."""
        registered = await register(self._database, self._seen, encoded)
        record = registered.record
        if registered.created:
            self._hints.notify()
            return registered
        row = (await self._answer(record.process_id)).row
        if row.token != token:
            return registered
        return ProcessAcquired(lease=held(row, record.process_id), record=record, wake_seq=0, has_effects=False)

    async def _release(self, fence: LeaseFence) -> bool:
        arguments = fence_arguments(fence)
        released = await self._database.write_one(Flag, "process_lease_release", *arguments, repeatable=True)
        return released is not None

    async def _answer(self, process_id: str) -> LeaseAnswer:
        answer = await self._database.read_one(LeaseAnswer, "process_lease_row", process_id)
        if answer is None:
            raise await missing_record(self._database, self._seen, process_id)
        return answer


def _kept_changing(process_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"process {process_id!r} or its lease changed {_MAX_PLANS} times while it was asked for")
