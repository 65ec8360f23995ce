"""The right to run a process, on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from lash.codec import encode
from lash.errors import CorruptData, StoreUnavailable
from lash.ids import new_id
from lash.limits import check_identifier
from lash.liveness import is_provably_dead
from lash.model.lease import LeaseOwner, LocalProcess
from lash.model.process import (
    Outcome,
    ProcessAcquired,
    ProcessFence,
    ProcessLease,
    ProcessLeaseOutcome,
    ProcessRecord,
    ProcessRefused,
    RefusalReason,
)
from lash.plan.event import InsertEvent, encode_projection
from lash.plan.event_draft import completion_draft, started_draft
from lash.plan.lease import Acquire, LeaseRow, Refuse, check_claim, check_ttl, held_lease, plan_claim
from lash.plan.process import ProcessRow, decode_process
from lash.plan.process_lease import (
    as_process_lease,
    check_observed_process,
    check_process_fence,
    plan_process_renewal,
    refuse_run,
    require_process_fence,
)
from lash.plan.work import check_park
from lash.postgres.append import Terms, missing_record, plan_insert, row_after, run_append
from lash.postgres.database import Database, Transaction
from lash.postgres.process_rows import ProcessAcquireAnswer, ProcessExtendAnswer
from lash.postgres.rows import LeaseAnswer
from lash.postgres.seen_processes import SeenProcesses
from lash.sqlkit.rows import Flag, Number
from lash.stores.notify import ChangeSignals

T = TypeVar("T")

_MAX_PLANS: Final = 10
_FREE_PLANS: Final = 3
"""How often a claim is planned without a lock, before it waits for its turn on the server."""


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for which process, and whom a claim may displace."""

    process_id: str
    owner: LeaseOwner
    ttl_ms: int
    displacing: ProcessFence | None


class _Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim came to, and the process as it then stands."""

    outcome: ProcessLeaseOutcome
    row: ProcessRow


class PostgresProcessLeaseStore:
    """The process leases of one PostgreSQL storage; the contract is `lash.stores.process.ProcessLeaseStore`."""

    def __init__(self, database: Database, seen: SeenProcesses, signals: ChangeSignals) -> None:
        self._database = database
        self._seen = seen
        self._signals = signals

    async def claim(self, process_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ProcessLeaseOutcome:
        check_identifier("process_id", process_id)
        check_claim(owner, ttl_ms)
        return await self._claim(_Claim(process_id=process_id, owner=owner, ttl_ms=ttl_ms, displacing=None))

    async def reclaim(
        self, process_id: str, owner: LeaseOwner, *, observed: ProcessLease, ttl_ms: int
    ) -> ProcessLeaseOutcome:
        check_identifier("process_id", process_id)
        check_claim(owner, ttl_ms)
        check_observed_process(observed)
        is_dead = is_provably_dead(observed.owner.process, owner.process)
        displacing = observed.fence if is_dead else None
        return await self._claim(_Claim(process_id=process_id, owner=owner, ttl_ms=ttl_ms, displacing=displacing))

    async def renew(self, fence: ProcessFence, *, ttl_ms: int) -> ProcessLease:
        check_process_fence(fence)
        check_ttl(ttl_ms)
        for _ in range(_MAX_PLANS):
            renewed = await _extend(self._database, fence, ttl_ms)
            if renewed is not None:
                return _held(renewed.row, fence.process_id)
            answer = await self._answer(fence.process_id)
            plan_process_renewal(answer.row, fence=fence, ttl_ms=ttl_ms, now_ms=answer.now_ms)
        raise _kept_changing(fence.process_id)

    async def release(self, fence: ProcessFence) -> bool:
        check_process_fence(fence)
        released = await self._release(fence)
        if not released:
            await self._answer(fence.process_id)
        self._signals.touch()
        return released

    async def park(self, fence: ProcessFence, *, wake_seq: int, until_ms: int | None) -> bool:
        check_process_fence(fence)
        check_park(wake_seq, until_ms)
        for _ in range(_MAX_PLANS):
            # Not repeated after a lost connection: the fence that the first try gave up would look like a lost one.
            parked = await self._database.write_one(
                Flag, "process_lease_park", *_fence_arguments(fence), wake_seq, until_ms, repeatable=False
            )
            if parked is not None:
                self._signals.touch()
                return parked.value
            answer = await self._answer(fence.process_id)
            require_process_fence(answer.row, fence, answer.now_ms)
        raise _kept_changing(fence.process_id)

    async def complete(self, fence: ProcessFence, outcome: Outcome) -> ProcessRecord:
        check_process_fence(fence)
        draft = completion_draft(fence.process_id, outcome)
        result = await run_append(self._database, self._seen, fence.process_id, draft, Terms(fence=fence, ends=True))
        self._signals.touch()
        if result.appended.replayed:
            # Somebody ended the process likewise without this lease, which is then still held.
            await self._release(fence)
        return result.record

    async def holder(self, process_id: str) -> ProcessLease | None:
        check_identifier("process_id", process_id)
        held = held_lease((await self._answer(process_id)).row, process_id)
        return None if held is None else as_process_lease(held)

    async def _claim(self, claim: _Claim) -> ProcessLeaseOutcome:
        """Take the right to run a process; in one round trip if it was seen before and is still as it was."""
        answer = await self._claim_freely(claim)
        if answer is None:
            answer = await self._claim_under_lock(claim)
        self._seen.remember(answer.row)
        if isinstance(answer.outcome, ProcessAcquired):
            self._signals.touch()
        return answer.outcome

    async def _claim_freely(self, claim: _Claim) -> _Claimed | None:
        """Claim without a lock; None if the process or its lease changed each time."""
        seen = self._seen.get(claim.process_id)
        for _ in range(_FREE_PLANS):
            row = seen or await self._row(claim.process_id)
            refused = refuse_run(decode_process(row), claim.owner)
            if refused is None:
                answer = await _acquire(self._database, claim, row)
                if answer is not None:
                    return answer
            elif seen is None:
                return _Claimed(outcome=refused, row=row)
            # What was seen may be out of date.
            seen = None
        return None

    async def _claim_under_lock(self, claim: _Claim) -> _Claimed:
        """Claim while nobody else can append, for a process to which so many do that planning freely never wins."""
        async with self._database.transaction() as transaction:
            row = answer = None
            if await transaction.one(Number, "event_lock", claim.process_id) is not None:
                row = await transaction.one(ProcessRow, "process_row", claim.process_id)
            if row is not None:
                refused = refuse_run(decode_process(row), claim.owner)
                answer = _Claimed(outcome=refused, row=row) if refused else await _acquire(transaction, claim, row)
        if row is None:
            raise await missing_record(self._database, self._seen, claim.process_id)
        if answer is None:
            raise StoreUnavailable(f"process {claim.process_id!r} changed while it was being claimed")
        return answer

    async def _release(self, fence: ProcessFence) -> bool:
        arguments = _fence_arguments(fence)
        released = await self._database.write_one(Flag, "process_lease_release", *arguments, repeatable=True)
        return released is not None

    async def _answer(self, process_id: str) -> LeaseAnswer:
        answer = await self._database.read_one(LeaseAnswer, "process_lease_row", process_id)
        if answer is None:
            raise await missing_record(self._database, self._seen, process_id)
        return answer

    async def _row(self, process_id: str) -> ProcessRow:
        row = await self._database.read_one(ProcessRow, "process_row", process_id)
        if row is None:
            raise await missing_record(self._database, self._seen, process_id)
        self._seen.remember(row)
        return row


async def _acquire(source: Database | Transaction, claim: _Claim, row: ProcessRow) -> _Claimed | None:
    """Take the lease if it is free, or see what is in the way; None if either changed meanwhile."""
    started = plan_insert(row, started_draft(claim.process_id, claim.owner))
    projection = encode_projection(started.projection)
    answer = await _try_acquire(source, claim, row, started, projection)
    if answer is None:
        return None
    if answer.taken is not None and answer.wake_seq is not None:
        after = row_after(row, projection, answer.now_ms) if answer.started else row
        displaced = held_lease(answer.before, claim.process_id)
        outcome = ProcessAcquired(
            lease=_held(answer.taken, claim.process_id),
            record=decode_process(after),
            wake_seq=answer.wake_seq,
            displaced=None if displaced is None else as_process_lease(displaced),
        )
        return _Claimed(outcome=outcome, row=after)
    if (answer.last_sequence, answer.wake_session_id) != (row.last_sequence, row.wake_session_id):
        return None
    return await _held_already(source, claim, row, answer)


async def _held_already(
    source: Database | Transaction, claim: _Claim, row: ProcessRow, answer: ProcessAcquireAnswer
) -> _Claimed | None:
    decision = plan_claim(
        answer.before, session_id=claim.process_id, owner=claim.owner, ttl_ms=claim.ttl_ms, now_ms=answer.now_ms
    )
    if isinstance(decision, Acquire):
        return None
    if isinstance(decision, Refuse):
        holder = as_process_lease(decision.holder)
        return _Claimed(outcome=ProcessRefused(reason=RefusalReason.BUSY, holder=holder), row=row)
    extended = await _extend(source, as_process_lease(decision.lease).fence, claim.ttl_ms)
    if extended is None:
        return None
    lease = _held(extended.row, claim.process_id)
    outcome = ProcessAcquired(lease=lease, record=decode_process(row), wake_seq=extended.wake_seq, reentered=True)
    return _Claimed(outcome=outcome, row=row)


async def _try_acquire(
    source: Database | Transaction, claim: _Claim, row: ProcessRow, started: InsertEvent, projection: str
) -> ProcessAcquireAnswer | None:
    owner, displacing, event = claim.owner, claim.displacing, started.event
    process = None if owner.process is None else encode(owner.process, LocalProcess, "owner.process")
    return await _write_one(
        source,
        ProcessAcquireAnswer,
        "process_lease_acquire",
        *(row.process_key, row.last_sequence, row.wake_session_id),
        *(owner.owner_id, owner.incarnation_id, process, new_id(), claim.ttl_ms),
        *((None, None) if displacing is None else (displacing.token, displacing.fencing)),
        *(event.event_type, event.replay_key, started.payload_hash, started.payload, projection),
    )


async def _extend(source: Database | Transaction, fence: ProcessFence, ttl_ms: int) -> ProcessExtendAnswer | None:
    return await _write_one(source, ProcessExtendAnswer, "process_lease_extend", *_fence_arguments(fence), ttl_ms)


async def _write_one(source: Database | Transaction, shape: type[T], name: str, *arguments: object) -> T | None:
    """Take or extend a lease. Repeating it after a lost connection is harmless: the same holder then re-enters."""
    if isinstance(source, Transaction):
        return await source.one(shape, name, *arguments)
    return await source.write_one(shape, name, *arguments, repeatable=True)


def _fence_arguments(fence: ProcessFence) -> tuple[str, str, str, str, int]:
    return (fence.process_id, fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)


def _held(row: LeaseRow, process_id: str) -> ProcessLease:
    lease = held_lease(row, process_id)
    if lease is None:
        raise CorruptData(f"the lease of process {process_id!r} was written without a holder")
    return as_process_lease(lease)


def _kept_changing(process_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"process {process_id!r} or its lease changed {_MAX_PLANS} times while it was asked for")
