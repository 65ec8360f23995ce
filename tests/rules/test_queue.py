"""Rules of queued work: the stored form, known source keys, and when a claim holds."""

import msgspec
import pytest

from lash.errors import ClaimLost, CorruptData, InvalidInput, SourceKeyConflict
from lash.model.causal import TurnCause
from lash.model.queue import (
    Batch,
    BatchDraft,
    BatchState,
    Boundary,
    Claim,
    ClaimCompletion,
    Delivery,
    Enqueued,
    Payload,
    ProcessWake,
    SessionCommand,
    Slot,
    TurnInput,
)
from lash.model.session.commit import CommitBudget
from lash.plan.queue.claim import (
    ClaimedRows,
    HeldBatch,
    NewClaim,
    check_batch_ids,
    check_boundary,
    check_claim_size,
    check_completion,
    check_completions,
    check_count_attempt,
    check_work_claim,
    held_by_token,
    new_claim,
    renewed_claim,
    require_completion,
)
from lash.plan.queue.queue import (
    BatchRow,
    KnownKey,
    SourceKeyRow,
    check_size,
    decode_batch,
    decode_enqueued,
    encode_batch,
    ready_session,
)
from tests.rules.kit import SESSION, sha256

replace = msgspec.structs.replace

MOST = 9_223_372_036_854_775_807
HELLO = TurnInput.of_text("hello")
WAKE = ProcessWake(
    wake_id="w", process_id="p", sequence=3, input={"b": 1, "a": None}, caused_by=TurnCause(session_id="s", turn_id="t")
)
NAMED = replace(HELLO, protocol_turn_options={"agent": "clerk"})
DRAFT = BatchDraft(session_id=SESSION, payloads=(HELLO,), source_key="host:1")
FULL_DRAFT = BatchDraft(
    session_id=SESSION,
    payloads=(WAKE, replace(WAKE, sequence=4, caused_by=None)),
    source_key="key",
    delivery=Delivery.EARLIEST_SAFE_BOUNDARY,
    slot=Slot.JOIN,
    merge_key="group",
    available_at_ms=77,
)

# Written by hand: mappings by sorted keys, records by their order of today, no white space, no field at its default.
CONTENT = (
    '{"delivery":"after_current_turn_commit","merge_key":null,'
    '"payloads":[{"kind":"turn_input","items":[{"type":"text","text":"hello"}]}],"slot":"exclusive"}'
)
FULL_CONTENT = (
    '{"delivery":"earliest_safe_boundary","merge_key":"group","payloads":['
    '{"kind":"process_wake","wake_id":"w","process_id":"p","sequence":3,"input":{"a":null,"b":1},'
    '"caused_by":{"type":"turn","session_id":"s","turn_id":"t"}},'
    '{"kind":"process_wake","wake_id":"w","process_id":"p","sequence":4,"input":{"a":null,"b":1}}],"slot":"join"}'
)
GOLDEN = "8074e0647aca95be8c459e46f9c9e61bdf9d8c7d2ac558a851d77304f892747b"
FULL_GOLDEN = "40567cab6570fa762e889ea976e215c118a92ceb6a5cc23b6ad7dc2681c0a878"

ROW = BatchRow(
    9,
    "b",
    "host:1",
    "after_current_turn_commit",
    "exclusive",
    None,
    0,
    5,
    2,
    1,
    3,
    '{"payloads":[{"kind":"turn_input","items":[{"type":"text","text":"hello"}]}]}',
)
BATCH = Batch(
    session_id=SESSION,
    batch_id="b",
    seq=9,
    payloads=(HELLO,),
    source_key="host:1",
    delivery=Delivery.AFTER_CURRENT_TURN_COMMIT,
    slot=Slot.EXCLUSIVE,
    merge_key=None,
    available_at_ms=0,
    enqueued_at_ms=5,
    attempts=2,
    failures=1,
    priority=3,
)
CLAIM = Claim(
    session_id=SESSION,
    claim_id="c",
    token="t",
    lease_fencing=1,
    claimed_at_ms=1,
    expires_at_ms=2,
    batches=(BATCH, replace(BATCH, batch_id="b2")),
)


def test_the_golden_vectors_are_the_hashes_of_the_written_content() -> None:
    """The checked-in hashes are SHA-256 over a version prefix and the content written by hand."""
    assert sha256(b"lash.batch.v1\0" + CONTENT.encode()) == GOLDEN
    assert sha256(b"lash.batch.v1\0" + FULL_CONTENT.encode()) == FULL_GOLDEN


def test_a_batch_has_its_golden_hash() -> None:
    """The hash behind a source key never changes, so old keys keep recognising their content."""
    assert encode_batch(DRAFT).content_hash == GOLDEN
    assert encode_batch(FULL_DRAFT).content_hash == FULL_GOLDEN


def test_the_agent_that_input_names() -> None:
    """The first input that names an agent decides; wakes and commands name none."""
    other = replace(HELLO, protocol_turn_options={"agent": "boss"})
    named = replace(DRAFT, payloads=(HELLO, NAMED, other))
    assert [encode_batch(each).agent for each in (DRAFT, named, FULL_DRAFT)] == [None, "clerk", None]


@pytest.mark.parametrize(
    "same",
    [
        replace(DRAFT, session_id="other"),
        replace(DRAFT, source_key=None),
        replace(DRAFT, available_at_ms=5),
        replace(DRAFT, priority=9),
        replace(DRAFT, payloads=[HELLO]),
        replace(DRAFT, payloads=(NAMED,)),
    ],
    ids=["session", "source key", "availability", "priority", "list", "agent"],
)
def test_what_is_no_content_does_not_change_the_hash(same: BatchDraft) -> None:
    """Session, key, due time, priority and the agent that is to answer are not part of the content."""
    assert encode_batch(same).content_hash == GOLDEN


def test_a_key_of_an_earlier_version_is_recognised() -> None:
    """Earlier versions hashed the agent with the content; a repeat that names the same agent still finds its batch."""
    earlier = (
        '{"delivery":"after_current_turn_commit","merge_key":null,"payloads":[{"kind":"turn_input","items":'
        '[{"type":"text","text":"hello"}],"protocol_turn_options":{"agent":"clerk"}}],"slot":"exclusive"}'
    )
    stored = SourceKeyRow("b", sha256(b"lash.batch.v1\0" + earlier.encode()), "consumed")
    again = replace(DRAFT, payloads=(NAMED,))
    answer = decode_enqueued(encode_batch(again), KnownKey(key=stored, batch=None))
    assert (answer.batch_id, answer.created) == ("b", False)
    for other in (DRAFT, replace(DRAFT, payloads=(replace(NAMED, protocol_turn_options={"agent": "boss"}),))):
        with pytest.raises(SourceKeyConflict):
            decode_enqueued(encode_batch(other), KnownKey(key=stored, batch=None))


def test_a_batch_takes_half_of_a_commit_at_most() -> None:
    """The size is that of the stored bytes; the error says what to do."""
    encoded = encode_batch(replace(DRAFT, payloads=(TurnInput.of_text("é" * 100),)))
    size = len(encoded.payloads.encode())
    check_size(encoded, CommitBudget(max_bytes=2 * size))
    with pytest.raises(InvalidInput, match=rf"holds {size} bytes; .* at most {size - 1}, half .* as an attachment"):
        check_size(encoded, CommitBudget(max_bytes=2 * size - 1))


@pytest.mark.parametrize(
    "other",
    [
        replace(DRAFT, payloads=(TurnInput.of_text("Hello"),)),
        replace(DRAFT, payloads=(HELLO, HELLO)),
        replace(DRAFT, delivery=Delivery.EARLIEST_SAFE_BOUNDARY),
        replace(DRAFT, slot=Slot.JOIN),
        replace(DRAFT, merge_key="group"),
    ],
    ids=["text", "more", "delivery", "slot", "merge key"],
)
def test_other_content_has_another_hash(other: BatchDraft) -> None:
    """Payloads and their delivery rules are the content."""
    assert encode_batch(other).content_hash != GOLDEN


@pytest.mark.parametrize(
    ("payload", "delivery", "lane"),
    [
        (HELLO, Delivery.AFTER_CURRENT_TURN_COMMIT, "late"),
        (HELLO, Delivery.EARLIEST_SAFE_BOUNDARY, "early"),
        (WAKE, Delivery.EARLIEST_SAFE_BOUNDARY, "early"),
        (SessionCommand(command="reset"), Delivery.AFTER_CURRENT_TURN_COMMIT, "command"),
        (SessionCommand(command="reset"), Delivery.EARLIEST_SAFE_BOUNDARY, "command"),
    ],
)
def test_a_batch_waits_in_the_lane_of_its_kind_and_delivery(payload: Payload, delivery: Delivery, lane: str) -> None:
    """Commands have their own lane, whatever their delivery."""
    assert encode_batch(replace(DRAFT, payloads=(payload,), delivery=delivery)).lane == lane


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("draft", "expected a BatchDraft, got str"),
        (replace(DRAFT, session_id=""), "session_id is blank"),
        (replace(DRAFT, priority=-1), "priority must lie between 0"),
        (replace(DRAFT, priority=10), "expected a priority from 0 to 9, got 10"),
        (replace(DRAFT, available_at_ms=-1), "available_at_ms must lie between 0"),
        (replace(DRAFT, available_at_ms=2**63), "available_at_ms must lie between 0"),
        (replace(DRAFT, available_at_ms=2**63 - 1), "available_at_ms must be below 9223372036854775807"),
        (replace(DRAFT, wake_session_id=" "), "wake_session_id is blank"),
        (replace(DRAFT, available_at_ms=1.0), "available_at_ms must be an integer"),
        (replace(DRAFT, source_key=" "), "source_key is blank"),
        (replace(DRAFT, source_key="a\0"), "source_key contains a NUL"),
        (replace(DRAFT, merge_key=""), "merge_key is blank"),
        (replace(DRAFT, merge_key=7), "merge_key must be text"),
        (replace(DRAFT, payloads=()), "payloads must be a tuple of at least one payload"),
        (replace(DRAFT, payloads="text"), "payloads must be a tuple of at least one payload"),
        (replace(DRAFT, payloads=None), "payloads must be a tuple of at least one payload"),
        (replace(DRAFT, payloads=(HELLO, "text")), "expected payloads, got a str"),
        (replace(DRAFT, payloads=(HELLO, WAKE)), "one kind of payload, got 2"),
        (replace(DRAFT, payloads=(HELLO, WAKE, SessionCommand(command="reset"))), "one kind of payload, got 3"),
        (replace(DRAFT, payloads=(TurnInput.of_text("\ud800"),)), "payloads contains a lone surrogate"),
        (replace(DRAFT, payloads=(replace(WAKE, sequence=-1),)), "payloads"),
        (replace(DRAFT, payloads=(replace(WAKE, sequence=2**64),)), "payloads"),
        (replace(DRAFT, delivery="soon"), "delivery must be a Delivery, not 'soon'"),
        (replace(DRAFT, delivery="earliest_safe_boundary"), "delivery must be a Delivery"),
        (replace(DRAFT, slot=Boundary.IDLE), "slot must be a Slot"),
        (replace(DRAFT, slot=None), "slot must be a Slot, not None"),
    ],
)
def test_a_draft_that_cannot_be_stored_is_refused(wrong: BatchDraft, message: str) -> None:
    """The error names the fault, before any read."""
    with pytest.raises(InvalidInput, match=message):
        encode_batch(wrong)


def test_a_stored_batch_is_read_back() -> None:
    """A row decodes to its batch, and items are named by their positions."""
    assert decode_batch(ROW, SESSION) == BATCH
    two = replace(BATCH, payloads=(HELLO, HELLO))
    assert two.item_ids == ("b:item:0", "b:item:1")


@pytest.mark.parametrize("damage", [{"delivery": "soon"}, {"slot": "none"}, {"payloads": "{"}])
def test_a_row_that_cannot_be_read_is_corrupt(damage: dict[str, str]) -> None:
    """The error names the batch."""
    with pytest.raises(CorruptData, match="batch 'b' cannot be read"):
        decode_batch(replace(ROW, **damage), SESSION)


def test_a_batch_gives_its_session_work_unless_it_is_delayed() -> None:
    """Queued, ready work counts; delayed work does not yet, and a removed batch does not any more."""
    assert ready_session(replace(BATCH, available_at_ms=0)) == SESSION
    assert ready_session(replace(BATCH, available_at_ms=1)) is None
    assert ready_session(None) is None


def test_the_trace_of_the_sender_is_stored_and_not_hashed() -> None:
    """A message with a trace has the hash of the same message without one."""
    traced = encode_batch(
        replace(DRAFT, payloads=tuple(replace(each, traceparent="00-a-b-01") for each in DRAFT.payloads))
    )
    assert traced.content_hash == GOLDEN
    assert '"traceparent":"00-a-b-01"' in traced.payloads


def test_a_known_source_key_tells_of_its_batch() -> None:
    """While the batch is queued it is returned, afterwards its final state."""
    encoded = encode_batch(DRAFT)
    pending = decode_enqueued(encoded, KnownKey(key=SourceKeyRow("b", GOLDEN, "pending"), batch=ROW))
    assert pending == Enqueued(batch_id="b", created=False, state=BatchState.PENDING, batch=BATCH)
    done = decode_enqueued(encoded, KnownKey(key=SourceKeyRow("b", GOLDEN, "consumed"), batch=None))
    assert done == Enqueued(batch_id="b", created=False, state=BatchState.CONSUMED, batch=None)
    dead = decode_enqueued(encoded, KnownKey(key=SourceKeyRow("b", GOLDEN, "pending"), batch=None))
    assert dead == Enqueued(batch_id="b", created=False, state=BatchState.DEAD, batch=None)
    with pytest.raises(SourceKeyConflict) as refused:
        decode_enqueued(encoded, KnownKey(key=SourceKeyRow("b", FULL_GOLDEN, "cancelled"), batch=None))
    assert (refused.value.session_id, refused.value.source_key) == (SESSION, "host:1")


def test_a_written_batch_is_answered_as_created() -> None:
    """A batch that was just written is pending, and is returned whole."""
    assert decode_enqueued(encode_batch(DRAFT), ROW) == Enqueued(batch_id="b", created=True, batch=BATCH)


@pytest.mark.parametrize(("ttl_ms", "expires_at_ms"), [(50, 1_050), (MOST, MOST)])
def test_a_written_claim_lasts_from_the_time_of_the_database(ttl_ms: int, expires_at_ms: int) -> None:
    """A claim has its ids, its lease's fencing number, its batches, and an expiry that cannot overflow."""
    made = new_claim(SESSION, 7, NewClaim(claim_id="c", token="t", ttl_ms=ttl_ms), ClaimedRows(1_000, [ROW]))
    assert made == Claim(
        session_id=SESSION,
        claim_id="c",
        token="t",
        lease_fencing=7,
        claimed_at_ms=1_000,
        expires_at_ms=expires_at_ms,
        batches=(BATCH,),
    )


def test_a_renewed_claim_has_the_stored_expiry() -> None:
    """The stored expiry counts, later or earlier than the caller's; without one the claim is lost."""
    claim = new_claim(SESSION, 7, NewClaim(claim_id="c", token="t", ttl_ms=50), ClaimedRows(1_000, [ROW]))
    for expires_at_ms in (0, 1_049, 5_000):
        assert renewed_claim(claim, expires_at_ms) == replace(claim, expires_at_ms=expires_at_ms)
    with pytest.raises(ClaimLost) as lost:
        renewed_claim(claim, None)
    assert (lost.value.session_id, lost.value.claim_id) == (SESSION, "c")


def test_held_batches_are_gathered_by_token() -> None:
    """Each token has the set of its held batches."""
    rows = [HeldBatch("t1", "a"), HeldBatch("t2", "b"), HeldBatch("t1", "c")]
    assert held_by_token(rows) == {"t1": frozenset({"a", "c"}), "t2": frozenset({"b"})}
    assert held_by_token([]) == {}


@pytest.mark.parametrize("held", [[], ["b"], ["b", "b3"], ["b", "b2", "b3"], ["b3", "b4"]])
def test_a_claim_completes_whole_or_not_at_all(held: list[str]) -> None:
    """The held and the listed batches are equal sets; equal numbers are not enough."""
    require_completion(SESSION, CLAIM.completion, ["b2", "b"])
    with pytest.raises(ClaimLost) as lost:
        require_completion(SESSION, CLAIM.completion, held)
    assert (lost.value.session_id, lost.value.claim_id) == (SESSION, "c")


def test_a_claim_takes_up_to_a_thousand_batches() -> None:
    """Zero is allowed, and so is the bound itself."""
    assert [check_claim_size(size) for size in (0, 1, 1_000)] == [0, 1, 1_000]
    for wrong, message in ((1_001, "at most 1,000"), (-1, "between 0"), (True, "an integer"), ("5", "an integer")):
        with pytest.raises(InvalidInput, match=message):
            check_claim_size(wrong)


def test_whether_an_attempt_counts_is_said_plainly() -> None:
    """A value that is not a bool is refused."""
    assert [check_count_attempt(each) for each in (True, False)] == [True, False]
    for wrong in (0, 1, None, "no"):
        with pytest.raises(InvalidInput, match="count_attempt must be True or False"):
            check_count_attempt(wrong)


def test_a_boundary_is_one_of_the_two() -> None:
    """An unknown label is refused."""
    assert check_boundary(Boundary.IDLE) is Boundary.IDLE
    for wrong in ("idle", "tomorrow", None):
        with pytest.raises(InvalidInput, match="boundary must be a Boundary"):
            check_boundary(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("abc", "batch_ids must be a list, not str"),
        (["a", "b", "a"], "names a batch twice"),
        (["a", ""], "batch_id is blank"),
        ([5], "batch_id must be text"),
        ([f"b{number}" for number in range(1_001)], "at most 1,000 batches"),
    ],
)
def test_batch_ids_that_make_no_sense_are_refused(wrong: object, message: str) -> None:
    """The error names the fault of the list."""
    assert check_batch_ids(["b", "a"]) == ("b", "a")
    assert len(check_batch_ids([f"b{number}" for number in range(1_000)])) == 1_000
    with pytest.raises(InvalidInput, match=message):
        check_batch_ids(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "expected a Claim, got NoneType"),
        (CLAIM.completion, "expected a Claim, got ClaimCompletion"),
        (replace(CLAIM, session_id=""), r"claim\.session_id is blank"),
        (replace(CLAIM, claim_id=""), r"claim\.claim_id is blank"),
        (replace(CLAIM, token="t\0"), r"claim\.token contains a NUL"),
        (replace(CLAIM, batches=()), "claim names no batch"),
    ],
)
def test_a_claim_of_the_wrong_kind_is_refused(wrong: object, message: str) -> None:
    """A claim of the wrong type is refused before any read."""
    assert check_work_claim(CLAIM) is CLAIM
    with pytest.raises(InvalidInput, match=message):
        check_work_claim(wrong)


def test_completions_are_of_different_claims() -> None:
    """A claim is completed once; the error names the wrong completion."""
    first = ClaimCompletion(claim_id="c", token="t", batch_ids=("b",))
    assert check_completion("completion", first) is first
    check_completions([])
    check_completions([first, replace(first, token="t2")])
    with pytest.raises(InvalidInput, match="names a claim twice"):
        check_completions([first, replace(first, batch_ids=("b2",))])
    with pytest.raises(InvalidInput, match=r"completions\[1\] must be a ClaimCompletion, not Claim"):
        check_completions([first, CLAIM])
    with pytest.raises(InvalidInput, match=r"completions\[0\] names no batch"):
        check_completions([replace(first, batch_ids=())])
