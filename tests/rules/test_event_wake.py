"""Rules of the wakes of an event, and of their delivery."""

import msgspec
import pytest

from lash.errors import CorruptData, InvalidInput
from lash.model.causal import ProcessEventCause
from lash.model.process.event import (
    Constant,
    EventDraft,
    EventSemantics,
    EventType,
    Pointer,
    Present,
    Selector,
    Template,
    TerminalSpec,
    TerminalState,
    Wake,
    WakeRecord,
    WakeSpec,
    WakeState,
    WholePayload,
)
from lash.model.process.process import (
    Projection,
    Registration,
    Success,
)
from lash.model.queue import BatchDraft, Delivery, ProcessWake, Slot
from lash.model.value import JSON
from lash.plan.process.event import InsertEvent, plan_append
from lash.plan.process.wake import (
    LostWakeRow,
    WakeRow,
    decode_lost_wake,
    decode_wake,
    wake_batch,
    wake_record,
    woken_session,
)
from tests.rules.kit import PROCESS, SESSION, canonical_json, happened, registered, sha256

replace = msgspec.structs.replace
OWN_WAKE_GOLDEN = "ae28db83202843013747f70de2f652517db38f225459ea35c9bc07aeea337bba"
KEYED_WAKE_GOLDEN = "72680231b55fa1cc8d29701e38e1de66f8c634378670398f22833a99bb754865"
UNTARGETED_WAKE_GOLDEN = "9c7e62a5ffdef5d4a5db2e7718489379f62f47038b78707f2116cb6f039d84ed"
WAKE_SPEC = WakeSpec(input=Pointer(path="/text"))
WAKING = EventType(name="waking", semantics=EventSemantics(wake=WAKE_SPEC))
WAKE_TEXT = '{"wake_id":"w","target_session_id":"s","input":"hi","dedupe_key":"k"}'
WAKE = Wake(wake_id="w", target_session_id="s", input="hi", dedupe_key="k")


def append(draft: EventDraft, registration: Registration, *, last_sequence: int = 0, wakes: str | None) -> InsertEvent:
    """Return the decision to insert; any other fails the test."""
    decision = plan_append(
        registration,
        Projection(),
        draft,
        life=1,
        last_sequence=last_sequence,
        wake_session_id=wakes,
        known=None,
        now_ms=50,
    )
    assert isinstance(decision, InsertEvent)
    return decision


def woken(spec: WakeSpec, payload: JSON, *, wakes: str | None = SESSION, draft_wakes: str | None = None) -> Wake | None:
    declared = EventType(name="waking", semantics=EventSemantics(wake=spec))
    draft = EventDraft(event_type="waking", payload=payload, wake_session_id=draft_wakes)
    return append(draft, registered(declared), wakes=wakes).event.wake


def test_the_golden_vectors_are_the_hashes_of_the_written_content() -> None:
    """The checked-in hashes are SHA-256 over a version prefix and canonical JSON, made without lash."""
    assert sha256(b"lash.wake.v1\0" + canonical_json([SESSION, "process-1:1", 1])) == OWN_WAKE_GOLDEN
    assert sha256(b"lash.wake.v1\0" + canonical_json([SESSION, "daily"])) == KEYED_WAKE_GOLDEN
    assert sha256(b"lash.wake.v1\0" + canonical_json([None, "process-1:1", 1])) == UNTARGETED_WAKE_GOLDEN


def test_a_wake_is_made_of_the_event() -> None:
    """The input is selected, and without a key every event is a separate wake."""
    decision = append(EventDraft(event_type="waking", payload={"text": "hello"}), registered(WAKING), wakes=SESSION)
    assert decision.event.wake == Wake(
        wake_id=f"wake:{OWN_WAKE_GOLDEN}", target_session_id=SESSION, input="hello", dedupe_key="process-1:1"
    )
    assert decision.wake == (
        f'{{"wake_id":"wake:{OWN_WAKE_GOLDEN}","target_session_id":"session-1",'
        '"input":"hello","dedupe_key":"process-1:1"}'
    )


def test_a_wake_of_nobody_is_kept() -> None:
    """The event keeps its wake without a target."""
    assert woken(WAKE_SPEC, {"text": ""}, wakes=None) == Wake(
        wake_id=f"wake:{UNTARGETED_WAKE_GOLDEN}", target_session_id=None, input="", dedupe_key="process-1:1"
    )


@pytest.mark.parametrize(
    ("record", "draft", "target"), [("a", None, "a"), ("a", "b", "b"), (None, "b", "b"), (None, None, None)]
)
def test_whom_a_wake_goes_to(record: str | None, draft: str | None, target: str | None) -> None:
    """The draft's session takes precedence over the record's."""
    wake = woken(WAKE_SPEC, {"text": ""}, wakes=record, draft_wakes=draft)
    assert wake is not None
    assert wake.target_session_id == target


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (WholePayload(), '{"n":7,"text":"hello"}'),
        (Constant(value="fixed"), "fixed"),
        (Template(template="#{n}", fields={"n": Pointer(path="/n")}), "#7"),
        (Pointer(path="/n"), "7"),
        (Present(path="/n"), "true"),
    ],
)
def test_inputs_of_wakes(selector: Selector, text: str) -> None:
    """Any selected value becomes text."""
    wake = woken(WakeSpec(input=selector), {"text": "hello", "n": 7})
    assert wake is not None
    assert wake.input == text


@pytest.mark.parametrize(
    ("when", "payload", "wakes"),
    [
        (Present(path="/text"), {"text": None}, True),
        (Present(path="/text"), {}, False),
        (Pointer(path="/n"), {"n": 0}, True),
        (Pointer(path="/n"), {"n": ""}, False),
        (Pointer(path="/n"), {"n": False}, False),
        (Constant(value=[]), {}, False),
    ],
)
def test_when_a_wake_is_one(when: Selector, payload: JSON, wakes: bool) -> None:  # noqa: FBT001
    """An event wakes only if its condition selects a true value; if not, the input is not evaluated."""
    wake = woken(WakeSpec(input=Constant(value="x") if wakes else Pointer(path="/missing"), when=when), payload)
    assert (wake is not None) is wakes


def test_equal_keys_are_one_wake() -> None:
    """Equal keys to one session are one wake, across events, processes and selectors."""
    spec = WakeSpec(input=Constant(value=""), dedupe_key=Constant(value="daily"))
    other = registered(EventType(name="o", semantics=EventSemantics(wake=spec)), process_id="other")
    selected = woken(WakeSpec(input=Constant(value="hi"), dedupe_key=Pointer(path="/k")), {"k": "daily"})
    wakes = [
        woken(spec, None),
        selected,
        append(EventDraft(event_type="o"), other, last_sequence=8, wakes=SESSION).event.wake,
    ]
    assert [(wake.wake_id, wake.dedupe_key) for wake in wakes if wake is not None] == [
        (f"wake:{KEYED_WAKE_GOLDEN}", "daily")
    ] * 3


def test_other_keys_and_other_sessions_are_other_wakes() -> None:
    """A chosen key that looks like an event's own key is still a different one."""
    own = woken(WAKE_SPEC, {"text": ""})
    alike = WakeSpec(input=Constant(value=""), dedupe_key=Constant(value="process-1:1"))
    wakes = [own, woken(alike, None), woken(alike, None, wakes="other"), woken(alike, None, wakes=None)]
    assert len({wake.wake_id for wake in wakes if wake is not None}) == 4


@pytest.mark.parametrize(
    "spec",
    [
        WakeSpec(input=Pointer(path="/missing")),
        WakeSpec(input=Constant(value=""), when=Pointer(path="/missing")),
        WakeSpec(input=Constant(value=""), dedupe_key=Pointer(path="/missing")),
    ],
)
def test_a_wake_that_misses_aborts_the_append(spec: WakeSpec) -> None:
    """A selector that finds nothing is the event's error."""
    with pytest.raises(InvalidInput, match="payload pointer '/missing' did not match"):
        woken(spec, {})


def test_an_end_can_wake() -> None:
    """One event both ends the process and wakes the session."""
    terminal = TerminalSpec(state=TerminalState.COMPLETED, await_output=Pointer(path="/n"))
    both = EventType(name="end", semantics=EventSemantics(terminal=terminal, wake=WAKE_SPEC))
    draft = EventDraft(event_type="end", payload={"n": 1, "text": "done"}, replay_key="k")
    decision = append(draft, registered(both), wakes=SESSION)
    assert decision.projection.outcome == Success(value=1)
    assert decision.event.wake is not None
    assert decision.event.wake.input == "done"


def test_stored_wakes_are_read_back() -> None:
    """A wake is decoded with its state, alone and among those of all processes."""
    record = WakeRecord(process_id=PROCESS, sequence=3, event_type="e", wake=WAKE, state=WakeState.QUEUED, batch_id="b")
    assert decode_wake(WakeRow(3, "e", WAKE_TEXT, "queued", "b"), PROCESS) == record
    assert decode_lost_wake(LostWakeRow(PROCESS, 3, "e", WAKE_TEXT, "undeliverable", None)) == replace(
        record, state=WakeState.UNDELIVERABLE, batch_id=None
    )


@pytest.mark.parametrize("damaged", [WakeRow(3, "e", "{}", "queued", None), WakeRow(3, "e", WAKE_TEXT, "wat", None)])
def test_damaged_wakes_are_reported_as_damage(damaged: WakeRow) -> None:
    """Both text and state of a wake are checked."""
    with pytest.raises(CorruptData, match=r"^the wake of event 3 of process 'process-1' cannot be read"):
        decode_wake(damaged, PROCESS)


@pytest.mark.parametrize("state", WakeState)
def test_a_wake_in_the_queue_gives_its_session_work(state: WakeState) -> None:
    """A wake that was merged or not delivered gives no session work."""
    record = WakeRecord(process_id=PROCESS, sequence=3, event_type="e", wake=WAKE, state=state)
    assert woken_session(record) == ("s" if state is WakeState.QUEUED else None)
    assert woken_session(None) is None


def test_a_wake_becomes_queued_work() -> None:
    """Its id is the source key and its only content, so the first of equal wakes stands for all."""
    batch = wake_batch(replace(happened("waking", sequence=3), wake=WAKE), "s")
    assert batch.draft == BatchDraft(
        session_id="s",
        payloads=(
            ProcessWake(
                wake_id="w",
                process_id=PROCESS,
                sequence=3,
                event_type="waking",
                input="hi",
                caused_by=ProcessEventCause(process_id=PROCESS, sequence=3),
            ),
        ),
        source_key="w",
        delivery=Delivery.EARLIEST_SAFE_BOUNDARY,
        slot=Slot.EXCLUSIVE,
    )
    assert (batch.lane, batch.content_hash) == ("early", sha256(b"w"))


def test_an_event_without_a_wake_is_no_queued_work() -> None:
    """The error names the event."""
    with pytest.raises(InvalidInput, match=r"^event 3 of process 'process-1' has no wake$"):
        wake_batch(happened("note", sequence=3), "s")


def test_the_record_of_a_wake_names_its_event() -> None:
    """An event without a wake, or with one that was not stored, has no wake record."""
    event = happened("woken", sequence=3)
    assert wake_record(event, WakeState.QUEUED, "b") is None
    wake = Wake(wake_id="wake:1", target_session_id=SESSION, input="hello", dedupe_key="k")
    woken = msgspec.structs.replace(event, wake=wake)
    assert wake_record(woken, None, None) is None
    assert wake_record(woken, WakeState.QUEUED, "b") == WakeRecord(
        process_id=PROCESS, sequence=3, event_type="woken", wake=wake, state=WakeState.QUEUED, batch_id="b"
    )
