"""Rules of effects: their identity, their keys, and which envelopes and outcomes are refused."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lash.base.replay_key import replay_key
from lash.errors import CorruptData, InvalidInput
from lash.model.causal import NodeCause
from lash.model.effect import (
    AwaitEvent,
    BatchCall,
    CheckpointPoint,
    Command,
    EffectError,
    EffectStatus,
    Envelope,
    ExecCode,
    ExecutionScope,
    OperationScope,
    PreparedCall,
    ProcessCommand,
    ProcessScope,
    Sleep,
    Step,
    ToolAttempt,
    ToolBatch,
    TurnCheckpoint,
    TurnScope,
)
from lash.model.scope import scope_id, scope_process_id, scope_session_id, turn_scope_id
from lash.plan.effect.effect import (
    check_key,
    decode_outcome,
    encode_envelope,
    encode_error,
    encode_outcome,
    first_difference,
    mismatch,
)
from tests.rules.kit import sha256

TURN = TurnScope(session_id="s", turn_id="t")
CALL = PreparedCall(call_id="c", tool_id="i", tool_name="n")
VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "effect_vectors.json").read_text("utf-8"))
KINDS = {type_.__struct_config__.tag for type_ in Command.__args__}


def envelope(command: object = None, **fields: Any) -> Envelope:  # noqa: ANN401 - the fields of an envelope
    given_ = {"scope": TURN, "replay_key": "k", "command": command or Step(name="n"), **fields}
    return Envelope(**given_)


def attempt(**fields: Any) -> ToolAttempt:  # noqa: ANN401 - the fields of an attempt
    return ToolAttempt(**{"call": CALL, "attempt": 1, "max_attempts": 1, **fields})


def test_the_vectors_know_every_kind_of_command() -> None:
    """A new kind of command needs a golden vector."""
    assert {vector["envelope"]["command"]["kind"] for vector in VECTORS} == KINDS


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_golden_vectors(vector: dict[str, Any]) -> None:
    """The stored text is sorted JSON without white space, and the hash covers domain and text; both never change."""
    text = json.dumps(vector["envelope"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    encoded = encode_envelope(msgspec.convert(vector["envelope"], Envelope))
    assert (encoded.text, encoded.scope_id) == (text, vector["scope_id"])
    assert encoded.hash == vector["hash"] == sha256(b"lash.effect.v1\0" + text.encode())
    assert msgspec.json.decode(encoded.text, type=Envelope) == encoded.envelope
    assert encode_envelope(msgspec.json.decode(encoded.text, type=Envelope)).hash == encoded.hash


def test_every_part_changes_the_hash() -> None:
    """Another scope, key, command, cause or group is another effect."""
    variants = [
        envelope(),
        envelope(scope=TurnScope(session_id="s", turn_id="u")),
        envelope(replay_key="l"),
        envelope(Step(name="m")),
        envelope(Step(name="n", input=0)),
        envelope(Step(name="n", input=0.0)),
        envelope(Step(name="n", input=False)),
        envelope(AwaitEvent(key_id="n")),
        envelope(caused_by=NodeCause(session_id="s", node_id="a")),
        envelope(group_key="g"),
    ]
    assert len({encode_envelope(each).hash for each in variants}) == len(variants)


def test_absent_and_default_are_the_same() -> None:
    """A field with its default is omitted, so new optional fields leave old hashes unchanged."""
    assert encode_envelope(envelope(Step(name="n", input=None))).text == encode_envelope(envelope()).text
    with_none = envelope(ProcessCommand(op="list", arguments={}))
    assert "arguments" not in encode_envelope(with_none).text


def test_what_an_encoded_effect_tells() -> None:
    """An encoded effect has the times of a sleep and the names of the effect."""
    plain = encode_envelope(envelope(group_key="g"))
    assert (plain.replay_key, plain.group_key, plain.duration_ms, plain.until_ms) == ("k", "g", None, None)
    assert encode_envelope(envelope(Sleep(duration_ms=5))).duration_ms == 5
    assert encode_envelope(envelope(Sleep(until_ms=-5))).until_ms == -5


@pytest.mark.parametrize(
    "command",
    [
        Step(name=""),
        attempt(call=PreparedCall(call_id="", tool_id="i", tool_name="n")),
        attempt(call=PreparedCall(call_id="c", tool_id=" ", tool_name="n")),
        attempt(call=PreparedCall(call_id="c", tool_id="i", tool_name="")),
        attempt(call={"call_id": "c"}),
        attempt(attempt=0),
        attempt(attempt=2),
        attempt(attempt="1"),
        attempt(attempt=-1),
        attempt(max_attempts=0),
        attempt(max_attempts=None),
        ToolBatch(batch_id="", calls=(BatchCall(call=CALL, replay_suffix="1"),)),
        ToolBatch(batch_id="b", calls=()),
        ToolBatch(batch_id="b", calls=(BatchCall(call=CALL, replay_suffix=" "),)),
        ToolBatch(batch_id="b", calls=(BatchCall(call=CALL, replay_suffix="1"),) * 2),
        ToolBatch(batch_id="b", calls=("c",)),  # type: ignore[arg-type]
        ToolBatch(batch_id="b", calls=(BatchCall(call=msgspec.structs.replace(CALL, tool_id=""), replay_suffix="1"),)),
        ToolBatch(batch_id="b", calls=(BatchCall(call="c", replay_suffix="1"),)),  # type: ignore[arg-type]
        ProcessCommand(op="explode"),
        ExecCode(language="", code=""),
        Sleep(),
        Sleep(duration_ms=1, until_ms=1),
        Sleep(duration_ms=-1),
        Sleep(duration_ms=2**63),
        Sleep(duration_ms="1"),  # type: ignore[arg-type]
        Sleep(until_ms=2**63),
        Sleep(until_ms=1.5),  # type: ignore[arg-type]
        AwaitEvent(key_id=""),
        Step(name="n", input=b"bytes"),  # type: ignore[arg-type]
        Step(name="n", input=object()),  # type: ignore[arg-type]
        "step",
    ],
    ids=lambda each: type(each).__name__,
)
def test_impossible_commands_are_refused(command: object) -> None:
    """A command that could not be run, named or stored is refused, with the key in the message."""
    with pytest.raises(InvalidInput, match="'k'"):
        encode_envelope(envelope(command))


@pytest.mark.parametrize(
    "command",
    [
        attempt(attempt=3, max_attempts=3),
        ToolBatch(
            batch_id="b", calls=(BatchCall(call=CALL, replay_suffix="1"), BatchCall(call=CALL, replay_suffix="2"))
        ),
        TurnCheckpoint(checkpoint=CheckpointPoint.AFTER_WORK),
        Sleep(duration_ms=0),
        ProcessCommand(op="start"),
        ProcessCommand(op="list"),
        ProcessCommand(op="transfer"),
        ProcessCommand(op="delete_session"),
        ProcessCommand(op="await"),
        ProcessCommand(op="cancel"),
        ProcessCommand(op="signal"),
    ],
    ids=repr,
)
def test_possible_commands_are_not(command: Command) -> None:
    """The limits themselves are allowed."""
    assert encode_envelope(envelope(command)).envelope.command == command


@pytest.mark.parametrize("fields", [{"replay_key": ""}, {"replay_key": "x" * 256}, {"group_key": " "}, {"scope": "s"}])
def test_unusable_names_are_refused(fields: dict[str, Any]) -> None:
    """Blank and oversize keys, and invalid scopes, are refused."""
    with pytest.raises(InvalidInput):
        encode_envelope(envelope(**fields))


def test_an_envelope_is_needed() -> None:
    """Anything but an envelope is refused with its type."""
    with pytest.raises(InvalidInput, match="got dict"):
        encode_envelope({})


def test_envelopes_are_bounded() -> None:
    """An envelope larger than 4 MiB is refused, with the key in the message."""
    assert len(encode_envelope(envelope(ExecCode(language="l", code="x" * 4_000_000))).text) > 4_000_000
    with pytest.raises(InvalidInput, match=r"'k' of turn:1:s:t has 4,200,\d+ bytes"):
        encode_envelope(envelope(ExecCode(language="l", code="x" * 4_200_000)))


def test_the_largest_envelope_has_exactly_4_mib() -> None:
    """4,194,304 bytes of canonical text are accepted, one more is not."""
    rest = (
        '{"command":{"code":"","kind":"exec_code","language":"l"},"replay_key":"k",'
        '"scope":{"session_id":"s","turn_id":"t","type":"turn"}}'
    )
    room = 4_194_304 - len(rest)
    assert len(encode_envelope(envelope(ExecCode(language="l", code="x" * room))).text) == 4_194_304
    with pytest.raises(InvalidInput, match="has 4,194,305 bytes"):
        encode_envelope(envelope(ExecCode(language="l", code="x" * (room + 1))))


def test_the_largest_outcome_has_exactly_1_mib() -> None:
    """1,048,576 characters of JSON are accepted, one more is not."""
    room = 1_048_576 - len('{"outcome":""}')
    assert len(encode_outcome("it", "x" * room).outcome or "") == 1_048_576
    with pytest.raises(InvalidInput, match="the outcome of it has 1,048,577 characters"):
        encode_outcome("it", "x" * (room + 1))


def test_the_longest_names_that_fit_an_index() -> None:
    """A scope and a key of 2,400 bytes fit together, one byte more does not."""
    wide = "\N{GRINNING FACE}" * 255
    long = TurnScope(session_id=wide, turn_id=wide)
    room = 2_400 - len(f"turn:255:{wide}:{wide}".encode())
    key = "\N{GRINNING FACE}" * 50 + "k" * (room - 200)
    assert check_key(long, key) == f"turn:255:{wide}:{wide}"
    with pytest.raises(InvalidInput, match="2,401 bytes together"):
        check_key(long, key + "k")


def test_names_must_fit_an_index() -> None:
    """A scope and a key that are together too long for an index are refused."""
    wide = "\N{GRINNING FACE}" * 255
    long = TurnScope(session_id=wide, turn_id=wide)
    assert encode_envelope(envelope(scope=long, replay_key="x" * 255)).scope_id == f"turn:255:{wide}:{wide}"
    for fields in ({"replay_key": wide}, {"replay_key": "k", "group_key": wide}):
        with pytest.raises(InvalidInput, match="bytes together"):
            encode_envelope(envelope(scope=long, **fields))
    with pytest.raises(InvalidInput, match="bytes together"):
        check_key(long, wide)
    assert check_key(TURN, "k") == "turn:1:s:t"
    with pytest.raises(InvalidInput, match=r"^replay_key is blank"):
        check_key(TURN, "")
    with pytest.raises(InvalidInput, match=r"^group_key is blank"):
        check_key(TURN, "", "group_key")


SCOPES: list[tuple[ExecutionScope, str, str | None, str | None]] = [
    (TurnScope(session_id="a:b", turn_id="c"), "turn:3:a:b:c", "a:b", None),
    (TurnScope(session_id="a", turn_id="b:c"), "turn:1:a:b:c", "a", None),
    (ProcessScope(process_id="a"), "process:a", None, "a"),
    (OperationScope(operation_id="a"), "runtime_operation:a", None, None),
]


@pytest.mark.parametrize(("scope", "name", "session", "process"), SCOPES)
def test_scopes_have_full_names(scope: ExecutionScope, name: str, session: str | None, process: str | None) -> None:
    """The name has kind, session and turn, and is unambiguous for any ids."""
    assert (scope_id(scope), scope_session_id(scope), scope_process_id(scope)) == (name, session, process)


def test_the_scope_of_a_turn() -> None:
    """A commit names the scope of its turn."""
    assert turn_scope_id("a:b", "c") == "turn:3:a:b:c"


IDS = st.text(st.sampled_from(["a", ":", "1", "é"]), min_size=1, max_size=6)


@given(IDS, IDS, IDS, IDS)
def test_names_of_turns_do_not_collide(session: str, turn: str, other_session: str, other_turn: str) -> None:
    """Two turns have the same name only if they are the same turn."""
    same = (session, turn) == (other_session, other_turn)
    assert (turn_scope_id(session, turn) == turn_scope_id(other_session, other_turn)) is same


def test_replay_keys_are_readable() -> None:
    """Plain parts are joined unchanged; ambiguous ones are escaped."""
    assert replay_key("model", 1, "retry") == "model:1:retry"
    assert replay_key("a:b", "c~d", "5%") == "a%3Ab:c%7Ed:5%25"
    assert replay_key("a", "") == "a:"


PARTS = st.lists(st.text(st.sampled_from([":", "~", "%", "a", "3", "A"]), max_size=4), min_size=1, max_size=4)


@given(PARTS, PARTS)
def test_replay_keys_do_not_collide(one: list[str], other: list[str]) -> None:
    """Two keys are equal only if all their parts are."""
    if "".join(one) and "".join(other):
        assert (replay_key(*one) == replay_key(*other)) is (one == other)


def test_long_replay_keys_end_with_a_hash() -> None:
    """A key beyond the limit keeps its beginning and ends with the hash of the whole."""
    at_limit = replay_key("x" * 255)
    assert at_limit == "x" * 255
    long = replay_key("x" * 250, "y" * 50)
    assert long == "x" * 190 + "~" + sha256(("x" * 250 + ":" + "y" * 50).encode())
    assert len(long) == 255
    assert long != replay_key("x" * 250, "y" * 51)


@pytest.mark.parametrize("parts", [(), ("",), (" ",), ("a\0",), ("\ud800",), (True,), (1.5,), (2**63,)])
def test_impossible_replay_keys_are_refused(parts: tuple[Any, ...]) -> None:
    """An empty key, or a part that is neither text nor number, is refused."""
    with pytest.raises(InvalidInput):
        replay_key(*parts)


def test_a_replay_key_of_nothing_is_told_so() -> None:
    """The error says that a part is missing."""
    with pytest.raises(InvalidInput, match="a replay key needs at least one part"):
        replay_key()


@pytest.mark.parametrize("outcome", [None, 0, 1.5, "x", [1, [2]], {"a": None}])
def test_outcomes_come_back(outcome: Any) -> None:  # noqa: ANN401 - any JSON
    """An encoded outcome decodes unchanged."""
    settlement = encode_outcome("it", outcome)
    assert (settlement.status, settlement.error) == (EffectStatus.COMPLETED, None)
    assert decode_outcome(settlement.outcome or "", "it") == outcome


def test_errors_are_encoded() -> None:
    """An EffectError is encoded as a failure, given as an outcome or as an error."""
    error = EffectError(code="c", message="m", raw=[1])
    for settlement in (encode_outcome("it", error), encode_error("it", error)):
        assert (settlement.status, settlement.outcome) == (EffectStatus.FAILED, None)
        assert json.loads(settlement.error or "") == {"code": "c", "message": "m", "raw": [1]}


def test_impossible_outcomes_are_refused() -> None:
    """An outcome that is too large, not JSON, not an error, or an error without a code is refused."""
    with pytest.raises(InvalidInput, match="the outcome of it has"):
        encode_outcome("it", "x" * 1_048_576)
    with pytest.raises(InvalidInput, match="the error of it has"):
        encode_error("it", EffectError(code="c", message="x" * 1_048_576))
    with pytest.raises(InvalidInput, match="expected an EffectError"):
        encode_error("it", ValueError())
    with pytest.raises(InvalidInput, match="blank"):
        encode_error("it", EffectError(code="", message="m"))
    with pytest.raises(InvalidInput):
        encode_outcome("it", object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recorded", "given_", "difference"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 2}, ("a", 1, 2)),
        ({"a": 1, "b": 1}, {"b": 2, "a": 2}, ("a", 1, 2)),
        ({"a": {"b": [0, {"c": "x"}]}}, {"a": {"b": [0, {"c": "y"}]}}, ("a.b[1].c", "x", "y")),
        ({"a": 1}, {"a": 1.0}, ("a", 1, 1.0)),
        ({"a": 1}, {"a": True}, ("a", 1, True)),
        ({"a": [1]}, {"a": (1, 2)}, ("a[1]", msgspec.UNSET, 2)),
        ({"a": [1, 2]}, {"a": [1]}, ("a[1]", 2, msgspec.UNSET)),
        ({"a": None}, {}, ("a", None, msgspec.UNSET)),
        ({}, {"a": None}, ("a", msgspec.UNSET, None)),
        ({"a": [1]}, {"a": {"b": 1}}, ("a", [1], {"b": 1})),
        ([], {}, ("", [], {})),
    ],
)
def test_the_first_difference_is_found(recorded: object, given_: object, difference: object) -> None:
    """The first differing path, by name and index, is returned with both values."""
    assert first_difference(recorded, given_) == difference


def test_a_mismatch_names_both() -> None:
    """The error names scope, key, path and both values."""
    encoded = encode_envelope(envelope(Step(name="n", input={"q": "new"})))
    recorded = encode_envelope(envelope(Step(name="n", input={"q": "old"})))
    error = mismatch(encoded, recorded.text)
    assert (error.scope, error.replay_key) == ("turn:1:s:t", "k")
    assert (error.path, error.recorded, error.given) == ("command.input.q", "old", "new")


def test_an_envelope_that_belies_its_hash_is_corrupt() -> None:
    """Equal envelopes with different hashes, or an unreadable one, are damage."""
    encoded = encode_envelope(envelope())
    with pytest.raises(CorruptData, match="hash"):
        mismatch(encoded, encoded.text)
    with pytest.raises(CorruptData, match="envelope"):
        mismatch(encoded, "{")
