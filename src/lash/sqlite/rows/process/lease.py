"""The lease rows of processes on SQLite."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from lash.base.ids import new_id
from lash.base.limits import saturating_add
from lash.errors import CorruptData
from lash.model.lease import Lease, LeaseFence
from lash.model.process.process import (
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRefused,
    RefusalReason,
)
from lash.plan.lease import Acquire, DecideRenewal, LeaseClaim, LeaseRow, Refuse
from lash.plan.process.lease import RunClaim
from lash.plan.process.process import EncodedRegistration, ProcessRow, RegisteredRow, decode_process
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.rows.process.event import append_to, release_process
from lash.sqlite.rows.process.process import find_process, process_lease_row, register
from lash.sqlkit.rows import Flag, Number

T = TypeVar("T")


class _AcquiredRunAnswer(msgspec.Struct, frozen=True, array_like=True):
    """How many reasons there are to run the process, whether it has recorded effects, and how many runs crashed."""

    wake_seq: int
    has_effects: bool
    crashes: int


class SQLiteProcessLeaseRows:
    """The process leases of one SQLite storage; the contract is `lash.stores.process.process.ProcessLeaseRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def row(self, process_id: str) -> LeaseRow:
        def body(reader: Reader) -> LeaseRow:
            return process_lease_row(reader, find_process(reader, process_id).process_key)

        return self._database.read(body)

    async def claim(self, run: RunClaim) -> ProcessLeaseOutcome:
        def body(transaction: Transaction) -> ProcessLeaseOutcome:
            return _claim(transaction, find_process(transaction, run.claim.resource.id), run)

        return await self._database.write_briefly(body)

    async def register_and_claim(self, encoded: EncodedRegistration, run: RunClaim) -> ProcessAcquired | RegisteredRow:
        def body(transaction: Transaction) -> ProcessAcquired | RegisteredRow:
            stored = register(transaction, encoded)
            claimed = _claim(transaction, stored.row, run, is_new=True) if stored.created else None
            return claimed if isinstance(claimed, ProcessAcquired) else stored

        return await self._database.write_briefly(body)

    async def renew(self, fence: LeaseFence, ttl_ms: int, decide: DecideRenewal) -> Lease:  # noqa: ARG002 (decided)
        def body(transaction: Transaction) -> Lease:
            key = find_process(transaction, fence.resource.id).process_key
            lease = decide(process_lease_row(transaction, key), transaction.now_ms)
            _extend(transaction, key, lease)
            return lease

        return await self._database.write_briefly(body)

    async def release(self, fence: LeaseFence) -> bool:
        def body(transaction: Transaction) -> bool:
            return release_process(transaction, find_process(transaction, fence.resource.id).process_key, fence)

        return await self._database.write_briefly(body)

    async def park(self, fence: LeaseFence, wake_seq: int, until_ms: int | None, decide: DecideRenewal) -> bool:
        def body(transaction: Transaction) -> bool:
            key = find_process(transaction, fence.resource.id).process_key
            decide(process_lease_row(transaction, key), transaction.now_ms)
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

        return await self._database.write_briefly(body)


def _claim(transaction: Transaction, row: ProcessRow, run: RunClaim, *, is_new: bool = False) -> ProcessLeaseOutcome:
    key, record = row.process_key, decode_process(row)
    refused = run.refuse(record)
    if refused is not None:
        return refused
    decision = run.decide(process_lease_row(transaction, key), transaction.now_ms)
    if isinstance(decision, Refuse):
        return ProcessRefused(reason=RefusalReason.BUSY, holder=decision.holder)
    if isinstance(decision, Acquire):
        lease, answer = _acquire(transaction, key, decision.fencing, run.claim)
        return ProcessAcquired(
            lease=lease,
            record=append_to(transaction, key, record, run.started, is_new=is_new).record,
            wake_seq=answer.wake_seq,
            has_effects=answer.has_effects,
            crashes=answer.crashes,
            displaced=decision.displaced,
        )
    wake_seq = _extend(transaction, key, decision.lease)
    return ProcessAcquired(lease=decision.lease, record=record, wake_seq=wake_seq, reentered=True)


def _acquire(
    transaction: Transaction, process_key: int, fencing: int, claim: LeaseClaim
) -> tuple[Lease, _AcquiredRunAnswer]:
    lease = Lease(
        resource=claim.resource,
        owner=claim.owner,
        token=new_id(),
        fencing=fencing,
        claimed_at_ms=transaction.now_ms,
        expires_at_ms=saturating_add(transaction.now_ms, claim.ttl_ms),
    )
    answer = transaction.one(
        _AcquiredRunAnswer,
        "process_lease_acquire",
        process_key=process_key,
        fencing=lease.fencing,
        owner_id=claim.owner.owner_id,
        incarnation_id=claim.owner.incarnation_id,
        process=claim.process,
        token=lease.token,
        now_ms=lease.claimed_at_ms,
        expires_at_ms=lease.expires_at_ms,
    )
    return lease, _found(answer)


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
