"""Rules of process leases: which owner may run a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from lash.model.lease import LeaseOwner
from lash.model.process.process import ProcessRecord, ProcessRefused, Recovery, RefusalReason
from lash.plan.lease import DecideClaim, LeaseClaim, plan_claim
from lash.plan.process.append import AppendRequest, start_request


class RunClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A checked claim on the right to run a process, and the functions that decide about it."""

    claim: LeaseClaim
    refuse: Callable[[ProcessRecord], ProcessRefused | None]
    """Returns why the owner may not run the process, whatever the state of its lease."""
    decide: DecideClaim
    started: AppendRequest
    """The event of the start, to be appended with an acquisition unless the log has it."""


def run_claim(claim: LeaseClaim) -> RunClaim:
    """Return the claim with the rules of processes."""
    return RunClaim(
        claim=claim,
        refuse=partial(refuse_run, owner=claim.owner),
        decide=partial(plan_claim, claim=claim),
        started=start_request(claim.resource.id, claim.owner),
    )


def refuse_run(record: ProcessRecord, owner: LeaseOwner) -> ProcessRefused | None:
    """Return why this owner may not run the process, whatever the state of its lease; None if it may claim it."""
    if record.is_terminal:
        return ProcessRefused(reason=RefusalReason.TERMINAL)
    if record.registration.recovery is Recovery.EXTERNAL:
        return ProcessRefused(reason=RefusalReason.EXTERNAL)
    first = record.projection.started_by
    if record.registration.recovery is Recovery.OWNER_BOUND and first is not None and not first.same_holder(owner):
        return ProcessRefused(reason=RefusalReason.OWNER_BOUND)
    return None
