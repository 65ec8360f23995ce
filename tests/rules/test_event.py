"""Rules of events: the stored form, and whether one may be appended."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lash.errors import CorruptData, EventConflict, InvalidInput, ProcessTerminal
from lash.model.process.event import (
    EventDraft,
    EventSemantics,
    EventType,
    Pointer,
    ProcessEvent,
    Selector,
    TerminalSpec,
    TerminalState,
    Wake,
    WakeSpec,
)
from lash.model.process.process import (
    ProcessStatus,
    Projection,
    Registration,
    Success,
)
from lash.model.value import JSON
from lash.plan.process.event import (
    CORE_EVENT_TYPES,
    EventRow,
    InsertEvent,
    ReplayEvent,
    check_draft,
    declared_type,
    decode_event,
    payload_hash,
    plan_append,
)
from lash.plan.process.event_draft import signal_draft
from lash.plan.work import WorkChange
from tests.rules.kit import PROCESS, SESSION, canonical_json, happened, registered, sha256

replace = msgspec.structs.replace
CANCEL_GOLDEN = "c28537baf84e4a72efe405565afe30b078f7cacf121abf7d798694f941be9965"
NOTE_GOLDEN = "453782cc2ee5db8b130f20046cca64655814a70a830c035fa2fd10bb26dcc013"
NOTE = EventType(name="note")
SIGNAL = EventType(name="signal.go")
COUNTED = EventType(name="counted", payload_schema={"properties": {"n": {"type": "integer"}}, "required": ["n"]})
WAKE_SPEC = WakeSpec(input=Pointer(path="/text"))
WAKING = EventType(name="waking", semantics=EventSemantics(wake=WAKE_SPEC))
PROJECT = registered(NOTE, SIGNAL, COUNTED, WAKING)
RUNNING = Projection()
ENDED = Projection(status=ProcessStatus.COMPLETED, outcome=Success(value=1))
STOP = EventDraft(event_type="process.cancel_requested", payload={"reason": "stop"}, replay_key="key")
STOP_ROW = EventRow(4, "process.cancel_requested", "key", CANCEL_GOLDEN, '{"payload":{"reason":"stop"}}', None, 99)


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


def again(
    draft: EventDraft,
    known: EventRow = STOP_ROW,
    registration: Registration = PROJECT,
    projection: Projection = RUNNING,
) -> ProcessEvent:
    """Return the event that an append under a known key returns."""
    decision = plan_append(
        registration, projection, draft, life=1, last_sequence=9, wake_session_id=SESSION, known=known, now_ms=50
    )
    assert isinstance(decision, ReplayEvent)
    return decision.event


def ending(state: TerminalState, await_output: Selector | None, name: str = "end") -> EventType:
    return EventType(name=name, semantics=EventSemantics(terminal=TerminalSpec(state=state, await_output=await_output)))


def test_the_golden_vectors_are_the_hashes_of_the_written_content() -> None:
    """The checked-in hashes are SHA-256 over a version prefix and canonical JSON, made without lash."""
    note = {"b": {"d": True, "c": 1.5}, "a": [1, None, "ä"]}
    assert sha256(b"lash.event.v1\0" + canonical_json(["process.cancel_requested", {"reason": "stop"}])) == (
        CANCEL_GOLDEN
    )
    assert sha256(b"lash.event.v1\0" + canonical_json(["note", note])) == NOTE_GOLDEN


def test_events_have_their_golden_hashes() -> None:
    """The hash behind a replay key never changes, so old keys keep recognising their events."""
    assert payload_hash("process.cancel_requested", {"reason": "stop"}) == CANCEL_GOLDEN
    assert payload_hash("note", {"a": [1, None, "ä"], "b": {"c": 1.5, "d": True}}) == NOTE_GOLDEN


def test_the_order_of_keys_does_not_change_the_hash() -> None:
    """Free JSON is hashed with sorted keys at every depth."""
    assert payload_hash("note", {"b": {"d": True, "c": 1.5}, "a": [1, None, "ä"]}) == NOTE_GOLDEN


@given(
    st.dictionaries(
        st.text("abä", max_size=2),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text('aä\n"\\/', max_size=4),
        max_size=4,
    )
)
def test_hashes_agree_with_another_encoder(payload: dict[str, JSON]) -> None:
    """The hash of any payload is the one computed with the standard library's JSON."""
    assert payload_hash("note", payload) == sha256(b"lash.event.v1\0" + canonical_json(["note", payload]))


def test_an_event_is_inserted_under_the_next_number() -> None:
    """It has its process, number, type, payload, key and time; the row has the same as text."""
    draft = EventDraft(event_type="note", payload={"b": 1, "a": None}, replay_key="key")
    assert append(draft, last_sequence=6) == InsertEvent(
        event=happened("note", {"b": 1, "a": None}, sequence=7, replay_key="key", now_ms=50),
        payload='{"payload":{"b":1,"a":null}}',
        payload_hash=sha256(b"lash.event.v1\0" + b'["note",{"a":null,"b":1}]'),
        wake=None,
        projection=RUNNING,
        work=WorkChange(),
    )


def test_an_unkeyed_event_is_never_a_replay() -> None:
    """The same draft twice is two events."""
    draft = EventDraft(event_type="note", payload=1)
    assert [append(draft, last_sequence=last).event.sequence for last in (0, 1)] == [1, 2]


def test_a_replay_returns_the_first_event() -> None:
    """Number, time and wake are those of the stored event, not of the repetition."""
    wake = '{"wake_id":"w","target_session_id":"other","input":"hi","dedupe_key":"k"}'
    assert again(STOP, replace(STOP_ROW, wake=wake)) == replace(
        happened("process.cancel_requested", {"reason": "stop"}, sequence=4, replay_key="key", now_ms=99),
        wake=Wake(wake_id="w", target_session_id="other", input="hi", dedupe_key="k"),
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(STOP, payload={"reason": "other"}),
        replace(STOP, payload=None),
        replace(STOP, event_type="note"),
        replace(STOP, event_type="undeclared"),
    ],
    ids=["payload", "no payload", "type", "undeclared type"],
)
def test_another_event_under_the_key_is_a_conflict(other: EventDraft) -> None:
    """Type and payload are the content, and the key is checked before the declaration."""
    with pytest.raises(EventConflict) as raised:
        again(other)
    assert (raised.value.process_id, raised.value.replay_key) == (PROCESS, "key")


def test_whom_a_draft_wakes_is_no_content() -> None:
    """A repetition that names another session is still the same event."""
    assert again(replace(STOP, wake_session_id="elsewhere")).sequence == 4


def test_a_replay_comes_before_every_other_check() -> None:
    """A stored event is returned, even if it could not be appended now."""
    draft = EventDraft(event_type="gone", payload={"n": "text"})
    row = EventRow(3, "gone", None, payload_hash("gone", {"n": "text"}), '{"payload":{"n":"text"}}', None, 9)
    assert again(draft, row, registered(), ENDED).sequence == 3


def test_the_other_checks_come_in_their_order() -> None:
    """Declaration, key, payload, selectors, end are checked in this order."""
    end = EventType(
        name="end",
        payload_schema={"type": "object"},
        semantics=EventSemantics(
            terminal=TerminalSpec(state=TerminalState.FAILED, await_output=Pointer(path="/outcome")), wake=WAKE_SPEC
        ),
    )
    steps: list[tuple[Registration, str | None, JSON, Projection, type[Exception], str]] = [
        (registered(), None, 1, ENDED, InvalidInput, "has undeclared event type 'end'"),
        (registered(end), None, 1, ENDED, InvalidInput, "event 'end' requires a replay key"),
        (registered(end), "key", 1, ENDED, InvalidInput, "payload of 'end': 1 is not of type"),
        (registered(end), "key", {}, ENDED, InvalidInput, "payload pointer '/text' did not match"),
        (registered(end), "key", {"text": ""}, ENDED, ProcessTerminal, "is already terminal: completed"),
        (registered(end), "key", {"text": ""}, RUNNING, InvalidInput, "payload pointer '/outcome' did not match"),
    ]
    for registration, key, payload, projection, error, message in steps:
        with pytest.raises(error, match=message):
            append(EventDraft(event_type="end", payload=payload, replay_key=key), registration, projection)


def test_an_undeclared_event_is_refused() -> None:
    """An undeclared signal is refused too."""
    with pytest.raises(InvalidInput, match=r"^process 'process-1' has undeclared event type 'signal.stop'$"):
        append(signal_draft(PROCESS, "stop", "1", None))


def test_a_payload_that_does_not_fit_is_refused() -> None:
    """The message names process, type and position in the payload."""
    with pytest.raises(InvalidInput, match=r"^process 'process-1': payload of 'counted'.n: "):
        append(EventDraft(event_type="counted", payload={"n": "one"}))
    assert append(EventDraft(event_type="counted", payload={"n": 1})).event.payload == {"n": 1}


@pytest.mark.parametrize(
    "event_type",
    [
        *("process.cancel_requested", "process.completed", "process.failed", "process.cancelled", "process.abandoned"),
        "end",
    ],
)
def test_what_ends_or_stops_a_process_needs_a_key(event_type: str) -> None:
    """Events that end or stop a process must be idempotent."""
    registration = registered(ending(TerminalState.COMPLETED, None))
    with pytest.raises(InvalidInput, match=f"event '{event_type}' requires a replay key"):
        append(EventDraft(event_type=event_type, payload={"outcome": None, "reason": ""}), registration)


@pytest.mark.parametrize("event_type", ["process.abandon_requested", "process.resumed", "note"])
def test_other_events_need_no_key(event_type: str) -> None:
    """Other events are accepted without a key."""
    assert append(EventDraft(event_type=event_type)).event.replay_key is None


def test_signals_of_any_name_can_be_declared_at_once() -> None:
    """A type named signal.* covers signals without a type of their own, and nothing else."""
    any_signal, own = EventType(name="signal.*"), EventType(name="signal.own", payload_schema={"type": "string"})
    registration = registered(own, any_signal)
    assert declared_type(registration, "signal.go") == any_signal
    assert declared_type(registration, "signal.own") == own
    with pytest.raises(InvalidInput, match="undeclared event type 'signals'"):
        declared_type(registration, "signals")


def test_every_process_has_the_core_types() -> None:
    """Core types need no declaration, accept any JSON, and end the process by their names."""
    names = {
        "process.cancel_requested": None,
        "process.abandon_requested": None,
        "process.started": None,
        "process.external_ref_set": None,
        "process.waiting": None,
        "process.resumed": None,
        "process.attempt_failed": None,
        "process.continued": None,
        "process.completed": TerminalState.COMPLETED,
        "process.failed": TerminalState.FAILED,
        "process.cancelled": TerminalState.CANCELLED,
        "process.abandoned": TerminalState.ABANDONED,
    }
    assert [each.name for each in CORE_EVENT_TYPES] == list(names)
    for name, state in names.items():
        terminal = None if state is None else TerminalSpec(state=state, await_output=Pointer(path="/outcome"))
        assert declared_type(registered(), name) == EventType(name=name, semantics=EventSemantics(terminal=terminal))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("draft", "expected an EventDraft, got str"),
        (EventDraft(event_type=" "), "event_type is blank"),
        (EventDraft(event_type="x" * 256), "event_type has 256 characters"),
        (EventDraft(event_type=None), "event_type must be text"),  # type: ignore[arg-type]
        (EventDraft(event_type="x", replay_key=""), "replay_key is blank"),
        (EventDraft(event_type="x", wake_session_id="a\0"), "wake_session_id contains a NUL"),
        (EventDraft(event_type="x", payload={"a": object()}), "payload.a is of type object"),
        (EventDraft(event_type="x", payload=float("nan")), "payload is nan"),
        (EventDraft(event_type="x", payload=["\ud800"]), "payload contains a lone surrogate"),
        (EventDraft(event_type="x", payload=2**63), "payload is an integer beyond 64 bits"),
    ],
)
def test_drafts_that_cannot_be_stored_are_refused(wrong: object, message: str) -> None:
    """An invalid draft is refused before any read."""
    with pytest.raises(InvalidInput, match=message):
        check_draft(wrong)


def test_a_draft_that_can_be_stored_is_returned() -> None:
    """A valid draft is returned, with and without its optional keys."""
    assert check_draft(STOP) is STOP
    whole = replace(STOP, wake_session_id=SESSION)
    assert check_draft(whole) is whole


def test_stored_events_are_read_back() -> None:
    """A row decodes to the inserted event."""
    decision = append(EventDraft(event_type="waking", payload={"text": "x"}, replay_key="k"), wakes=SESSION)
    row = EventRow(1, "waking", "k", decision.payload_hash, decision.payload, decision.wake, 50)
    assert decode_event(row, PROCESS) == decision.event


@pytest.mark.parametrize(
    "damaged",
    [replace(STOP_ROW, payload="{"), replace(STOP_ROW, payload="{}"), replace(STOP_ROW, wake='{"wake_id":1}')],
)
def test_damaged_events_are_reported_as_damage(damaged: EventRow) -> None:
    """Damage is never reported as absence or as another event."""
    with pytest.raises(CorruptData, match=r"^event 4 of process 'process-1' cannot be read"):
        decode_event(damaged, PROCESS)


def test_the_largest_payload_fits() -> None:
    """1,048,576 characters of stored text are accepted, one more is not."""
    room = 1_048_576 - len('{"payload":""}')
    assert len(append(EventDraft(event_type="note", payload="x" * room)).payload) == 1_048_576
    with pytest.raises(InvalidInput, match="has 1,048,577 characters"):
        append(EventDraft(event_type="note", payload="x" * (room + 1)))


def test_a_payload_that_is_too_large_is_refused_by_the_process_s_name() -> None:
    """A payload that is too large is refused; the message names the process and where large values belong."""
    draft = EventDraft(event_type="note", payload="x" * 1_048_577)
    with pytest.raises(InvalidInput, match=r"process-1.*1,048,\d+ characters.*artifact"):
        plan_append(
            registered(EventType(name="note")),
            Projection(),
            draft,
            life=1,
            last_sequence=0,
            wake_session_id=None,
            known=None,
            now_ms=0,
        )
