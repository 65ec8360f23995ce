"""Who may run a process, and whose fence still holds."""

from __future__ import annotations

import msgspec

from lash.base.limits import check_identifier, check_integer, saturating_add
from lash.errors import (
    Conflict,
    InvalidInput,
    LeaseLost,
    ProcessLeaseLost,
)
from lash.model.lease import Lease, LeaseFence, LeaseOwner
from lash.model.process.process import (
    ProcessFence,
    ProcessLease,
    ProcessRecord,
    ProcessRefused,
    Recovery,
    RefusalReason,
)
from lash.plan.lease import LeaseRow, require_fence


def refuse_run(record: ProcessRecord, owner: LeaseOwner) -> ProcessRefused | None:
    """Return why this owner may not run the process, whatever its lease says; None if it may ask for the lease."""
    if record.is_terminal:
        return ProcessRefused(reason=RefusalReason.TERMINAL)
    if record.registration.recovery is Recovery.EXTERNAL:
        return ProcessRefused(reason=RefusalReason.EXTERNAL)
    began = record.projection.started_by
    if record.registration.recovery is Recovery.OWNER_BOUND and began is not None and not began.same_holder(owner):
        return ProcessRefused(reason=RefusalReason.OWNER_BOUND)
    return None


def require_abandonable(record: ProcessRecord, lease: LeaseRow, now_ms: int) -> None:
    """Raise Conflict unless somebody asked to give the process up and nobody is running it.

    A process that ended is left to the append, which knows whether it ended like this.
    """
    if record.is_terminal:
        return
    if not record.projection.abandon_requested:
        raise Conflict(f"process {record.process_id!r} was not asked to be abandoned; request it first")
    if lease.is_live(now_ms):
        raise Conflict(f"process {record.process_id!r} is being run; its lease must lapse before it is abandoned")


def as_process_lease(lease: Lease) -> ProcessLease:
    """Return a lease that was decided upon under the process's id as the process lease that it is."""
    return ProcessLease(
        process_id=lease.session_id,
        owner=lease.owner,
        token=lease.token,
        fencing=lease.fencing,
        claimed_at_ms=lease.claimed_at_ms,
        expires_at_ms=lease.expires_at_ms,
    )


def as_plain_fence(fence: ProcessFence) -> LeaseFence:
    """Return a process's fence in the form in which leases are decided upon."""
    return LeaseFence(
        session_id=fence.process_id,
        owner_id=fence.owner_id,
        incarnation_id=fence.incarnation_id,
        token=fence.token,
        fencing=fence.fencing,
    )


def require_process_fence(row: LeaseRow, fence: ProcessFence, now_ms: int) -> ProcessLease:
    """Return the lease that the fence proves, or raise ProcessLeaseLost."""
    try:
        return as_process_lease(require_fence(row, as_plain_fence(fence), now_ms))
    except LeaseLost as lost:
        raise ProcessLeaseLost(fence.process_id, lost.reason) from None


def plan_process_renewal(row: LeaseRow, *, fence: ProcessFence, ttl_ms: int, now_ms: int) -> ProcessLease:
    """Return the renewed lease, or raise ProcessLeaseLost. A renewal never shortens."""
    lease = require_process_fence(row, fence, now_ms)
    expires_at_ms = max(lease.expires_at_ms, saturating_add(now_ms, ttl_ms))
    return msgspec.structs.replace(lease, expires_at_ms=expires_at_ms)


def check_process_fence(fence: object) -> ProcessFence:
    """Return the fence if its fields are of the right kind."""
    if not isinstance(fence, ProcessFence):
        raise InvalidInput(f"fence must be a ProcessFence, not {type(fence).__name__}")
    for name in ("process_id", "owner_id", "incarnation_id", "token"):
        check_identifier(f"fence.{name}", getattr(fence, name))
    check_integer("fence.fencing", fence.fencing, at_least=0)
    return fence


def check_observed_process(observed: object) -> ProcessLease:
    """Return the lease if it is one; it is what a claim answered when it was refused as busy."""
    if not isinstance(observed, ProcessLease):
        raise InvalidInput(f"observed must be the ProcessLease of a refusal, not {type(observed).__name__}")
    check_process_fence(observed.fence)
    return observed
