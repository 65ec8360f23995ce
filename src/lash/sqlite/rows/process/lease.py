"""The right to run a process, on SQLite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from lash.backend.liveness import is_provably_dead
from lash.backend.waiter import SharedProcessWaiter
from lash.base.codec import encode
from lash.base.ids import new_id
from lash.base.limits import saturating_add
from lash.errors import CorruptData
from lash.model.lease import Lease, LeaseFence, LeaseOwner, LocalProcess, ResourceKind, process_resource
from lash.model.process.process import (
    Outcome,
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRecord,
    ProcessRefused,
    RefusalReason,
    Registered,
    Registration,
)
from lash.plan.lease import (
    Acquire,
    ClaimDecision,
    LeaseClaim,
    LeaseRow,
    Refuse,
    check_claim,
    check_fence,
    check_observed,
    check_ttl,
    held_lease,
    plan_claim,
    plan_renewal,
    require_fence,
)
from lash.plan.process.event import check_draft
from lash.plan.process.event_draft import completion_draft, started_draft
from lash.plan.process.lease import refuse_run
from lash.plan.process.process import ProcessRow, decode_process, encode_registration, same_registration
from lash.plan.work import check_park, parent_of
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.rows.process.event import append_to, find_process, process_lease_row
from lash.sqlite.rows.process.process import register
from lash.sqlkit.rows import Flag, Number
from lash.stores.hints import Hints

T = TypeVar("T")


class _Acquired(msgspec.Struct, frozen=True, array_like=True):
    """How many reasons there are to run a process that was claimed, and whether anything is recorded of it."""

    wake_seq: int
    has_effects: bool


class SQLiteProcessLeaseStore:
    """The process leases of one SQLite storage; the contract is `lash.stores.process.process.ProcessLeaseStore`."""

    def __init__(self, database: Database, hints: Hints, waiter: SharedProcessWaiter) -> None:
        """Build the store; it tells the waiter which processes are run here, and how they end."""
        self._database = database
        self._hints = hints
        self._waiter = waiter

    async def claim(self, process_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ProcessLeaseOutcome:
        check_claim(owner, ttl_ms)

        def body(transaction: Transaction) -> ProcessLeaseOutcome:
            return _claim(transaction, find_process(transaction, process_id), owner, ttl_ms, displacing=None)

        return self._noted(process_id, ttl_ms, await self._write(body, work=False))

    async def register_and_claim(
        self, registration: Registration, owner: LeaseOwner, *, ttl_ms: int
    ) -> ProcessAcquired | Registered:
        check_claim(owner, ttl_ms)
        encoded, process_id = encode_registration(registration), registration.process_id

        def body(transaction: Transaction) -> ProcessAcquired | Registered:
            row, created = register(transaction, encoded)
            claimed = _claim(transaction, row, owner, ttl_ms, displacing=None) if created else None
            if isinstance(claimed, ProcessAcquired):
                return claimed
            return Registered(record=same_registration(encoded, row), created=created)

        begun = await self._database.write_briefly(body)
        if isinstance(begun, ProcessAcquired):
            self._waiter.note_lease(process_id, ttl_ms)
        self._hints.notify(work=isinstance(begun, Registered))
        return begun

    async def reclaim(self, process_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> ProcessLeaseOutcome:
        check_claim(owner, ttl_ms)
        check_observed(observed, ResourceKind.PROCESS)
        is_dead = is_provably_dead(observed.owner.process, owner.process)

        def body(transaction: Transaction) -> ProcessLeaseOutcome:
            row = find_process(transaction, process_id)
            return _claim(transaction, row, owner, ttl_ms, displacing=observed.fence if is_dead else None)

        return self._noted(process_id, ttl_ms, await self._write(body, work=False))

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        check_fence("fence", fence, ResourceKind.PROCESS)
        check_ttl(ttl_ms)

        def body(transaction: Transaction) -> Lease:
            key = find_process(transaction, fence.resource.id).process_key
            row = process_lease_row(transaction, key)
            lease = plan_renewal(row, transaction.now_ms, fence=fence, ttl_ms=ttl_ms)
            _extend(transaction, key, lease)
            return lease

        lease = await self._database.write_briefly(body)
        self._waiter.note_lease(fence.resource.id, ttl_ms)
        return lease

    async def release(self, fence: LeaseFence) -> bool:
        check_fence("fence", fence, ResourceKind.PROCESS)
        self._waiter.note_free(fence.resource.id)

        def body(transaction: Transaction) -> bool:
            return _release(transaction, find_process(transaction, fence.resource.id).process_key, fence)

        return await self._write(body)

    async def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None) -> bool:
        check_fence("fence", fence, ResourceKind.PROCESS)
        check_park(wake_seq, until_ms)
        self._waiter.note_free(fence.resource.id)

        def body(transaction: Transaction) -> bool:
            key = find_process(transaction, fence.resource.id).process_key
            require_fence(process_lease_row(transaction, key), fence, transaction.now_ms)
            parked = transaction.one(
                Flag,
                "process_lease_park",
                process_key=key,
                token=fence.token,
                fencing=fence.fencing,
                wake_seq=wake_seq,
                until_ms=until_ms,
            )
            return parked is not None and parked.value

        return await self._write(body)

    async def complete(self, fence: LeaseFence, outcome: Outcome) -> ProcessRecord:
        check_fence("fence", fence, ResourceKind.PROCESS)
        process_id = fence.resource.id
        draft = check_draft(completion_draft(process_id, outcome))

        def body(transaction: Transaction) -> ProcessRecord:
            row = find_process(transaction, process_id)
            record = decode_process(row)
            # A process that ended is answered from its log: the caller may repeat what it did not hear of.
            if not record.is_terminal:
                require_fence(process_lease_row(transaction, row.process_key), fence, transaction.now_ms)
            ended = append_to(transaction, row.process_key, record, draft)[1]
            _release(transaction, row.process_key, fence)
            return ended

        record = await self._database.write_briefly(body)
        self._waiter.deliver_end(record)
        self._hints.notify(work=parent_of(record.registration) is not None)
        return record

    async def holder(self, process_id: str) -> Lease | None:
        def body(reader: Reader) -> LeaseRow:
            return process_lease_row(reader, find_process(reader, process_id).process_key)

        held = held_lease(self._database.read(body), process_resource(process_id))
        return None if held is None else held

    def _noted(self, process_id: str, ttl_ms: int, outcome: ProcessLeaseOutcome) -> ProcessLeaseOutcome:
        """Let those who wait know that this storage runs the process, if it does."""
        if isinstance(outcome, ProcessAcquired):
            self._waiter.note_lease(process_id, ttl_ms)
        return outcome

    async def _write(self, body: Callable[[Transaction], T], *, work: bool = True) -> T:
        """Write what may add to the log or to the work list, and tell those who wait for it."""
        value = await self._database.write_briefly(body)
        self._hints.notify(work=work)
        return value


def _claim(
    transaction: Transaction, row: ProcessRow, owner: LeaseOwner, ttl_ms: int, *, displacing: LeaseFence | None
) -> ProcessLeaseOutcome:
    process_id = row.process_id
    record = decode_process(row)
    refused = refuse_run(record, owner)
    if refused is not None:
        return refused
    held = process_lease_row(transaction, row.process_key)
    decision = _decide(held, process_id, owner, ttl_ms, displacing, transaction.now_ms)
    if isinstance(decision, Refuse):
        return ProcessRefused(reason=RefusalReason.BUSY, holder=decision.holder)
    if isinstance(decision, Acquire):
        lease, found = _acquire(transaction, row.process_key, decision, process_id, owner, ttl_ms)
        started = append_to(transaction, row.process_key, record, started_draft(process_id, owner))[1]
        return ProcessAcquired(
            lease=lease,
            record=started,
            wake_seq=found.wake_seq,
            has_effects=found.has_effects,
            displaced=None if decision.displaced is None else decision.displaced,
        )
    held_still = decision.lease
    wake_seq = _extend(transaction, row.process_key, held_still)
    return ProcessAcquired(lease=held_still, record=record, wake_seq=wake_seq, reentered=True)


def _decide(
    row: LeaseRow,
    process_id: str,
    owner: LeaseOwner,
    ttl_ms: int,
    displacing: LeaseFence | None,
    now_ms: int,
) -> ClaimDecision:
    claim = LeaseClaim(resource=process_resource(process_id), owner=owner, ttl_ms=ttl_ms, displacing=displacing)
    return plan_claim(row, now_ms, claim)


def _acquire(
    transaction: Transaction, process_key: int, decision: Acquire, process_id: str, owner: LeaseOwner, ttl_ms: int
) -> tuple[Lease, _Acquired]:
    """Take the lease, and return it with what the run is to know of the process."""
    lease = Lease(
        resource=process_resource(process_id),
        owner=owner,
        token=new_id(),
        fencing=decision.fencing,
        claimed_at_ms=transaction.now_ms,
        expires_at_ms=saturating_add(transaction.now_ms, ttl_ms),
    )
    found = transaction.one(
        _Acquired,
        "process_lease_acquire",
        process_key=process_key,
        fencing=lease.fencing,
        owner_id=owner.owner_id,
        incarnation_id=owner.incarnation_id,
        process=None if owner.process is None else encode(owner.process, LocalProcess, "owner.process"),
        token=lease.token,
        now_ms=lease.claimed_at_ms,
        expires_at_ms=lease.expires_at_ms,
    )
    return lease, _found(found)


def _extend(transaction: Transaction, process_key: int, lease: Lease) -> int:
    """Move the expiry of the lease, and return the number of reasons to run the process."""
    wake_seq = transaction.one(
        Number,
        "process_lease_extend",
        process_key=process_key,
        token=lease.token,
        fencing=lease.fencing,
        expires_at_ms=lease.expires_at_ms,
    )
    return _found(wake_seq).number


def _found(row: T | None) -> T:
    if row is None:
        raise CorruptData("a lease changed inside a transaction")
    return row


def _release(transaction: Transaction, process_key: int, fence: LeaseFence) -> bool:
    released = transaction.run(
        "process_lease_release",
        process_key=process_key,
        owner_id=fence.owner_id,
        incarnation_id=fence.incarnation_id,
        token=fence.token,
        fencing=fence.fencing,
    )
    return released > 0
