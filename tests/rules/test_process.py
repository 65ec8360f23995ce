"""Rules of registrations: their content, when two are equal, and the stored form of a process."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lash.errors import CorruptData, InvalidInput, ProcessNotFound, ProcessPruned, RegistrationConflict
from lash.model.causal import ProcessCause, TurnCause
from lash.model.process.event import (
    PLAIN,
    Constant,
    EventSemantics,
    EventType,
    Pointer,
    Present,
    Selector,
    Template,
    TerminalSpec,
    TerminalState,
    WakeSpec,
    WholePayload,
)
from lash.model.process.process import (
    AgentScope,
    EngineInput,
    ExternalInput,
    HostOriginator,
    ProcessIdentity,
    ProcessInput,
    ProcessRecord,
    ProcessStatus,
    Projection,
    Provenance,
    Recovery,
    Registration,
    SessionOriginator,
    SessionTurnInput,
    Success,
    ToolCallInput,
)
from lash.model.value import JSON, JSONObject
from lash.plan.process.process import (
    ProcessRow,
    VersionRow,
    decode_process,
    decode_versions,
    definition_hash,
    encode_registration,
    missing_process,
    record_after,
    row_after,
    same_registration,
)
from tests.rules.kit import PROCESS, SESSION, canonical_json, registered, sha256

replace = msgspec.structs.replace

EXTERNAL = registered()
ENGINE = Registration(process_id=PROCESS, input=EngineInput(kind="function"), environment_ref="env")
TOOL = Registration(
    process_id="tool-1",
    input=ToolCallInput(call_id="c", tool_id="t", tool_name="search", arguments={"q": "x", "n": 1}),
    recovery=Recovery.OWNER_BOUND,
    identity=ProcessIdentity(kind="tool", label="Search", definition={"v": 2, "name": "s"}),
    event_types=(
        EventType(
            name="found",
            payload_schema={"type": "object", "properties": {"text": {"type": "string"}}},
            semantics=EventSemantics(
                wake=WakeSpec(
                    input=Template(template="{t}", fields={"t": Pointer(path="/text")}),
                    when=Present(path="/text"),
                    dedupe_key=Constant(value="once"),
                )
            ),
        ),
        EventType(
            name="failed",
            semantics=EventSemantics(
                terminal=TerminalSpec(state=TerminalState.FAILED, await_output=WholePayload()),
            ),
        ),
    ),
    provenance=Provenance(
        originator=SessionOriginator(scope=AgentScope(session_id=SESSION, agent_frame_id="f")),
        caused_by=TurnCause(session_id=SESSION, turn_id="t"),
    ),
    environment_ref="env",
    wake_session_id=SESSION,
)

# Written by hand: mappings by sorted keys, records by their order of today, no white space, no field at its default.
CONTENT = '{"process_id":"process-1","input":{"type":"external"},"recovery":"external","identity":{"kind":"external"}}'
TOOL_CONTENT = (
    '{"process_id":"tool-1",'
    '"input":{"type":"tool_call","call_id":"c","tool_id":"t","tool_name":"search","arguments":{"n":1,"q":"x"}},'
    '"recovery":"owner_bound",'
    '"identity":{"kind":"tool","label":"Search","definition":{"name":"s","v":2}},'
    '"event_types":[{"name":"found",'
    '"payload_schema":{"properties":{"text":{"type":"string"}},"type":"object"},'
    '"semantics":{"wake":{"input":{"select":"template","template":"{t}",'
    '"fields":{"t":{"select":"pointer","path":"/text"}}},'
    '"when":{"select":"present","path":"/text"},"dedupe_key":{"select":"const","value":"once"}}}},'
    '{"name":"failed","semantics":{"terminal":{"state":"failed","await_output":{"select":"payload"}}}}],'
    '"provenance":{"originator":{"type":"session","scope":{"session_id":"session-1","agent_frame_id":"f"}},'
    '"caused_by":{"type":"turn","session_id":"session-1","turn_id":"t"}},'
    '"environment_ref":"env","wake_session_id":"session-1"}'
)
GOLDEN = "6e15b857a0ad97447b55612a169c117649d74cdb2a08f13720e235e78e30fcd4"
TOOL_GOLDEN = "026774f3ee5f12c2545d0452b41c6f3fdf334f723f7fd3e71a7d823cdf73e450"

ROW = ProcessRow(7, PROCESS, GOLDEN, CONTENT, '{"status":"completed","outcome":{"type":"success"}}', "s", 3, 10, 20)
RECORD = ProcessRecord(
    process_id=PROCESS,
    registration_hash=GOLDEN,
    registration=registered(recovery=Recovery.EXTERNAL, identity=ProcessIdentity(kind="external")),
    projection=Projection(status=ProcessStatus.COMPLETED, outcome=Success()),
    wake_session_id="s",
    last_sequence=3,
    created_at_ms=10,
    updated_at_ms=20,
)


def hash_of(registration: Registration) -> str:
    return encode_registration(registration).registration_hash


def turned(value: object) -> object:
    """Return the same JSON with the keys of all its objects in reverse order."""
    if isinstance(value, dict):
        return {key: turned(item) for key, item in reversed(value.items())}
    return [turned(item) for item in value] if isinstance(value, list) else value


def test_the_golden_vectors_are_the_hashes_of_the_written_content() -> None:
    """The checked-in hashes are SHA-256 over a version prefix and the content written by hand."""
    assert sha256(b"lash.registration.v1\0" + CONTENT.encode()) == GOLDEN
    assert sha256(b"lash.registration.v1\0" + TOOL_CONTENT.encode()) == TOOL_GOLDEN


def test_registrations_have_their_golden_hashes() -> None:
    """The hash behind a process id never changes, so old processes keep recognising their registrations."""
    assert hash_of(EXTERNAL) == GOLDEN
    assert hash_of(TOOL) == TOOL_GOLDEN


def test_a_registration_is_written_with_its_columns() -> None:
    """Lists filter by kind, label, definition and the originating session."""
    encoded = encode_registration(TOOL)
    assert encoded.registration == TOOL
    assert json.loads(encoded.body) == json.loads(TOOL_CONTENT)
    assert (encoded.kind, encoded.label, encoded.originator_session_id) == ("tool", "Search", SESSION)
    assert encoded.definition_hash == sha256(b'{"name":"s","v":2}')


def test_the_trace_of_a_start_is_stored_and_not_hashed() -> None:
    """A registration with a trace has the hash of the same one without."""
    traced = encode_registration(replace(TOOL, provenance=replace(TOOL.provenance, traceparent="00-a-b-01")))
    assert traced.registration_hash == hash_of(TOOL)
    assert json.loads(traced.body)["provenance"]["traceparent"] == "00-a-b-01"


def test_a_plain_registration_has_empty_columns() -> None:
    """The host is its originator, and the optional columns are empty."""
    encoded = encode_registration(EXTERNAL)
    assert (encoded.kind, encoded.label, encoded.definition_hash) == ("external", None, None)
    assert encoded.originator_session_id is None
    assert encoded.body == CONTENT


@pytest.mark.parametrize(
    "same",
    [
        registered(recovery=Recovery.EXTERNAL),
        registered(recovery="external"),
        registered(identity=ProcessIdentity(kind="external")),
        registered(input=ExternalInput(metadata={})),
        registered(provenance=Provenance()),
        registered(provenance=Provenance(originator=HostOriginator())),
        registered(event_types=[]),
    ],
    ids=["recovery", "recovery as text", "identity", "metadata", "provenance", "originator", "list"],
)
def test_what_is_said_and_what_is_meant_hash_alike(same: Registration) -> None:
    """Giving a default is the same as omitting it."""
    assert hash_of(same) == GOLDEN


def test_equal_event_types_hash_alike_however_they_are_made() -> None:
    """Defaults inside event types are the same whether given or omitted."""
    left_out = registered(EventType(name="x"))
    given_all = registered(EventType(name="x", payload_schema={}, semantics=EventSemantics(terminal=None, wake=None)))
    assert hash_of(left_out) == hash_of(given_all) == hash_of(registered(EventType(name="x", semantics=PLAIN)))


@pytest.mark.parametrize(
    "other",
    [
        replace(TOOL, process_id="tool-2"),
        replace(TOOL, input=replace(TOOL.input, arguments={"q": "y", "n": 1})),
        replace(TOOL, recovery=Recovery.RERUNNABLE),
        replace(TOOL, identity=None),
        replace(TOOL, identity=ProcessIdentity(kind="tool", label="search", definition={"v": 2, "name": "s"})),
        replace(TOOL, event_types=TOOL.event_types[:1]),
        replace(TOOL, event_types=TOOL.event_types[::-1]),
        replace(TOOL, event_types=(*TOOL.event_types, EventType(name="more"))),
        replace(TOOL, provenance=Provenance()),
        replace(TOOL, provenance=replace(TOOL.provenance, caused_by=ProcessCause(process_id="p"))),
        replace(TOOL, environment_ref="other"),
        replace(TOOL, wake_session_id=None),
    ],
    ids=[
        *("id", "input", "recovery", "no identity", "label", "fewer types", "order of types", "more types"),
        *("provenance", "cause", "environment", "wake target"),
    ],
)
def test_another_registration_has_another_hash(other: Registration) -> None:
    """Every part of a registration counts, even the order of its types."""
    assert hash_of(other) != TOOL_GOLDEN


@given(
    st.dictionaries(
        st.text("abc", max_size=2),
        st.recursive(
            st.integers(-9, 9) | st.text("xy", max_size=2),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            max_leaves=6,
        ),
        max_size=3,
    )
)
def test_the_order_of_keys_does_not_change_the_hash(free: JSONObject) -> None:
    """Keys of free JSON anywhere in a registration may come in any order."""

    def build(value: JSONObject) -> Registration:
        return Registration(
            process_id=PROCESS,
            input=EngineInput(kind="k", payload=value),
            identity=ProcessIdentity(kind="k", definition=value),
            event_types=(
                EventType(
                    name="e",
                    payload_schema={"default": value},
                    semantics=EventSemantics(wake=WakeSpec(input=Constant(value=value))),
                ),
            ),
            environment_ref="env",
        )

    other = turned(free)
    assert isinstance(other, dict)
    one, two = encode_registration(build(free)), encode_registration(build(other))
    assert one.registration_hash == two.registration_hash
    assert one.definition_hash == two.definition_hash == sha256(canonical_json(free))


@pytest.mark.parametrize(
    ("process_input", "identity"),
    [
        (ToolCallInput(call_id="c", tool_id="t", tool_name="search"), ProcessIdentity(kind="tool", label="search")),
        (EngineInput(kind="function"), ProcessIdentity(kind="function")),
        (SessionTurnInput(create_request={}, turn_input={}), ProcessIdentity(kind="session_turn")),
        (
            SessionTurnInput(create_request={}, turn_input={}, label="child"),
            ProcessIdentity(kind="session_turn", label="child"),
        ),
        (ExternalInput(), ProcessIdentity(kind="external")),
        (ExternalInput(metadata={"title": "c", "name": "b"}), ProcessIdentity(kind="external", label="b")),
        (
            ExternalInput(metadata={"title": "c", "name": "b", "label": "a"}),
            ProcessIdentity(kind="external", label="a"),
        ),
        (ExternalInput(metadata={"title": "c"}), ProcessIdentity(kind="external", label="c")),
        (ExternalInput(metadata={"label": 7, "name": "b"}), ProcessIdentity(kind="external")),
    ],
)
def test_the_identity_is_taken_from_the_input(process_input: ProcessInput, identity: ProcessIdentity) -> None:
    """The identity has the first of label, name and title that is present as text."""
    needs = isinstance(process_input, ToolCallInput | EngineInput)
    registration = Registration(process_id="p", input=process_input, environment_ref="env" if needs else None)
    assert encode_registration(registration).registration.identity == identity


@pytest.mark.parametrize(
    ("registration", "recovery"),
    [
        (EXTERNAL, Recovery.EXTERNAL),
        (replace(EXTERNAL, recovery=Recovery.EXTERNAL), Recovery.EXTERNAL),
        (ENGINE, Recovery.RERUNNABLE),
        (replace(ENGINE, recovery=Recovery.OWNER_BOUND), Recovery.OWNER_BOUND),
    ],
)
def test_what_is_done_elsewhere_is_external(registration: Registration, recovery: Recovery) -> None:
    """No worker runs an external input, and the host need not declare it."""
    assert encode_registration(registration).registration.recovery is recovery


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(EXTERNAL, recovery=Recovery.OWNER_BOUND), "is external and cannot be bound to an owner"),
        (replace(ENGINE, recovery=Recovery.EXTERNAL), "is run by workers and cannot be external"),
        (replace(ENGINE, recovery="external"), "is run by workers and cannot be external"),
        (replace(ENGINE, recovery="wat"), "Invalid enum value 'wat'"),
        (replace(ENGINE, environment_ref=None), "requires a captured execution environment"),
        (replace(TOOL, environment_ref=None), "requires a captured execution environment"),
        (replace(ENGINE, environment_ref=" "), "environment_ref is blank"),
        (replace(EXTERNAL, environment_ref="env"), "must not capture an execution environment"),
        (
            replace(EXTERNAL, input=SessionTurnInput(create_request={}, turn_input={}), environment_ref="env"),
            "must not capture an execution environment",
        ),
        (replace(EXTERNAL, process_id=" "), "process_id is blank"),
        (replace(EXTERNAL, process_id="x" * 256), "process_id has 256 characters"),
        (replace(EXTERNAL, process_id=None), "process_id must be text"),
        (replace(EXTERNAL, input=None), "Expected `object`, got `null` - at `\\$.input`"),
        (replace(EXTERNAL, input=ExternalInput(metadata={"a": object()})), "metadata.a is of type object"),
        (replace(EXTERNAL, wake_session_id=""), "wake_session_id is blank"),
        (replace(EXTERNAL, identity=ProcessIdentity(kind="")), "identity.kind is blank"),
        (replace(EXTERNAL, identity=ProcessIdentity(kind="k", label="x" * 256)), "identity.label has 256 characters"),
        (
            replace(EXTERNAL, provenance=Provenance(originator=SessionOriginator(scope=AgentScope(session_id="")))),
            "originator.session_id is blank",
        ),
        ("registration", "expected a Registration, got str"),
    ],
)
def test_registrations_that_cannot_be_stored_are_refused(wrong: Registration, message: str) -> None:
    """An invalid registration is refused before any read."""
    with pytest.raises(InvalidInput, match=message):
        encode_registration(wrong)


def test_the_longest_label_fits() -> None:
    """A label may have 255 characters."""
    encoded = encode_registration(replace(EXTERNAL, identity=ProcessIdentity(kind="k", label="x" * 255)))
    assert encoded.label == "x" * 255


def waking(**selectors: Selector) -> EventSemantics:
    return EventSemantics(wake=WakeSpec(**{"input": Constant(value=""), **selectors}))


@pytest.mark.parametrize(
    ("event_types", "message"),
    [
        ((EventType(name=""),), "event type name is blank"),
        ((EventType(name="x"), EventType(name="y"), EventType(name="x")), "declares event type 'x' twice"),
        (
            (EventType(name="process.completed"),),
            "event type 'process.completed' is a core type, which every process has",
        ),
        ((EventType(name="process.waiting"),), "event type 'process.waiting' is a core type, which every process has"),
        ((EventType(name="x", payload_schema={"type": "wat"}),), "event type 'x': payload_schema: the JSON schema"),
        ((EventType(name="x", payload_schema={"a": object()}),), "payload_schema.a is of type object"),
        ((EventType(name="x", payload_schema=True),), "Expected `object`, got `bool`"),  # type: ignore[arg-type]
        ((EventType(name="x", semantics=None),), "Expected `object`, got `null`"),  # type: ignore[arg-type]
        (({"name": "x"},), "is of type dict and would be read back as EventType"),
        (None, "Expected `array`, got `null`"),
        ((EventType(name="x", semantics=waking(input=Pointer(path="a"))),), "starts with a slash, got 'a'"),
        ((EventType(name="x", semantics=waking(when=Present(path="a"))),), "starts with a slash, got 'a'"),
        ((EventType(name="x", semantics=waking(dedupe_key=Pointer(path="a"))),), "starts with a slash, got 'a'"),
        (
            (
                EventType(
                    name="x",
                    semantics=EventSemantics(
                        terminal=TerminalSpec(state=TerminalState.COMPLETED, await_output=Pointer(path="a"))
                    ),
                ),
            ),
            "starts with a slash, got 'a'",
        ),
    ],
)
def test_event_types_that_cannot_be_used_are_refused(event_types: tuple[EventType, ...], message: str) -> None:
    """Names are unique and not those of core types; schemas and selectors are checked once, here."""
    with pytest.raises(InvalidInput, match=message):
        encode_registration(replace(EXTERNAL, event_types=event_types))


@pytest.mark.parametrize("state", [*TerminalState, "failed"])
def test_only_success_may_leave_its_outcome_unsaid(state: TerminalState) -> None:
    """An end without success must select its outcome."""
    registration = registered(EventType(name="x", semantics=EventSemantics(terminal=TerminalSpec(state=state))))
    if state is TerminalState.COMPLETED:
        assert encode_registration(registration).registration.event_types == registration.event_types
    else:
        with pytest.raises(InvalidInput, match="event type 'x' ends the process without success and must select"):
            encode_registration(registration)


def test_an_equal_registration_returns_the_stored_record() -> None:
    """The stored record is returned in any state, even if its wake target was changed."""
    assert same_registration(encode_registration(EXTERNAL), ROW) == RECORD


def test_another_registration_of_the_id_is_a_conflict() -> None:
    """The error has both hashes."""
    other = encode_registration(registered(EventType(name="x")))
    with pytest.raises(RegistrationConflict) as raised:
        same_registration(other, ROW)
    assert (raised.value.process_id, raised.value.existing_hash) == (PROCESS, GOLDEN)
    assert raised.value.new_hash == other.registration_hash


def test_a_stored_process_is_read_back() -> None:
    """The row decodes to the record; a fresh one is running and not waiting."""
    assert decode_process(ROW) == RECORD
    assert decode_process(ROW).is_terminal
    fresh = decode_process(replace(ROW, projection="{}"))
    assert (fresh.status, fresh.is_terminal, fresh.projection) == (ProcessStatus.RUNNING, False, Projection())


def test_an_event_moves_a_row_and_its_record_alike() -> None:
    """Number, projection and time after one more event are known without reading the row."""
    before = replace(ROW, projection="{}")
    after = row_after(before, ROW.projection, 77)
    assert after == replace(ROW, last_sequence=ROW.last_sequence + 1, updated_at_ms=77)
    assert record_after(decode_process(before), ROW.projection, 77) == replace(
        RECORD, last_sequence=RECORD.last_sequence + 1, updated_at_ms=77
    )
    with pytest.raises(CorruptData, match=f"process '{PROCESS}'"):
        record_after(decode_process(before), "{", 77)


@pytest.mark.parametrize(
    "damaged",
    [
        *(replace(ROW, registration="{"), replace(ROW, registration="{}")),
        *(replace(ROW, projection="null"), replace(ROW, projection='{"status":"wat"}')),
    ],
)
def test_a_damaged_process_is_reported_as_damage(damaged: ProcessRow) -> None:
    """Damage is never reported as absence."""
    with pytest.raises(CorruptData, match=r"^process 'process-1' cannot be read"):
        decode_process(damaged)


def test_a_process_that_is_gone_is_told_from_one_that_never_was() -> None:
    """A pruned process and an unknown one raise different errors."""
    never, gone = missing_process("p", pruned=False), missing_process("p", pruned=True)
    assert (type(never), never.process_id) == (ProcessNotFound, "p")
    assert (type(gone), gone.process_id) == (ProcessPruned, "p")


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (None, None),
        ("x", sha256(b'"x"')),
        ({"b": [1], "a": {}}, sha256(b'{"a":{},"b":[1]}')),
        (0, sha256(b"0")),
        (False, sha256(b"false")),
    ],
)
def test_definitions_are_found_by_their_hash(definition: JSON, expected: str | None) -> None:
    """No definition has no hash; every other value has one, even a falsy one."""
    assert definition_hash(definition) == expected


def test_versions_are_ordered_by_name_and_version() -> None:
    """Each row is one definition; not every definition has a version."""
    identities = [
        ProcessIdentity(kind="python", label="b", definition={"process": "b", "version": "1"}),
        ProcessIdentity(kind="python", label="a", definition={"process": "a", "version": "2"}),
        ProcessIdentity(kind="python", label="a", definition={"process": "a", "version": "1"}),
        ProcessIdentity(kind="lashlang", definition=["a program"]),
        ProcessIdentity(kind="python", label="odd", definition={"version": 7}),
        None,
    ]
    rows = [
        VersionRow(str(number), encode_registration(registered(identity=each)).body, number, 0, 5)
        for number, each in enumerate(identities)
    ]
    found = decode_versions(rows)
    assert [(each.name, each.version, each.count) for each in found] == [
        ("a", "1", 2),
        ("a", "2", 1),
        ("b", "1", 0),
        ("external", None, 5),
        ("lashlang", None, 3),
        ("odd", None, 4),
    ]
