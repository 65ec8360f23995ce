"""Which owner may run a process, and when a process may be abandoned."""

from __future__ import annotations

from lash.errors import Conflict
from lash.model.lease import LeaseOwner
from lash.model.process.process import ProcessRecord, ProcessRefused, Recovery, RefusalReason
from lash.plan.lease import LeaseRow


def refuse_run(record: ProcessRecord, owner: LeaseOwner) -> ProcessRefused | None:
    """Return why this owner may not run the process, whatever its lease says; None if it may claim the lease."""
    if record.is_terminal:
        return ProcessRefused(reason=RefusalReason.TERMINAL)
    if record.registration.recovery is Recovery.EXTERNAL:
        return ProcessRefused(reason=RefusalReason.EXTERNAL)
    first = record.projection.started_by
    if record.registration.recovery is Recovery.OWNER_BOUND and first is not None and not first.same_holder(owner):
        return ProcessRefused(reason=RefusalReason.OWNER_BOUND)
    return None


def require_abandonable(record: ProcessRecord, lease: LeaseRow, now_ms: int) -> None:
    """Raise Conflict unless abandonment was requested and no live lease holds the process.

    A process that ended is left to the append, which compares the outcomes.
    """
    if record.is_terminal:
        return
    if not record.projection.abandon_requested:
        raise Conflict(f"process {record.process_id!r} was not asked to be abandoned; call request_abandon first")
    if lease.is_live(now_ms):
        raise Conflict(f"process {record.process_id!r} is being run; its lease must expire before it is abandoned")
