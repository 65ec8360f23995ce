"""The lease rows of processes on PostgreSQL; the clock of the server decides."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.backend.seal import seal_event
from lash.base.backoff import MAX_PLANS
from lash.base.ids import new_id
from lash.base.limits import saturating_add
from lash.base.seal import Seals
from lash.errors import StoreUnavailable
from lash.model.lease import Lease, LeaseFence
from lash.model.process.process import (
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRecord,
    ProcessRefused,
    Projection,
    RefusalReason,
)
from lash.plan.lease import Acquire, DecideRenewal, LeaseRow, Refuse, held_lease
from lash.plan.process.event import encode_projection
from lash.plan.process.lease import RunClaim
from lash.plan.process.process import (
    EncodedRegistration,
    ProcessRow,
    RegisteredRow,
    decode_process,
    record_after,
    row_after,
)
from lash.postgres.arguments import columns
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.process_batches import Arguments, ProcessAcquireAnswer, ProcessBatches
from lash.postgres.rows.lease import LeaseAnswer, fence_arguments, written_lease
from lash.postgres.rows.process.event import release_process
from lash.postgres.rows.process.process import missing_record, register, registration_arguments
from lash.sqlkit.rows import Flag, Number

_FREE_PLANS: Final = 3
"""How often a claim is decided without a lock before it takes one; more only helps if many append at once."""


class _ExtendAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A lease row with its new expiry, and the number of reasons to run the process."""

    row: LeaseRow
    wake_seq: int


class _RegisteredAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A process that was registered and claimed, and the fencing number of its lease."""

    process: ProcessRow
    fencing: int


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A claim on a process of this row, as ``process_lease_acquire`` takes it."""

    run: RunClaim
    row: ProcessRow
    record: ProcessRecord
    projection: str
    arguments: Arguments


class _Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a claim, and the row of the process after it."""

    outcome: ProcessLeaseOutcome
    row: ProcessRow


class PostgresProcessLeaseRows:
    """The process leases of one PostgreSQL storage; the contract is `lash.stores.process.process.ProcessLeaseRows`."""

    def __init__(self, database: Database, cache: ProcessCache, batches: ProcessBatches) -> None:
        self._database = database
        self._cache = cache
        self._batches = batches

    async def row(self, process_id: str) -> LeaseRow:
        return (await self._answer(process_id)).row

    async def claim(self, run: RunClaim) -> ProcessLeaseOutcome:
        """Claim in one round trip if the process is cached and has not changed since."""
        claimed = await self._claim_freely(run)
        if claimed is None:
            claimed = await self._claim_under_lock(run)
        self._cache.remember(claimed.row)
        return claimed.outcome

    async def register_and_claim(self, encoded: EncodedRegistration, run: RunClaim) -> ProcessAcquired | RegisteredRow:
        token = new_id()
        if encoded.runnable:
            acquired = await self._insert_claimed(encoded, run, token)
            if acquired is not None:
                return acquired
        stored = await register(self._database, self._cache, encoded)
        if stored.created or stored.row.registration_hash != encoded.registration_hash:
            return stored
        # A first try whose answer was lost may have acquired the lease, under this token.
        row = (await self._answer(stored.row.process_id)).row
        if row.token != token:
            return stored
        lease = written_lease(row, run.claim.resource)
        return ProcessAcquired(lease=lease, record=decode_process(stored.row), wake_seq=0, has_effects=False)

    async def renew(self, fence: LeaseFence, ttl_ms: int, decide: DecideRenewal) -> Lease:
        for _ in range(MAX_PLANS):
            renewed = await _extend(self._database, fence, ttl_ms)
            if renewed is not None:
                return written_lease(renewed.row, fence.resource)
            answer = await self._answer(fence.resource.id)
            decide(answer.row, answer.now_ms)
        raise _kept_changing(fence)

    async def release(self, fence: LeaseFence) -> bool:
        released = await release_process(self._database, fence)
        if not released:
            await self._answer(fence.resource.id)
        return released

    async def park(self, fence: LeaseFence, wake_seq: int, until_ms: int | None, decide: DecideRenewal) -> bool:
        arguments = (*fence_arguments(fence), wake_seq, until_ms)
        for _ in range(MAX_PLANS):
            # Not repeated after a lost connection: the fence that the first try gave up would be reported as lost.
            parked = await self._database.write_one(Flag, "process_lease_park", *arguments, repeatable=False)
            if parked is not None:
                return parked.value
            answer = await self._answer(fence.resource.id)
            decide(answer.row, answer.now_ms)
        raise _kept_changing(fence)

    async def _claim_freely(self, run: RunClaim) -> _Claimed | None:
        """Claim without a lock; None if the process or its lease changed each time."""
        cached = self._cache.get(run.claim.resource.id)
        for _ in range(_FREE_PLANS):
            row = cached or await self._row(run.claim.resource.id)
            record = decode_process(row)
            refused = run.refuse(record)
            if refused is None:
                planned = _plan(self._database.seals, run, row, record)
                answer = await self._batches.acquire(row.process_key, planned.arguments)
                claimed = await _claimed(self._database, planned, answer)
                if claimed is not None:
                    return claimed
            elif cached is None:
                return _Claimed(outcome=refused, row=row)
            # A cached row may be out of date.
            cached = None
        return None

    async def _claim_under_lock(self, run: RunClaim) -> _Claimed:
        """Claim under a row lock, for a process with so many writers that deciding without one never wins."""
        process_id = run.claim.resource.id
        async with self._database.transaction() as transaction:
            row = claimed = None
            if await transaction.one(Number, "event_lock", process_id) is not None:
                row = await transaction.one(ProcessRow, "process_row", process_id)
            if row is not None:
                claimed = await _claim_locked(transaction, run, row)
        if row is None:
            raise await missing_record(self._database, self._cache, process_id)
        if claimed is None:
            raise StoreUnavailable(f"process {process_id!r} changed during a claim; retry it")
        return claimed

    async def _insert_claimed(self, encoded: EncodedRegistration, run: RunClaim, token: str) -> ProcessAcquired | None:
        """Insert a process with its lease and the event of its start; None if its id is taken."""
        record, claim = _new_record(encoded), run.claim
        started = run.started.decide_insert(0, record)
        event, seals = started.event, self._database.seals
        sealed = seal_event(seals, started, encode_projection(started.projection))
        answer = await self._database.write_one(
            _RegisteredAnswer,
            "process_register_and_claim",
            *registration_arguments(seals, encoded, sealed.projection, event.sequence),
            *(claim.owner.owner_id, claim.owner.incarnation_id, claim.process, token, claim.ttl_ms),
            *(event.replay_key, started.payload_hash, sealed.payload),
            repeatable=True,
        )
        if answer is None:
            return None
        self._cache.remember(answer.process)
        now_ms = answer.process.created_at_ms
        lease = Lease(
            resource=claim.resource,
            owner=claim.owner,
            token=token,
            fencing=answer.fencing,
            claimed_at_ms=now_ms,
            expires_at_ms=saturating_add(now_ms, claim.ttl_ms),
        )
        claimed = msgspec.structs.replace(
            record,
            projection=started.projection,
            last_sequence=event.sequence,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        return ProcessAcquired(lease=lease, record=claimed, wake_seq=0, has_effects=False)

    async def _row(self, process_id: str) -> ProcessRow:
        row = await self._batches.read(process_id)
        if row is None:
            raise await missing_record(self._database, self._cache, process_id)
        self._cache.remember(row)
        return row

    async def _answer(self, process_id: str) -> LeaseAnswer:
        answer = await self._database.read_one(LeaseAnswer, "process_lease_row", process_id)
        if answer is None:
            raise await missing_record(self._database, self._cache, process_id)
        return answer


async def _extend(source: Database | Transaction, fence: LeaseFence, ttl_ms: int) -> _ExtendAnswer | None:
    """Move the expiry of a lease, expired or not; None if the fence does not hold. Idempotent."""
    arguments = (*fence_arguments(fence), ttl_ms)
    if isinstance(source, Transaction):
        return await source.one(_ExtendAnswer, "process_lease_extend", *arguments)
    return await source.write_one(_ExtendAnswer, "process_lease_extend", *arguments, repeatable=True)


async def _claim_locked(transaction: Transaction, run: RunClaim, row: ProcessRow) -> _Claimed | None:
    record = decode_process(row)
    refused = run.refuse(record)
    if refused is not None:
        return _Claimed(outcome=refused, row=row)
    planned = _plan(transaction.seals, run, row, record)
    answer = await transaction.one(ProcessAcquireAnswer, "process_lease_acquire", *columns([planned.arguments]))
    return await _claimed(transaction, planned, answer)


def _plan(seals: Seals, run: RunClaim, row: ProcessRow, record: ProcessRecord) -> _Planned:
    claim, displacing = run.claim, run.claim.displacing
    started = run.started.decide_insert(row.process_key, record)
    projection, event = encode_projection(started.projection), started.event
    sealed = seal_event(seals, started, projection)
    arguments = (
        *(row.process_key, row.last_sequence, row.wake_session_id),
        *(claim.owner.owner_id, claim.owner.incarnation_id, claim.process, new_id(), claim.ttl_ms),
        *((None, None) if displacing is None else (displacing.token, displacing.fencing)),
        *(event.event_type, event.replay_key, started.payload_hash, sealed.payload, sealed.projection),
    )
    return _Planned(run=run, row=row, record=record, projection=projection, arguments=arguments)


async def _claimed(
    source: Database | Transaction, planned: _Planned, answer: ProcessAcquireAnswer | None
) -> _Claimed | None:
    """Return the outcome of a claim; None if the process or its lease changed meanwhile."""
    row = planned.row
    if answer is None:
        return None
    if answer.taken is not None and answer.wake_seq is not None:
        return _acquired(planned, answer, answer.taken, answer.wake_seq)
    if (answer.last_sequence, answer.wake_session_id) != (row.last_sequence, row.wake_session_id):
        return None
    return await _not_acquired(source, planned, answer)


def _acquired(planned: _Planned, answer: ProcessAcquireAnswer, taken: LeaseRow, wake_seq: int) -> _Claimed:
    record, row, resource = planned.record, planned.row, planned.run.claim.resource
    if answer.started:
        record = record_after(record, planned.projection, answer.now_ms)
        row = row_after(row, planned.projection, answer.now_ms)
    outcome = ProcessAcquired(
        lease=written_lease(taken, resource),
        record=record,
        wake_seq=wake_seq,
        has_effects=answer.has_effects,
        crashes=answer.crashes,
        displaced=held_lease(answer.before, resource),
    )
    return _Claimed(outcome=outcome, row=row)


async def _not_acquired(
    source: Database | Transaction, planned: _Planned, answer: ProcessAcquireAnswer
) -> _Claimed | None:
    """Refuse the claim or re-enter the lease; None if the lease changed meanwhile."""
    claim = planned.run.claim
    decision = planned.run.decide(answer.before, answer.now_ms)
    if isinstance(decision, Acquire):
        return None
    if isinstance(decision, Refuse):
        refused = ProcessRefused(reason=RefusalReason.BUSY, holder=decision.holder)
        return _Claimed(outcome=refused, row=planned.row)
    extended = await _extend(source, decision.lease.fence, claim.ttl_ms)
    if extended is None:
        return None
    lease = written_lease(extended.row, claim.resource)
    outcome = ProcessAcquired(lease=lease, record=planned.record, wake_seq=extended.wake_seq, reentered=True)
    return _Claimed(outcome=outcome, row=planned.row)


def _new_record(encoded: EncodedRegistration) -> ProcessRecord:
    """Return the record of a process that is about to be inserted; the server sets its times."""
    return ProcessRecord(
        process_id=encoded.registration.process_id,
        registration_hash=encoded.registration_hash,
        registration=encoded.registration,
        projection=Projection(),
        wake_session_id=encoded.registration.wake_session_id,
        last_sequence=0,
        created_at_ms=0,
        updated_at_ms=0,
    )


def _kept_changing(fence: LeaseFence) -> StoreUnavailable:
    return StoreUnavailable(f"the lease of {fence.resource} changed {MAX_PLANS} times during the call; retry it")
