"""The expected behaviour of process leases."""

from __future__ import annotations

import dataclasses

import msgspec

from lash.model.lease import Lease, LeaseOwner, process_resource
from lash.model.process.event import EventDraft
from lash.model.process.process import (
    Outcome,
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRecord,
    ProcessRefused,
    Recovery,
    RefusalReason,
)
from tests.proof.model.kit import Refused
from tests.proof.model.process_model import Process, ProcessModel


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """One acquisition, as its owner remembers it."""

    process: Process
    owner: LeaseOwner
    fencing: int
    reasons: int


class ProcessLeaseModel:
    """Leases on the processes of a model."""

    def __init__(self, processes: ProcessModel) -> None:
        self._all = processes

    def claim(
        self, process_id: str, owner: LeaseOwner, ttl: int, now: int, *, displacing: Held | None = None
    ) -> ProcessLeaseOutcome:
        """Claim, or take over from a holder that was seen dead."""
        process = self._all.find(process_id)
        refusal = self._refusal(process, owner)
        if refusal is not None:
            return ProcessRefused(reason=refusal)
        if process.holder is not None and process.expires > now:
            if _same(process.holder, owner):
                process.expires = max(process.expires, now + ttl)
                return ProcessAcquired(
                    lease=lease_of(process), record=process.record(), wake_seq=process.reasons, reentered=True
                )
            if displacing is None or not self.holds(displacing):
                return ProcessRefused(reason=RefusalReason.BUSY, holder=lease_of(process))
        displaced = None if process.holder is None else lease_of(process)
        process.fencing += 1
        process.crashes += displaced is not None
        process.holder, process.claimed, process.expires = owner, now, now + ttl
        process.ready = now if process.ready is None else min(process.ready, now)
        self._start(process, owner, now)
        return ProcessAcquired(
            lease=lease_of(process),
            record=process.record(),
            wake_seq=process.reasons,
            # No owner in this model records anything, but an earlier one might have.
            has_effects=process.fencing > 1,
            displaced=displaced,
            crashes=process.crashes,
        )

    def holds(self, held: Held) -> bool:
        """Return whether this acquisition is still the current one, live or expired."""
        process = self._all.processes.get(held.process.process_id)
        return process is held.process and process.holder is not None and process.fencing == held.fencing

    def renew(self, held: Held, ttl: int, now: int) -> Lease:
        process = self._all.find(held.process.process_id)
        if not self.holds(held):
            raise Refused("LeaseLost")
        process.expires = max(process.expires, now + ttl)
        return lease_of(process)

    def release(self, held: Held) -> bool:
        self._all.find(held.process.process_id)
        if not self.holds(held):
            return False
        _free(held.process)
        return True

    def park(self, held: Held, reasons: int, until: int | None, now: int) -> bool:
        process = self._live(held, now)
        _free(process)
        process.crashes = 0
        if not process.is_running:
            return True
        if process.reasons != reasons:
            return False
        process.ready = until
        return True

    def complete(self, held: Held, outcome: Outcome, now: int) -> ProcessRecord:
        process = self._all.find(held.process.process_id)
        if process.is_running:
            self._live(held, now)
        record = self._all.end(process.process_id, outcome, now)
        if self.holds(held):
            _free(process)
        return record

    def ready(self, owner: LeaseOwner, now: int) -> set[str]:
        """Return the processes that a worker finds on the work list."""
        return {
            each.process_id
            for each in self._all.processes.values()
            if each.ready is not None
            and (each.expires <= now if each.holder is not None else each.ready <= now)
            and self._refusal(each, owner) is None
        }

    def runnable(self, now: int) -> list[str]:
        return sorted(
            each.process_id
            for each in self._all.processes.values()
            if each.is_running and not each.is_external and (each.holder is None or each.expires <= now)
        )

    def _refusal(self, process: Process, owner: LeaseOwner) -> RefusalReason | None:
        if not process.is_running:
            return RefusalReason.TERMINAL
        if process.is_external:
            return RefusalReason.EXTERNAL
        began = process.projection().started_by
        bound = process.registration.recovery is Recovery.OWNER_BOUND
        return RefusalReason.OWNER_BOUND if bound and began is not None and not _same(began, owner) else None

    def _start(self, process: Process, owner: LeaseOwner, now: int) -> None:
        """Record that an owner began to run the process, once per owner."""
        payload = {"owner": msgspec.to_builtins(owner)}
        draft = EventDraft(event_type="process.started", payload=payload, replay_key=f"started {owner}")
        self._all.append(process.process_id, draft, now)

    def _live(self, held: Held, now: int) -> Process:
        process = self._all.find(held.process.process_id)
        if not self.holds(held) or process.expires <= now:
            raise Refused("LeaseLost")
        return process


def lease_of(process: Process) -> Lease:
    """Return the current lease."""
    assert process.holder is not None
    return Lease(
        resource=process_resource(process.process_id),
        owner=process.holder,
        token="",
        fencing=process.fencing,
        claimed_at_ms=process.claimed,
        expires_at_ms=process.expires,
    )


def _free(process: Process) -> None:
    process.holder, process.claimed, process.expires = None, 0, 0


def _same(one: LeaseOwner, other: LeaseOwner) -> bool:
    return (one.owner_id, one.incarnation_id) == (other.owner_id, other.incarnation_id)
