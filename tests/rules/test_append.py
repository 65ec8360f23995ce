"""The conditions of an append, checked before the rules of the log."""

import msgspec
import pytest

from lash.errors import Conflict, EventConflict, InvalidInput, LeaseLost
from lash.model.lease import LeaseFence, process_resource, session_resource
from lash.model.process.event import STARTED, EventDraft
from lash.model.process.process import (
    EngineInput,
    ProcessRecord,
    ProcessStatus,
    Projection,
    Registration,
)
from lash.plan.lease import LeaseClaim, LeaseRow, Reenter, Refuse
from lash.plan.process.append import (
    UNCONDITIONAL,
    AppendConditions,
    AppendFacts,
    append_request,
    plan_request,
    start_request,
)
from lash.plan.process.event import EventRow, InsertEvent, ReplayEvent, payload_hash
from lash.plan.process.lease import run_claim
from tests.rules.kit import FREE_LEASE, OWNER, PROCESS

replace = msgspec.structs.replace

RESOURCE = process_resource(PROCESS)
FENCE = LeaseFence(resource=RESOURCE, owner_id="worker", incarnation_id="first", token="token", fencing=5)
HELD = LeaseRow(5, "worker", "first", None, "token", 1_000, 2_000)
CANCEL = EventDraft(event_type="process.cancel_requested", payload={"reason": ""}, replay_key="key")
FENCED = AppendConditions(fence=FENCE)
ENDS = AppendConditions(fence=FENCE, ends=True)
ABANDONS = AppendConditions(abandons=True)


def record(projection: Projection | None = None) -> ProcessRecord:
    return ProcessRecord(
        process_id=PROCESS,
        registration_hash="hash",
        registration=Registration(process_id=PROCESS, input=EngineInput(kind="k")),
        projection=projection or Projection(),
        wake_session_id=None,
        last_sequence=3,
        created_at_ms=0,
        updated_at_ms=70,
    )


RUNNING = record()
ENDED = record(Projection(status=ProcessStatus.COMPLETED))


def facts(
    of: ProcessRecord = RUNNING, lease: LeaseRow | None = HELD, known: EventRow | None = None, now_ms: int = 1_500
) -> AppendFacts:
    return AppendFacts(process_key=7, record=of, lease=lease, known=known, now_ms=now_ms)


@pytest.mark.parametrize(
    ("conditions", "of", "needed"),
    [
        (UNCONDITIONAL, RUNNING, False),
        (FENCED, RUNNING, True),
        (FENCED, ENDED, True),
        (ENDS, RUNNING, True),
        (ENDS, ENDED, False),
        (AppendConditions(ends=True), RUNNING, False),
        (ABANDONS, RUNNING, True),
        (ABANDONS, ENDED, True),
    ],
)
def test_the_lease_is_needed_only_where_a_condition_is_about_it(
    conditions: AppendConditions,
    of: ProcessRecord,
    needed: bool,  # noqa: FBT001 (drawn by name)
) -> None:
    """The end of an ended process is compared with the stored one, whatever its lease is."""
    assert conditions.need_lease(of) is needed


def test_an_append_whose_conditions_hold_is_decided_by_the_rules_of_the_log() -> None:
    """The event gets the next number, the time of the facts, and its process."""
    decision = plan_request(facts(), draft=CANCEL, conditions=FENCED)
    assert isinstance(decision, InsertEvent)
    event = decision.event
    assert (event.process_id, event.sequence, event.occurred_at_ms, event.replay_key) == (PROCESS, 4, 1_500, "key")


def test_a_known_event_is_replayed_and_other_content_conflicts() -> None:
    """The rules of the log get the event of the replay key."""
    known = EventRow(2, CANCEL.event_type, "key", payload_hash(CANCEL.event_type, CANCEL.payload), "{}", None, 9)
    known = replace(known, payload='{"payload":{"reason":""}}')
    decision = plan_request(facts(known=known), draft=CANCEL, conditions=UNCONDITIONAL)
    assert isinstance(decision, ReplayEvent)
    assert (decision.event.sequence, decision.event.occurred_at_ms) == (2, 9)
    with pytest.raises(EventConflict):
        plan_request(facts(known=replace(known, payload_hash="other")), draft=CANCEL, conditions=UNCONDITIONAL)


@pytest.mark.parametrize("conditions", [FENCED, ENDS])
@pytest.mark.parametrize(("lease", "now_ms"), [(FREE_LEASE, 0), (HELD, 2_000)])
def test_a_fence_that_does_not_hold_stops_the_append(
    conditions: AppendConditions, lease: LeaseRow, now_ms: int
) -> None:
    """A released or expired lease refuses the append, even of a known event."""
    with pytest.raises(LeaseLost) as raised:
        plan_request(facts(lease=lease, now_ms=now_ms), draft=CANCEL, conditions=conditions)
    assert raised.value.resource == RESOURCE


def test_an_unread_lease_is_assumed_to_hold() -> None:
    """The statement that writes also checks the condition."""
    for conditions in (FENCED, ENDS, ABANDONS):
        assert isinstance(plan_request(facts(lease=None), draft=CANCEL, conditions=conditions), InsertEvent)


def test_an_abandonment_needs_a_request_and_a_free_lease() -> None:
    """Both are checked before the rules of the log."""
    with pytest.raises(Conflict, match="was not asked to be abandoned"):
        plan_request(facts(), draft=CANCEL, conditions=ABANDONS)
    asked = record(Projection(abandon_requested=True))
    with pytest.raises(Conflict, match="is being run"):
        plan_request(facts(asked), draft=CANCEL, conditions=ABANDONS)
    assert isinstance(plan_request(facts(asked, now_ms=2_000), draft=CANCEL, conditions=ABANDONS), InsertEvent)


def test_a_request_carries_its_decision() -> None:
    """An insertion decided without a read has the time of the record."""
    request = append_request(PROCESS, CANCEL, FENCED)
    assert (request.process_id, request.draft, request.conditions) == (PROCESS, CANCEL, FENCED)
    assert append_request(PROCESS, CANCEL).conditions is UNCONDITIONAL
    assert request.decide_insert(7, RUNNING).event.occurred_at_ms == 70
    with pytest.raises(LeaseLost):
        request.decide(facts(lease=FREE_LEASE))


@pytest.mark.parametrize(
    ("process_id", "draft", "fence", "message"),
    [
        ("", CANCEL, None, "process_id is blank"),
        (PROCESS, replace(CANCEL, event_type=""), None, "event_type is blank"),
        (PROCESS, CANCEL, replace(FENCE, token=""), r"fence\.token is blank"),
        (PROCESS, CANCEL, replace(FENCE, resource=session_resource("s")), "must be the fence of a process"),
    ],
)
def test_a_request_is_checked(process_id: str, draft: EventDraft, fence: LeaseFence | None, message: str) -> None:
    """Process, draft and fence are checked before anything is read."""
    with pytest.raises(InvalidInput, match=message):
        append_request(process_id, draft, AppendConditions(fence=fence))


def test_a_start_is_an_event_of_its_owner() -> None:
    """The replay key depends on process and owner, so a second claim by the owner appends nothing."""
    request = start_request(PROCESS, OWNER)
    assert (request.process_id, request.draft.event_type, request.conditions) == (PROCESS, STARTED, UNCONDITIONAL)
    assert request.draft.replay_key == start_request(PROCESS, OWNER).draft.replay_key
    assert request.decide_insert(7, RUNNING).projection.started_by == OWNER


def test_a_claim_of_a_process_carries_its_rules() -> None:
    """A claim checks status and holder, and carries the event of the start."""
    claim = LeaseClaim(resource=RESOURCE, owner=OWNER, ttl_ms=100)
    run = run_claim(claim)
    assert run.claim is claim
    assert run.refuse(RUNNING) is None
    assert run.refuse(ENDED) is not None
    assert isinstance(run.decide(HELD, 1_500), Reenter)
    assert isinstance(run.decide(replace(HELD, incarnation_id="second"), 1_500), Refuse)
    assert run.started.draft == start_request(PROCESS, OWNER).draft
