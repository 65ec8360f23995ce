"""One append to the log of a process: the request, the facts to read, and the decision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec

from lash.base.limits import check_identifier
from lash.errors import Conflict, InvalidInput
from lash.model.lease import LeaseFence, LeaseOwner, ResourceKind
from lash.model.process.event import CONTINUED, Appended, EventDraft
from lash.model.process.process import ProcessRecord
from lash.plan.lease import LeaseRow, check_fence, require_fence
from lash.plan.process.event import AppendDecision, EventRow, InsertEvent, check_draft, plan_append
from lash.plan.process.event_draft import started_draft


class AppendConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions of an append in addition to the rules of the log."""

    fence: LeaseFence | None = None
    """The lease must be live under this fence."""
    ends: bool = False
    """The append ends the process and frees the lease of the fence.

    The fence of a process that has ended is not checked: the plan then compares the outcomes, so that an end can be
    repeated.
    """
    abandons: bool = False
    """Abandonment must have been requested, and no lease may be live."""

    def need_lease(self, record: ProcessRecord) -> bool:
        """Return whether the lease row has to be read before the decision."""
        return self.abandons or (self.fence is not None and not (self.ends and record.is_terminal))


UNCONDITIONAL: Final = AppendConditions()


class AppendFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that were read before an append.

    Without a ``lease`` the conditions are assumed to hold. A writer that has not read it must guard them.
    """

    process_key: int
    record: ProcessRecord
    lease: LeaseRow | None = None
    known: EventRow | None = None
    """The stored event of the draft's replay key."""
    now_ms: int


DecideAppend: TypeAlias = Callable[[AppendFacts], AppendDecision]
"""Decides about one append. Checks for LeaseLost and Conflict first, then for the errors of the log."""


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A checked append and the function that decides about it."""

    process_id: str
    draft: EventDraft
    conditions: AppendConditions
    decide: DecideAppend

    def decide_insert(self, process_key: int, record: ProcessRecord) -> InsertEvent:
        """Decide as if the conditions held and the log had no event of the replay key; the writer must guard both."""
        decision = self.decide(AppendFacts(process_key=process_key, record=record, now_ms=record.updated_at_ms))
        assert isinstance(decision, InsertEvent)
        return decision


class AppendResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an append, and the process after it."""

    appended: Appended
    record: ProcessRecord


def append_request(process_id: str, draft: EventDraft, conditions: AppendConditions = UNCONDITIONAL) -> AppendRequest:
    """Return the checked request, or raise InvalidInput."""
    check_identifier("process_id", process_id)
    check_draft(draft)
    if draft.event_type == CONTINUED and conditions.fence is None:
        raise InvalidInput(f"process {process_id!r}: only the run that holds the lease can continue it")
    if conditions.fence is not None:
        check_fence("fence", conditions.fence, ResourceKind.PROCESS)
    return _request(process_id, draft, conditions)


def start_request(process_id: str, owner: LeaseOwner) -> AppendRequest:
    """Return the append of the event that an owner started to run the process; the claim checked both."""
    return _request(process_id, started_draft(process_id, owner), UNCONDITIONAL)


def plan_request(facts: AppendFacts, *, draft: EventDraft, conditions: AppendConditions) -> AppendDecision:
    """Decide about an append: the conditions first, then the rules of the log."""
    record = facts.record
    if facts.lease is not None and conditions.need_lease(record):
        if conditions.fence is not None:
            require_fence(facts.lease, conditions.fence, facts.now_ms)
        if conditions.abandons:
            require_abandonable(record, facts.lease, facts.now_ms)
    return plan_append(
        record.registration,
        record.projection,
        draft,
        life=facts.process_key,
        last_sequence=record.last_sequence,
        wake_session_id=record.wake_session_id,
        known=facts.known,
        now_ms=facts.now_ms,
    )


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


def _request(process_id: str, draft: EventDraft, conditions: AppendConditions) -> AppendRequest:
    decide = partial(plan_request, draft=draft, conditions=conditions)
    return AppendRequest(process_id=process_id, draft=draft, conditions=conditions, decide=decide)
