"""The right to run a process, on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from typing import Final

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
from lash.postgres.database import Database
from lash.postgres.process_rows import ProcessAcquireAnswer, ProcessExtendAnswer
from lash.postgres.rows import LeaseAnswer
from lash.postgres.seen_processes import SeenProcesses
from lash.sqlkit.rows import Flag
from lash.stores.notify import ChangeSignals

_MAX_PLANS: Final = 10


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for which process, and whom a claim may displace."""

    process_id: str
    owner: LeaseOwner
    ttl_ms: int
    displacing: ProcessFence | None


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
            renewed = await self._extend(fence, ttl_ms)
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
        result = await run_append(self._database, self._seen, fence.process_id, draft, Terms(fence=fence))
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
        seen = self._seen.get(claim.process_id)
        for _ in range(_MAX_PLANS):
            row = seen or await self._row(claim.process_id)
            outcome: ProcessLeaseOutcome | None = refuse_run(decode_process(row), claim.owner)
            if outcome is None:
                outcome = await self._acquire(claim, row)
            elif seen is not None:
                # The refusal may be out of date.
                outcome = None
            if outcome is not None:
                return outcome
            seen = None
        raise _kept_changing(claim.process_id)

    async def _acquire(self, claim: _Claim, row: ProcessRow) -> ProcessLeaseOutcome | None:
        """Take the lease if it is free, or see what is in the way; None if either changed meanwhile."""
        started = plan_insert(row, started_draft(claim.process_id, claim.owner))
        projection = encode_projection(started.projection)
        answer = await self._try_acquire(claim, row, started, projection)
        if answer is None:
            return None
        if answer.taken is not None and answer.wake_seq is not None:
            after = row_after(row, projection, answer.now_ms) if answer.started else row
            self._seen.remember(after)
            self._signals.touch()
            displaced = held_lease(answer.before, claim.process_id)
            return ProcessAcquired(
                lease=_held(answer.taken, claim.process_id),
                record=decode_process(after),
                wake_seq=answer.wake_seq,
                displaced=None if displaced is None else as_process_lease(displaced),
            )
        if (answer.last_sequence, answer.wake_session_id) != (row.last_sequence, row.wake_session_id):
            return None
        return await self._held_already(claim, row, answer)

    async def _held_already(
        self, claim: _Claim, row: ProcessRow, answer: ProcessAcquireAnswer
    ) -> ProcessLeaseOutcome | None:
        decision = plan_claim(
            answer.before, session_id=claim.process_id, owner=claim.owner, ttl_ms=claim.ttl_ms, now_ms=answer.now_ms
        )
        if isinstance(decision, Acquire):
            return None
        if isinstance(decision, Refuse):
            return ProcessRefused(reason=RefusalReason.BUSY, holder=as_process_lease(decision.holder))
        extended = await self._extend(as_process_lease(decision.lease).fence, claim.ttl_ms)
        if extended is None:
            return None
        lease = _held(extended.row, claim.process_id)
        return ProcessAcquired(lease=lease, record=decode_process(row), wake_seq=extended.wake_seq, reentered=True)

    async def _try_acquire(
        self, claim: _Claim, row: ProcessRow, started: InsertEvent, projection: str
    ) -> ProcessAcquireAnswer | None:
        owner, displacing, event = claim.owner, claim.displacing, started.event
        process = None if owner.process is None else encode(owner.process, LocalProcess, "owner.process")
        # Repeating it after a lost connection is harmless: the same holder then re-enters.
        return await self._database.write_one(
            ProcessAcquireAnswer,
            "process_lease_acquire",
            *(row.process_key, row.last_sequence, row.wake_session_id),
            *(owner.owner_id, owner.incarnation_id, process, new_id(), claim.ttl_ms),
            *((None, None) if displacing is None else (displacing.token, displacing.fencing)),
            *(event.event_type, event.replay_key, started.payload_hash, started.payload, projection),
            repeatable=True,
        )

    async def _extend(self, fence: ProcessFence, ttl_ms: int) -> ProcessExtendAnswer | None:
        arguments = (*_fence_arguments(fence), ttl_ms)
        return await self._database.write_one(ProcessExtendAnswer, "process_lease_extend", *arguments, repeatable=True)

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


def _fence_arguments(fence: ProcessFence) -> tuple[str, str, str, str, int]:
    return (fence.process_id, fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)


def _held(row: LeaseRow, process_id: str) -> ProcessLease:
    lease = held_lease(row, process_id)
    if lease is None:
        raise CorruptData(f"the lease of process {process_id!r} was written without a holder")
    return as_process_lease(lease)


def _kept_changing(process_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"process {process_id!r} or its lease changed {_MAX_PLANS} times while it was asked for")
