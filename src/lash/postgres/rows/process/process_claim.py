"""Claims of processes on PostgreSQL: planned on what was seen, and written together with those of other callers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, TypeAlias

import msgspec

from lash.base.codec import encode
from lash.base.ids import new_id
from lash.errors import CorruptData, StoreUnavailable
from lash.model.lease import Lease, LeaseFence, LeaseOwner, LocalProcess, process_resource
from lash.model.process.process import (
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRecord,
    ProcessRefused,
    RefusalReason,
)
from lash.plan.lease import Acquire, LeaseClaim, LeaseRow, Refuse, held_lease, plan_claim
from lash.plan.process.event import encode_projection
from lash.plan.process.event_draft import started_draft
from lash.plan.process.lease import refuse_run
from lash.plan.process.process import ProcessRow, decode_process, record_after, row_after
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.batcher import StatementBatcher
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.process.append import missing_record, plan_insert
from lash.postgres.rows.process.rows import ProcessAcquireAnswer, ProcessExtendAnswer
from lash.sqlkit.rows import Number

MAX_TOGETHER: Final = 32
"""How many claims one statement takes; the statement says the same number."""
_FREE_PLANS: Final = 3
"""How often a claim is planned without a lock, before it waits for its turn on the server."""

_Arguments: TypeAlias = tuple[object, ...]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for which process, and whom a claim may displace."""

    process_id: str
    owner: LeaseOwner
    ttl_ms: int
    displacing: LeaseFence | None


class _Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim came to, and the process as it then stands."""

    outcome: ProcessLeaseOutcome
    row: ProcessRow


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of a process as it was seen, in the form that ``process_lease_acquire`` takes."""

    claim: Claim
    row: ProcessRow
    record: ProcessRecord
    projection: str
    arguments: _Arguments


class ProcessClaims:
    """Claims processes; those of several callers share statements."""

    def __init__(self, database: Database, seen: ProcessCache) -> None:
        self._database = database
        self._seen = seen
        self._reading: StatementBatcher[str, ProcessRow] = StatementBatcher(self._read, limit=MAX_TOGETHER)
        self._acquiring: StatementBatcher[_Arguments, ProcessAcquireAnswer] = StatementBatcher(
            self._acquire, limit=MAX_TOGETHER
        )

    async def claim(self, claim: Claim) -> ProcessLeaseOutcome:
        """Take the right to run a process; in one round trip if it was seen before and is still as it was."""
        claimed = await self._claim_freely(claim)
        if claimed is None:
            claimed = await self._claim_under_lock(claim)
        self._seen.remember(claimed.row)
        return claimed.outcome

    async def _claim_freely(self, claim: Claim) -> _Claimed | None:
        """Claim without a lock; None if the process or its lease changed each time."""
        seen = self._seen.get(claim.process_id)
        for _ in range(_FREE_PLANS):
            row = seen or await self._row(claim.process_id)
            record = decode_process(row)
            refused = refuse_run(record, claim.owner)
            if refused is None:
                planned = _plan(claim, row, record)
                answer = await self._acquiring.submit(row.process_key, planned.arguments)
                claimed = await _claimed(self._database, planned, answer)
                if claimed is not None:
                    return claimed
            elif seen is None:
                return _Claimed(outcome=refused, row=row)
            # What was seen may be out of date.
            seen = None
        return None

    async def _claim_under_lock(self, claim: Claim) -> _Claimed:
        """Claim while nobody else can append, for a process to which so many do that planning freely never wins."""
        async with self._database.transaction() as transaction:
            row = claimed = None
            if await transaction.one(Number, "event_lock", claim.process_id) is not None:
                row = await transaction.one(ProcessRow, "process_row", claim.process_id)
            if row is not None:
                record = decode_process(row)
                refused = refuse_run(record, claim.owner)
                claimed = None if refused is None else _Claimed(outcome=refused, row=row)
                if claimed is None:
                    planned = _plan(claim, row, record)
                    arguments = _columns([planned.arguments])
                    answer = await transaction.one(ProcessAcquireAnswer, "process_lease_acquire", *arguments)
                    claimed = await _claimed(transaction, planned, answer)
        if row is None:
            raise await missing_record(self._database, self._seen, claim.process_id)
        if claimed is None:
            raise StoreUnavailable(f"process {claim.process_id!r} changed while it was being claimed")
        return claimed

    async def _row(self, process_id: str) -> ProcessRow:
        row = await self._reading.submit(process_id, process_id)
        if row is None:
            raise await missing_record(self._database, self._seen, process_id)
        self._seen.remember(row)
        return row

    async def _read(self, process_ids: Mapping[Hashable, str]) -> Mapping[Hashable, ProcessRow]:
        rows = await self._database.read_all(ProcessRow, "process_rows", list(process_ids.values()))
        return {row.process_id: row for row in rows}

    async def _acquire(self, asked: Mapping[Hashable, _Arguments]) -> Mapping[Hashable, ProcessAcquireAnswer]:
        # Repeating it after a lost connection is harmless: the same holder then re-enters.
        arguments = _columns(list(asked.values()))
        answers = await self._database.write_all(
            ProcessAcquireAnswer, "process_lease_acquire", *arguments, repeatable=True
        )
        return {answer.process_key: answer for answer in answers}


async def extend(source: Database | Transaction, fence: LeaseFence, ttl_ms: int) -> ProcessExtendAnswer | None:
    """Move the expiry of a live lease; None if the fence does not hold. Repeating it is harmless."""
    arguments = (*fence_arguments(fence), ttl_ms)
    if isinstance(source, Transaction):
        return await source.one(ProcessExtendAnswer, "process_lease_extend", *arguments)
    return await source.write_one(ProcessExtendAnswer, "process_lease_extend", *arguments, repeatable=True)


def fence_arguments(fence: LeaseFence) -> tuple[str, str, str, str, int]:
    """Return the parts of a fence in the order in which statements take them."""
    return (fence.resource.id, fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)


def held(row: LeaseRow, process_id: str) -> Lease:
    """Return the lease of a row that was just written."""
    lease = held_lease(row, process_resource(process_id))
    if lease is None:
        raise CorruptData(f"the lease of process {process_id!r} was written without a holder")
    return lease


def _plan(claim: Claim, row: ProcessRow, record: ProcessRecord) -> _Planned:
    owner, displacing = claim.owner, claim.displacing
    started = plan_insert(record, row.process_key, started_draft(claim.process_id, owner))
    projection, event = encode_projection(started.projection), started.event
    process = None if owner.process is None else encode(owner.process, LocalProcess, "owner.process")
    arguments = (
        *(row.process_key, row.last_sequence, row.wake_session_id),
        *(owner.owner_id, owner.incarnation_id, process, new_id(), claim.ttl_ms),
        *((None, None) if displacing is None else (displacing.token, displacing.fencing)),
        *(event.event_type, event.replay_key, started.payload_hash, started.payload, projection),
    )
    return _Planned(claim=claim, row=row, record=record, projection=projection, arguments=arguments)


async def _claimed(
    source: Database | Transaction, planned: _Planned, answer: ProcessAcquireAnswer | None
) -> _Claimed | None:
    """Return what a claim came to; None if the process or its lease changed meanwhile."""
    claim, row = planned.claim, planned.row
    if answer is None:
        return None
    if answer.taken is not None and answer.wake_seq is not None:
        return _acquired(planned, answer, held(answer.taken, claim.process_id), answer.wake_seq)
    if (answer.last_sequence, answer.wake_session_id) != (row.last_sequence, row.wake_session_id):
        return None
    return await _held_already(source, planned, answer)


def _acquired(planned: _Planned, answer: ProcessAcquireAnswer, lease: Lease, wake_seq: int) -> _Claimed:
    record, row, now_ms = planned.record, planned.row, answer.now_ms
    if answer.started:
        record = record_after(record, planned.projection, now_ms)
        row = row_after(row, planned.projection, now_ms)
    displaced = held_lease(answer.before, process_resource(planned.claim.process_id))
    outcome = ProcessAcquired(
        lease=lease,
        record=record,
        wake_seq=wake_seq,
        has_effects=answer.has_effects,
        displaced=None if displaced is None else displaced,
    )
    return _Claimed(outcome=outcome, row=row)


async def _held_already(
    source: Database | Transaction, planned: _Planned, answer: ProcessAcquireAnswer
) -> _Claimed | None:
    claim, row = planned.claim, planned.row
    asked = LeaseClaim(
        resource=process_resource(claim.process_id),
        owner=claim.owner,
        ttl_ms=claim.ttl_ms,
        displacing=claim.displacing,
    )
    decision = plan_claim(answer.before, answer.now_ms, asked)
    if isinstance(decision, Acquire):
        return None
    if isinstance(decision, Refuse):
        holder = decision.holder
        return _Claimed(outcome=ProcessRefused(reason=RefusalReason.BUSY, holder=holder), row=row)
    extended = await extend(source, decision.lease.fence, claim.ttl_ms)
    if extended is None:
        return None
    lease = held(extended.row, claim.process_id)
    outcome = ProcessAcquired(lease=lease, record=planned.record, wake_seq=extended.wake_seq, reentered=True)
    return _Claimed(outcome=outcome, row=row)


def _columns(rows: list[_Arguments]) -> list[list[object]]:
    """Turn rows into the arrays that ``unnest`` takes."""
    return [list(column) for column in zip(*rows, strict=True)]
