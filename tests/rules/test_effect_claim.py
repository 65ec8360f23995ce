"""Rules of effect claims: who may run an effect, what a replay returns, and which claims hold."""

from typing import Any

import msgspec
import pytest

from lash.base.limits import MAX_INTEGER
from lash.errors import (
    Conflict,
    CorruptData,
    EffectLeaseLost,
    EffectMismatch,
    EffectNotRecorded,
    InvalidInput,
    LeaseLost,
)
from lash.model.effect import (
    EffectBusy,
    EffectClaim,
    EffectClaimed,
    EffectError,
    EffectGroup,
    EffectRecord,
    EffectReplayed,
    EffectRun,
    EffectStatus,
    EffectUnknown,
    Envelope,
    ExecutionScope,
    OperationScope,
    ProcessScope,
    Sleep,
    Step,
    TurnScope,
)
from lash.model.lease import LeaseFence, LeaseOwner, LocalProcess, process_resource, session_resource
from lash.plan.effect.claim import (
    Claimant,
    ClaimGuard,
    InsertEffect,
    TakeEffect,
    check_attempt,
    check_effect_claim,
    check_run,
    check_scope_fence,
    check_traceparent,
    claim_of,
    decide_effect_claim,
    decide_take_over,
    decode_group,
    decode_record,
    due_at,
    explain_outcome,
    explain_record,
    guard_of,
    is_live,
    name_claim,
    new_claim,
    new_record,
    plan_effect_claim,
    plan_replay,
    plan_take_over,
    renewed,
    require_room,
    require_same_size,
)
from lash.plan.effect.effect import StoredOutcome, encode_envelope
from lash.plan.effect.row import ClaimRow, EffectFacts, EffectRow, GroupRow, RecordedRow
from lash.plan.lease import LeaseRow

TURN = TurnScope(session_id="s", turn_id="t")
RUN = ProcessScope(process_id="p")
ANN = LeaseOwner(owner_id="ann", incarnation_id="1")
ENVELOPE = Envelope(scope=TURN, replay_key="k", command=Step(name="n"))
TEXT = '{"command":{"kind":"step","name":"n"},"replay_key":"k","scope":{"session_id":"s","turn_id":"t","type":"turn"}}'
ENCODED = encode_envelope(ENVELOPE)
OTHER = encode_envelope(Envelope(scope=TURN, replay_key="k", command=Step(name="m")))
LIVE = EffectRow(
    replay_key="k",
    envelope=TEXT,
    envelope_hash=ENCODED.hash,
    status=EffectStatus.IN_PROGRESS,
    outcome=None,
    error=None,
    once=False,
    owner_id="ann",
    incarnation_id="1",
    process=None,
    token="T",
    fencing=3,
    expires_at_ms=100,
    due_at_ms=None,
    settled_rank=None,
    created_at_ms=1,
    updated_at_ms=2,
)
RELEASED = msgspec.structs.replace(LIVE, owner_id=None, incarnation_id=None, token=None, expires_at_ms=None)
ONCE = msgspec.structs.replace(LIVE, once=True)
COMPLETED = msgspec.structs.replace(
    LIVE, status=EffectStatus.COMPLETED, outcome='{"outcome":[1]}', expires_at_ms=None, settled_rank=2
)
FAILED = msgspec.structs.replace(
    LIVE, status=EffectStatus.FAILED, error='{"code":"c","message":"m"}', expires_at_ms=None
)
CLAIM = EffectClaim(
    scope=TURN, replay_key="k", envelope_hash=ENCODED.hash, owner=ANN, token="T", fencing=3, expires_at_ms=100
)
FENCE = LeaseFence(resource=session_resource("s"), owner_id="ann", incarnation_id="1", token="L", fencing=7)
RUN_FENCE = LeaseFence(resource=process_resource("p"), owner_id="ann", incarnation_id="1", token="L", fencing=7)
HELD = LeaseRow(7, "ann", "1", None, "L", 0, 100)
FREE = LeaseRow(7, None, None, None, None, 0, 0)


def begin(row: EffectRow | None, now_ms: int = 50, **fields: Any) -> object:  # noqa: ANN401 - the terms of a begin
    if fields.pop("strict", False):
        return plan_replay(ENCODED, row)
    return plan_effect_claim(ENCODED, row, now_ms=now_ms, **{"token": "new", "once": False, **fields})


def record(row: EffectRow) -> EffectRecord:
    return decode_record(row, TURN)


@pytest.mark.parametrize(
    ("row", "now_ms", "terms", "plan"),
    [
        (None, 50, {}, InsertEffect()),
        (None, 50, {"once": True}, InsertEffect()),
        (COMPLETED, 50, {}, EffectReplayed(record=record(COMPLETED))),
        (COMPLETED, 50, {"strict": True, "once": True}, EffectReplayed(record=record(COMPLETED))),
        (FAILED, 50, {}, EffectReplayed(record=record(FAILED))),
        (FAILED, 50, {"strict": True}, EffectReplayed(record=record(FAILED))),
        (LIVE, 99, {}, EffectBusy(holder=ANN, until_ms=100)),
        (ONCE, 99, {"once": True}, EffectBusy(holder=ANN, until_ms=100)),
        (LIVE, 100, {}, TakeEffect(row=LIVE, once=False, taken_over=True)),
        (LIVE, 100, {"once": True}, EffectUnknown(record=record(LIVE))),
        (ONCE, 100, {}, EffectUnknown(record=record(ONCE))),
        (RELEASED, 50, {}, TakeEffect(row=RELEASED, once=False, taken_over=False)),
        (RELEASED, 50, {"once": True}, TakeEffect(row=RELEASED, once=True, taken_over=False)),
        (LIVE, 50, {"token": "T"}, EffectClaimed(claim=CLAIM, taken_over=True)),
        (
            msgspec.structs.replace(LIVE, fencing=1),
            50,
            {"token": "T"},
            EffectClaimed(claim=msgspec.structs.replace(CLAIM, fencing=1)),
        ),
    ],
)
def test_the_decision(row: EffectRow | None, now_ms: int, terms: dict[str, Any], plan: object) -> None:
    """The decision is to insert, replay, wait, take over, report unknown, or return our own claim."""
    assert begin(row, now_ms, **terms) == plan


@pytest.mark.parametrize("row", [None, LIVE, ONCE, RELEASED])
@pytest.mark.parametrize("now_ms", [50, 100])
def test_strict_runs_nothing(row: EffectRow | None, now_ms: int) -> None:
    """Without an outcome there is nothing to replay, whichever worker began it."""
    with pytest.raises(EffectNotRecorded, match="'k' of turn:1:s:t"):
        begin(row, now_ms, strict=True)


@pytest.mark.parametrize("row", [LIVE, ONCE, RELEASED, COMPLETED, FAILED])
def test_a_mismatch_comes_first(row: EffectRow) -> None:
    """Another envelope under the key is refused in every status."""
    with pytest.raises(EffectMismatch, match=r"command\.name was 'n', now 'm'"):
        plan_effect_claim(OTHER, row, token="new", once=False, now_ms=50)
    with pytest.raises(EffectMismatch):
        plan_replay(OTHER, row)
    with pytest.raises(EffectMismatch):
        plan_take_over(OTHER, row, token="new", now_ms=50)


def test_taking_over() -> None:
    """A lapsed or released effect is taken over, and one that must not run twice stays marked as such."""
    assert plan_take_over(ENCODED, ONCE, token="new", now_ms=100) == TakeEffect(row=ONCE, once=True, taken_over=True)
    assert plan_take_over(ENCODED, RELEASED, token="new", now_ms=50) == TakeEffect(
        row=RELEASED, once=False, taken_over=False
    )
    assert plan_take_over(ENCODED, LIVE, token="T", now_ms=50) == EffectClaimed(claim=CLAIM, taken_over=True)


def test_what_cannot_be_taken_over() -> None:
    """An effect that was never begun, is running or has finished cannot be taken over."""
    with pytest.raises(EffectNotRecorded):
        plan_take_over(ENCODED, None, token="new", now_ms=50)
    for row in (COMPLETED, FAILED):
        with pytest.raises(Conflict, match=r"is (completed|failed)"):
            plan_take_over(ENCODED, row, token="new", now_ms=500)
    with pytest.raises(Conflict, match="is running"):
        plan_take_over(ENCODED, LIVE, token="new", now_ms=99)


def facts(row: EffectRow | None = None, lease: LeaseRow | None = HELD, group: GroupRow | None = None) -> EffectFacts:
    return EffectFacts(now_ms=50, lease=lease, group=group, row=row)


def test_what_stands_in_the_way_of_recording() -> None:
    """The fence is checked first, then what is recorded already; None means that recording may proceed."""
    assert explain_record(ENCODED, FENCE, facts()) is None
    assert explain_record(ENCODED, FENCE, facts(COMPLETED)) == record(COMPLETED)
    with pytest.raises(LeaseLost):
        explain_record(ENCODED, FENCE, facts(COMPLETED, FREE))
    with pytest.raises(LeaseLost):
        explain_record(ENCODED, RUN_FENCE, facts(COMPLETED, FREE))
    with pytest.raises(EffectMismatch):
        explain_record(OTHER, FENCE, facts(COMPLETED))
    for row in (LIVE, RELEASED):
        with pytest.raises(Conflict, match="has a claim"):
            explain_record(ENCODED, FENCE, facts(row))
    with pytest.raises(CorruptData, match="no lease row"):
        explain_record(ENCODED, FENCE, facts(None, None))


def test_settling_may_be_repeated_likewise() -> None:
    """Repeating with the same claim, status and outcome is accepted; anything else is refused."""
    done = StoredOutcome(status=EffectStatus.COMPLETED, outcome='{"outcome":[1]}')
    assert explain_outcome(CLAIM, done, COMPLETED) == record(COMPLETED)
    for claim, settlement, row in (
        (CLAIM, done, None),
        (CLAIM, done, LIVE),
        (CLAIM, done, FAILED),
        (CLAIM, StoredOutcome(status=EffectStatus.COMPLETED, outcome='{"outcome":[2]}'), COMPLETED),
        (msgspec.structs.replace(CLAIM, token="U"), done, COMPLETED),
        (msgspec.structs.replace(CLAIM, fencing=2), done, COMPLETED),
        (msgspec.structs.replace(CLAIM, envelope_hash="h"), done, COMPLETED),
    ):
        with pytest.raises(EffectLeaseLost, match="'k' of turn:1:s:t"):
            explain_outcome(claim, settlement, row)


def test_room_in_a_group() -> None:
    """An effect without a group needs no room; one with a group needs it open and not full."""
    grouped = encode_envelope(msgspec.structs.replace(ENVELOPE, group_key="g"))
    require_room(ENCODED, None)
    require_room(grouped, GroupRow(2, 1, 0))
    with pytest.raises(Conflict, match="not opened"):
        require_room(grouped, None)
    with pytest.raises(Conflict, match="full"):
        require_room(grouped, GroupRow(2, 2, 0))
    with pytest.raises(Conflict, match="full"):
        explain_record(grouped, FENCE, facts(group=GroupRow(1, 1, 1)))


def test_a_new_effect_needs_room_in_its_group() -> None:
    """An effect without a row joins its group only if there is room; one with a row has already joined."""
    grouped = encode_envelope(msgspec.structs.replace(ENVELOPE, group_key="g"))
    stored = msgspec.structs.replace(LIVE, envelope_hash=grouped.hash)
    full, open_ = GroupRow(2, 2, 0), GroupRow(2, 1, 0)
    for group, row in ((open_, None), (full, stored), (None, stored)):
        facts = EffectFacts(now_ms=50, lease=None, group=group, row=row)
        expected = InsertEffect() if row is None else EffectBusy(holder=ANN, until_ms=100)
        assert decide_effect_claim(facts, encoded=grouped, token="new", once=False) == expected
    with pytest.raises(Conflict, match="is full with 2 effects"):
        decide_effect_claim(
            EffectFacts(now_ms=50, lease=None, group=full, row=None), encoded=grouped, token="new", once=False
        )


def test_taking_over_by_facts() -> None:
    """The row and the time of the facts decide, as in a plan."""
    taken = decide_take_over(EffectFacts(now_ms=100, lease=None, group=None, row=LIVE), encoded=ENCODED, token="new")
    assert taken == TakeEffect(row=LIVE, once=False, taken_over=True)
    with pytest.raises(Conflict, match="is running"):
        decide_take_over(EffectFacts(now_ms=99, lease=None, group=None, row=LIVE), encoded=ENCODED, token="new")


def test_a_renewed_claim_has_the_written_expiry() -> None:
    """The expiry and the due time are the written ones; without them the claim is lost."""
    assert renewed(CLAIM, ClaimRow(3, 200, 7)) == msgspec.structs.replace(CLAIM, expires_at_ms=200, due_at_ms=7)
    with pytest.raises(EffectLeaseLost):
        renewed(CLAIM, None)


def test_a_guard_has_the_values_of_its_claim() -> None:
    """A row must have the claim's keys, hash, token and fencing number."""
    guard = guard_of(CLAIM)
    assert guard == ClaimGuard(scope_id="turn:1:s:t", replay_key="k", envelope_hash=ENCODED.hash, token="T", fencing=3)


def test_a_claimant_describes_its_process() -> None:
    """A claimant's process is stored as JSON, and omitted if it cannot be described."""
    assert Claimant(owner=ANN, token="T", ttl_ms=1).process is None
    process = LocalProcess(host_id="h", boot_id="b", pid=1, process_start="2")
    owner = msgspec.structs.replace(ANN, process=process)
    assert Claimant(owner=owner, token="T", ttl_ms=1).process == msgspec.json.encode(process).decode()


def test_the_size_of_a_group() -> None:
    """A group is opened with one size."""
    require_same_size(TURN, "g", 2, 2)
    with pytest.raises(Conflict, match="'g' of turn:1:s:t was opened for 2 effects, not 3"):
        require_same_size(TURN, "g", 2, 3)


def test_groups_are_decoded() -> None:
    """A group whose counter and effects disagree is damaged."""
    row = GroupRow(3, 2, 2)
    assert decode_group(TURN, "g", row, ["b", "a"]) == EffectGroup(
        scope=TURN, group_key="g", size=3, settled=("b", "a")
    )
    with pytest.raises(CorruptData, match="counts 2"):
        decode_group(TURN, "g", row, ["b"])


def test_who_is_live() -> None:
    """A claim is live before its expiry, and not at that moment."""
    assert [is_live(LIVE, now) for now in (99, 100, 101)] == [True, False, False]
    assert not is_live(RELEASED, 50)
    assert not is_live(msgspec.structs.replace(LIVE, token=None), 50)
    assert not is_live(COMPLETED, 50)


@pytest.mark.parametrize(
    ("command", "due"),
    [
        (Step(name="n"), None),
        (Sleep(duration_ms=5), 15),
        (Sleep(until_ms=7), 7),
        (Sleep(duration_ms=MAX_INTEGER), MAX_INTEGER),
    ],
)
def test_due_times(command: Step | Sleep, due: int | None) -> None:
    """A duration counts from now, a moment is itself, and both are clamped to the range."""
    assert due_at(encode_envelope(msgspec.structs.replace(ENVELOPE, command=command)), 10) == due


def test_claims_are_made_from_rows() -> None:
    """A claim has the written values; a row without an expiry or a holder is damaged."""
    assert claim_of(ENCODED, LIVE) == CLAIM
    assert new_claim(ENCODED, ANN, "T", ClaimRow(3, 100, None)) == CLAIM
    assert claim_of(ENCODED, msgspec.structs.replace(LIVE, due_at_ms=7)).due_at_ms == 7
    for row in (RELEASED, COMPLETED):
        with pytest.raises(CorruptData, match="a token but no expiry"):
            claim_of(ENCODED, row)
    for broken in ({"owner_id": None}, {"incarnation_id": None}):
        with pytest.raises(CorruptData, match="no holder"):
            claim_of(ENCODED, msgspec.structs.replace(LIVE, **broken))


def test_records_are_decoded() -> None:
    """A record has everything that is stored."""
    assert decode_record(msgspec.structs.replace(LIVE, due_at_ms=7), TURN).due_at_ms == 7
    process = '{"host_id":"h","boot_id":"b","pid":1,"process_start":"1"}'
    done = decode_record(msgspec.structs.replace(COMPLETED, process=process), TURN)
    assert done == EffectRecord(
        scope=TURN,
        replay_key="k",
        kind="step",
        envelope=ENVELOPE,
        envelope_hash=ENCODED.hash,
        status=EffectStatus.COMPLETED,
        outcome=[1],
        owner=msgspec.structs.replace(ANN, process=LocalProcess(host_id="h", boot_id="b", pid=1, process_start="1")),
        fencing=3,
        settled_rank=2,
        created_at_ms=1,
        updated_at_ms=2,
        worker=ANN.owner_id,
    )
    measured = decode_record(msgspec.structs.replace(LIVE, began_at_ms=5, attempt=2, tries=3, worker="w"), TURN)
    assert (measured.began_at_ms, measured.attempt, measured.tries, measured.worker) == (5, 2, 3, "w")
    assert decode_record(FAILED, TURN).error == EffectError(code="c", message="m")
    assert (decode_record(RELEASED, TURN).owner, decode_record(LIVE, TURN).expires_at_ms) == (None, 100)


def test_a_new_record_is_as_it_will_be_read() -> None:
    """A new record is equal to its later replay."""
    settlement = StoredOutcome(status=EffectStatus.COMPLETED, outcome='{"outcome":[1]}')
    ran = EffectRun(took_ms=4, attempt=2, tries=3, traceparent="00-a-b-01")
    found = new_record(ENCODED, settlement, RecordedRow(9, 10, 2), ran, "w")
    row = msgspec.structs.replace(
        COMPLETED,
        owner_id=None,
        incarnation_id=None,
        token=None,
        fencing=0,
        due_at_ms=10,
        created_at_ms=9,
        updated_at_ms=9,
        began_at_ms=5,
        attempt=2,
        tries=3,
        worker="w",
        traceparent="00-a-b-01",
    )
    assert found.traceparent == "00-a-b-01"
    assert found == decode_record(row, TURN)


@pytest.mark.parametrize(
    "damage",
    [
        {"outcome": None},
        {"outcome": "{"},
        {"outcome": "{}"},
        {"error": '{"code":"c","message":"m"}'},
        {"status": EffectStatus.FAILED},
        {"status": EffectStatus.FAILED, "outcome": None, "error": "[]"},
        {"status": EffectStatus.IN_PROGRESS},
        {"envelope": "{"},
        {"envelope": TEXT.replace('"k"', '"l"')},
        {"envelope": TEXT.replace('"t"', '"u"')},
        {"process": "{"},
    ],
    ids=repr,
)
def test_damaged_rows_are_corrupt(damage: dict[str, Any]) -> None:
    """A row that contradicts itself is never replayed."""
    with pytest.raises(CorruptData, match="'k'"):
        decode_record(msgspec.structs.replace(COMPLETED, **damage), TURN)


def test_claims_are_checked() -> None:
    """An invalid claim is refused before anything is read."""
    assert check_effect_claim(CLAIM) == "turn:1:s:t"
    assert check_effect_claim(msgspec.structs.replace(CLAIM, fencing=1)) == "turn:1:s:t"
    assert name_claim(CLAIM) == "effect 'k' of turn:1:s:t"
    with pytest.raises(InvalidInput, match="not str"):
        check_effect_claim("claim")
    for broken in ({"scope": None}, {"replay_key": ""}, {"token": 1}, {"envelope_hash": None}, {"fencing": 0}):
        with pytest.raises(InvalidInput):
            check_effect_claim(msgspec.structs.replace(CLAIM, **broken))


def test_fences_belong_to_their_scope() -> None:
    """The fence must be of the scope's own session or process, and of its kind."""
    assert check_scope_fence(TURN, FENCE) is FENCE
    assert check_scope_fence(RUN, RUN_FENCE) is RUN_FENCE
    refused: list[tuple[ExecutionScope, object, type[Exception]]] = [
        (TURN, msgspec.structs.replace(FENCE, resource=session_resource("other")), LeaseLost),
        (TURN, RUN_FENCE, LeaseLost),
        (RUN, msgspec.structs.replace(RUN_FENCE, resource=process_resource("other")), LeaseLost),
        (RUN, FENCE, LeaseLost),
        (OperationScope(operation_id="o"), FENCE, InvalidInput),
        (TURN, CLAIM, InvalidInput),
        (TURN, msgspec.structs.replace(FENCE, token=""), InvalidInput),
        (RUN, msgspec.structs.replace(RUN_FENCE, token=""), InvalidInput),
    ]
    for scope, fence, error in refused:
        with pytest.raises(error):
            check_scope_fence(scope, fence)


@pytest.mark.parametrize(
    "ran",
    [
        None,
        {"took_ms": 1},
        EffectRun(took_ms=-1),
        EffectRun(tries=0),
        EffectRun(attempt=0),
        EffectRun(traceparent=" "),
    ],
)
def test_an_invalid_run_is_refused(ran: object) -> None:
    """How an effect ran has a time of at least 0, counts from 1, and no blank trace context."""
    with pytest.raises(InvalidInput, match=r"ran\.|EffectRun"):
        check_run(ran)


def test_a_valid_run_is_returned() -> None:
    """The attempt and its span may be unknown."""
    for ran in (EffectRun(), EffectRun(took_ms=0, attempt=1, tries=1, traceparent="00-a-b-01")):
        assert check_run(ran) is ran
    assert (check_attempt("attempt", None), check_attempt("attempt", 1)) == (None, 1)
    assert (check_traceparent("it", None), check_traceparent("it", "00-a-b-01")) == (None, "00-a-b-01")
