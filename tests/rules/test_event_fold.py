"""Rules of folding a log to its record."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lash.errors import InvalidInput, ProcessTerminal
from lash.model.process.event import (
    Constant,
    EventDraft,
    EventSemantics,
    EventType,
    Pointer,
    Selector,
    TerminalSpec,
    TerminalState,
    WakeSpec,
    WholePayload,
)
from lash.model.process.process import (
    Abandonment,
    Cancellation,
    ExternalRef,
    Failure,
    FailureClass,
    Outcome,
    ProcessStatus,
    Projection,
    Registration,
    SignalWait,
    Success,
)
from lash.model.value import JSON, JSONObject
from lash.plan.process.event import EventRow, InsertEvent, decode_event, encode_projection, fold, plan_append, refold
from lash.plan.process.event_draft import (
    abandon_request_draft,
    cancel_draft,
    completion_draft,
    external_ref_draft,
    resumed_draft,
    signal_draft,
    started_draft,
    waiting_draft,
)
from tests.rules.kit import OWNER, PROCESS, SESSION, happened, registered

replace = msgspec.structs.replace
NOTE = EventType(name="note")
SIGNAL = EventType(name="signal.go")
WAKING = EventType(name="waking", semantics=EventSemantics(wake=WakeSpec(input=Pointer(path="/text"))))
PROJECT = registered(NOTE, SIGNAL, WAKING)
RUNNING = Projection()
ENDED = Projection(status=ProcessStatus.COMPLETED, outcome=Success(value=1))
WAIT = SignalWait(name="go", ordinal=2)


def append(
    draft: EventDraft,
    registration: Registration = PROJECT,
    projection: Projection = RUNNING,
    *,
    last_sequence: int = 0,
    wakes: str | None = None,
) -> InsertEvent:
    """Return the decision to insert; any other fails the test."""
    decision = plan_append(
        registration,
        projection,
        draft,
        life=1,
        last_sequence=last_sequence,
        wake_session_id=wakes,
        known=None,
        now_ms=50,
    )
    assert isinstance(decision, InsertEvent)
    return decision


def ending(state: TerminalState, await_output: Selector | None, name: str = "end") -> EventType:
    return EventType(name=name, semantics=EventSemantics(terminal=TerminalSpec(state=state, await_output=await_output)))


@pytest.mark.parametrize("status", [status for status in ProcessStatus if status is not ProcessStatus.RUNNING])
def test_a_process_ends_once(status: ProcessStatus) -> None:
    """After any end, another end, a wait and a start are refused, and the status is named."""
    ended = Projection(status=status)
    for draft in (
        completion_draft(PROCESS, Cancellation(message="m")),
        waiting_draft(PROCESS, WAIT),
        started_draft(PROCESS, OWNER),
    ):
        with pytest.raises(ProcessTerminal) as raised:
            append(draft, projection=ended)
        assert (raised.value.process_id, raised.value.status) == (PROCESS, status.value)


def test_other_events_follow_the_end() -> None:
    """Events after the end are stored and do not change how the process ended."""
    for draft in (EventDraft(event_type="note"), signal_draft(PROCESS, "go", "1", None), resumed_draft(PROCESS, WAIT)):
        assert append(draft, projection=ENDED).projection == ENDED
    assert append(cancel_draft(PROCESS, "late"), projection=ENDED).projection == replace(
        ENDED, cancel_requested=True, cancel_reason="late"
    )


@pytest.mark.parametrize(
    ("state", "await_output", "payload", "outcome"),
    [
        (TerminalState.COMPLETED, None, {"a": 1}, Success(value={"a": 1})),
        (TerminalState.COMPLETED, None, None, Success()),
        (TerminalState.COMPLETED, Pointer(path="/a"), {"a": 1}, Success(value=1)),
        (TerminalState.COMPLETED, None, {"type": "success", "value": 1}, Success(value=1)),
        (TerminalState.COMPLETED, None, {"type": "failure"}, Success(value={"type": "failure"})),
        (TerminalState.FAILED, WholePayload(), "why", Failure(code="process_failed", message="why", raw="why")),
        (TerminalState.FAILED, WholePayload(), [1], Failure(code="process_failed", message="[1]", raw=[1])),
        (
            TerminalState.FAILED,
            WholePayload(),
            {"type": "failure", "failure_class": "timeout", "code": "x", "message": "m"},
            Failure(failure_class=FailureClass.TIMEOUT, code="x", message="m"),
        ),
        (TerminalState.CANCELLED, Constant(value="because"), None, Cancellation(message="because", raw="because")),
        (TerminalState.ABANDONED, Pointer(path="/n"), {"n": 7}, Abandonment(message="7")),
    ],
)
def test_a_declared_end_makes_the_outcome(
    state: TerminalState, await_output: Selector | None, payload: JSON, outcome: Outcome
) -> None:
    """A selected outcome is kept unchanged, any other value is wrapped in the declared state."""
    draft = EventDraft(event_type="end", payload=payload, replay_key="key")
    assert append(draft, registered(ending(state, await_output))).projection == Projection(
        status=ProcessStatus(state.value), outcome=outcome
    )


def test_an_outcome_of_another_state_is_refused() -> None:
    """An event of success cannot carry a failure, declared or core."""
    failure: JSONObject = {"type": "failure", "code": "x", "message": "m"}
    message = "^process 'process-1': an event that means completed carries a Failure$"
    with pytest.raises(InvalidInput, match=message):
        append(
            EventDraft(event_type="end", payload=failure, replay_key="k"),
            registered(ending(TerminalState.COMPLETED, None)),
        )
    with pytest.raises(InvalidInput, match=message):
        append(EventDraft(event_type="process.completed", payload={"outcome": failure}, replay_key="k"))


@pytest.mark.parametrize(
    ("draft", "projection"),
    [
        (waiting_draft(PROCESS, WAIT), Projection(wait=WAIT)),
        (
            external_ref_draft(ExternalRef(backend="b", id="i")),
            Projection(external_ref=ExternalRef(backend="b", id="i")),
        ),
        (
            external_ref_draft(ExternalRef(backend="b", id="i", metadata={"m": [1]})),
            Projection(external_ref=ExternalRef(backend="b", id="i", metadata={"m": [1]})),
        ),
        (started_draft(PROCESS, OWNER), Projection(started_by=OWNER)),
        (cancel_draft(PROCESS, "stop"), Projection(cancel_requested=True, cancel_reason="stop")),
        (
            EventDraft(event_type="process.cancel_requested", replay_key="k"),
            Projection(cancel_requested=True),
        ),
        (
            EventDraft(event_type="process.cancel_requested", payload={"reason": ["a", 1]}, replay_key="k"),
            Projection(cancel_requested=True, cancel_reason='["a",1]'),
        ),
        (abandon_request_draft(PROCESS, "stuck"), Projection(abandon_requested=True)),
        (signal_draft(PROCESS, "go", "1", {"a": 1}), RUNNING),
        (EventDraft(event_type="note", payload={"wait": {}}), RUNNING),
    ],
)
def test_what_events_do_to_the_record(draft: EventDraft, projection: Projection) -> None:
    """Each core type changes its own part of the record; declared types change none."""
    assert append(draft).projection == projection


def test_going_on_clears_the_wait() -> None:
    """Resuming clears any wait."""
    assert append(resumed_draft(PROCESS, WAIT), projection=Projection(wait=WAIT)).projection == RUNNING


@pytest.mark.parametrize(
    ("event_type", "payload"),
    [
        ("process.waiting", None),
        ("process.waiting", {"wait": None}),
        ("process.waiting", {"wait": {"name": "go", "ordinal": -1}}),
        ("process.external_ref_set", {"backend": "b"}),
        ("process.external_ref_set", [1]),
        ("process.started", {"owner": {"owner_id": "o"}}),
        ("process.started", None),
    ],
)
def test_a_core_event_that_says_nothing_usable_is_refused(event_type: str, payload: JSON) -> None:
    """Hosts may append core events; an invalid payload is InvalidInput, not damage."""
    with pytest.raises(InvalidInput, match=rf"^process 'process-1': payload of '{event_type}': "):
        append(EventDraft(event_type=event_type, payload=payload))


def test_the_record_is_written_without_what_is_usual() -> None:
    """A fresh record is an empty object, and an ended one has its outcome."""
    assert encode_projection(RUNNING) == "{}"
    assert encode_projection(ENDED) == '{"status":"completed","outcome":{"type":"success","value":1}}'


def test_an_empty_log_adds_up_to_a_running_process() -> None:
    """An empty log folds to a running process."""
    assert refold(PROJECT, ()) == Projection(status=ProcessStatus.RUNNING)


def test_a_log_adds_up_to_its_record() -> None:
    """Start, park, resume, cancel request, end and later notes each change their own part of the record."""
    log = (
        happened("process.started", {"owner": {"owner_id": "worker", "incarnation_id": "first"}}, sequence=1),
        happened("process.external_ref_set", {"backend": "b", "id": "1"}, sequence=2),
        happened("process.waiting", {"wait": {"name": "go", "ordinal": 1}}, sequence=3),
        happened("signal.go", {"n": 1}, sequence=4),
        happened("process.resumed", {"name": "go", "ordinal": 1}, sequence=5),
        happened("process.external_ref_set", {"backend": "b", "id": "2"}, sequence=6),
        happened("process.cancel_requested", {"reason": "stop"}, sequence=7),
        happened("process.waiting", {"wait": {"name": "go", "ordinal": 2}}, sequence=8),
        happened("process.cancelled", {"outcome": {"type": "cancelled", "message": "stopped"}}, sequence=9),
        happened("note", None, sequence=10),
    )
    assert refold(PROJECT, log) == Projection(
        status=ProcessStatus.CANCELLED,
        outcome=Cancellation(message="stopped"),
        external_ref=ExternalRef(backend="b", id="2"),
        started_by=OWNER,
        cancel_requested=True,
        cancel_reason="stop",
    )


DRAFTS = st.sampled_from(
    [
        EventDraft(event_type="note", payload=1),
        EventDraft(event_type="waking", payload={"text": "x"}),
        EventDraft(event_type="waking", payload=None),
        EventDraft(event_type="undeclared"),
        EventDraft(event_type="process.waiting", payload={}),
        signal_draft(PROCESS, "go", "1", {"a": 1}),
        waiting_draft(PROCESS, WAIT),
        resumed_draft(PROCESS, WAIT),
        started_draft(PROCESS, OWNER),
        external_ref_draft(ExternalRef(backend="b", id="i", metadata=[1])),
        cancel_draft(PROCESS, "stop"),
        abandon_request_draft(PROCESS, "stuck"),
        *(
            completion_draft(PROCESS, outcome)
            for outcome in (Success(value=1), Failure(code="x", message="m"), Abandonment(message="m"))
        ),
    ]
)


@given(st.lists(DRAFTS, max_size=12))
def test_the_record_is_the_fold_of_its_stored_log(drafts: list[EventDraft]) -> None:
    """Appending one by one through the stored text, and refolding the whole log, give the same record."""
    projection, rows = RUNNING, list[EventRow]()
    for draft in drafts:
        try:
            made = append(draft, projection=projection, last_sequence=len(rows), wakes=SESSION)
        except (InvalidInput, ProcessTerminal):
            continue
        rows.append(
            EventRow(len(rows) + 1, draft.event_type, draft.replay_key, made.payload_hash, made.payload, made.wake, 50)
        )
        projection = msgspec.json.decode(encode_projection(made.projection), type=Projection)
    log = [decode_event(row, PROCESS) for row in rows]
    assert refold(PROJECT, log) == projection
    assert [event.sequence for event in log] == list(range(1, len(rows) + 1))
    assert sum(event.event_type in ("process.completed", "process.failed", "process.abandoned") for event in log) <= 1
    assert fold(PROJECT, projection, happened("note")) == projection
