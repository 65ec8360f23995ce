"""Rules of wait keys and of stored waits."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lash.errors import CorruptData, InvalidInput
from lash.model.effect import ExecutionScope, OperationScope, ProcessScope, TurnScope
from lash.model.wait import (
    Accepted,
    AlreadyResolved,
    Cancelled,
    CustomIdentity,
    Question,
    Rejected,
    Resolution,
    Resolved,
    SignalIdentity,
    TimedOut,
    ToolCompletion,
    UnknownOrRevoked,
    WaitIdentity,
    WaitKey,
    WaitRecord,
)
from lash.plan.wait import (
    MAX_KEY_LENGTH,
    MAX_QUESTION_LENGTH,
    TIMED_OUT,
    SessionLife,
    StoredKey,
    WaitAnswer,
    WaitRow,
    check_after,
    check_answer,
    check_key,
    check_timeout,
    check_wait_identity,
    decode_resolution,
    decode_wait,
    encode_question,
    encode_resolution,
    generation_of,
    is_checked,
    must_check,
    resolve_answer,
    sign_key,
    verify_key,
)

SECRET: Final = bytes(range(32))
SIGNAL: Final = SignalIdentity(process_id="p", signal_name="go", ordinal=3)
# Made with openssl from the payloads that they hold; keys in use must stay valid permanently.
GOLDEN: Final[list[tuple[ExecutionScope, WaitIdentity, str, str, str, StoredKey]]] = [
    (
        TurnScope(session_id="s", turn_id="t"),
        ToolCompletion(tool_call_id="c"),
        "7.2",
        "b08887e9b515dd86d84c77dc85910ea5cd2cf750f4fc3fcef2ab889bd5713d58",
        (
            "lw1.W3sidHlwZSI6InR1cm4iLCJzZXNzaW9uX2lkIjoicyIsInR1cm5faWQiOiJ0In0seyJ0eXBlIjoidG9vbF9jb21wbGV0aW9uIiwidG9v"
            "bF9jYWxsX2lkIjoiYyJ9LCI3LjIiXQ.a2Br4gLxrW5o2ya6-6I8zyd8Zvn1zzcoETj0a-XDe0U"
        ),
        StoredKey(
            key_id="b08887e9b515dd86d84c77dc85910ea5cd2cf750f4fc3fcef2ab889bd5713d58",
            scope_id="turn:1:s:t",
            scope='{"scope":{"type":"turn","session_id":"s","turn_id":"t"}}',
            identity='{"identity":{"type":"tool_completion","tool_call_id":"c"}}',
            session_key=7,
            revocations=2,
        ),
    ),
    (
        ProcessScope(process_id="p"),
        SIGNAL,
        "12",
        "2237770bf06aa188afa7c2a994db96d8c3ab690c21c4cc7933b1b133e6fb6816",
        (
            "lw1.W3sidHlwZSI6InByb2Nlc3MiLCJwcm9jZXNzX2lkIjoicCJ9LHsidHlwZSI6InByb2Nlc3Nfc2lnbmFsIiwicHJvY2Vzc19pZCI6InAi"
            "LCJzaWduYWxfbmFtZSI6ImdvIiwib3JkaW5hbCI6M30sIjEyIl0.xDH2Dq_mqPEJr4nzi74nAL4DixUgJ8YQ9ifGAyXuQYg"
        ),
        StoredKey(
            key_id="2237770bf06aa188afa7c2a994db96d8c3ab690c21c4cc7933b1b133e6fb6816",
            scope_id="process:p",
            scope='{"scope":{"type":"process","process_id":"p"}}',
            identity='{"identity":{"type":"process_signal","process_id":"p","signal_name":"go","ordinal":3}}',
            process_key=12,
        ),
    ),
    (
        OperationScope(operation_id="ö"),
        CustomIdentity(key="k"),
        "0",
        "f40ebe8bbaba21f0b637ee536b88c0ef61d32b7e6b3c50a4a0583debfa64b1d4",
        (
            "lw1.W3sidHlwZSI6InJ1bnRpbWVfb3BlcmF0aW9uIiwib3BlcmF0aW9uX2lkIjoiw7YifSx7InR5cGUiOiJjdXN0b20iLCJrZXkiOiJrIn0s"
            "IjAiXQ.hi2iWUI-1B4n35YLPctR-_EG2NHnHz4s8CBnv2WZ5RE"
        ),
        StoredKey(
            key_id="f40ebe8bbaba21f0b637ee536b88c0ef61d32b7e6b3c50a4a0583debfa64b1d4",
            scope_id="runtime_operation:ö",
            scope='{"scope":{"type":"runtime_operation","operation_id":"ö"}}',
            identity='{"identity":{"type":"custom","key":"k"}}',
        ),
    ),
]
golden = pytest.mark.parametrize(("scope", "identity", "generation", "key_id", "text", "stored"), GOLDEN)
TEXT: Final = GOLDEN[0][4]
OF_THE_FUTURE: Final = (
    "lw1.W3sidHlwZSI6InVuaGVhcmRfb2YiLCJzZXNzaW9uX2lkIjoicyJ9LHsidHlwZSI6ImN1c3RvbSIsImtleSI6ImsifSwiMS4wIl0."
    "Zlc4oHXQaCOGpPNK-hdG_mDT3d6VNwQdbl0VVF0FulQ"
)
"""A genuine key with an unknown kind of scope."""
_ANYTHING: Final[Any] = {1, 2}
ROW: Final = WaitRow(
    key_id="a" * 64,
    scope='{"scope":{"type":"process","process_id":"p"}}',
    identity='{"identity":{"type":"custom","key":"k"}}',
    deadline_ms=20,
    resolution='{"resolution":{"status":"ok","value":[1]}}',
    created_at_ms=10,
    resolved_at_ms=15,
)


@golden
def test_keys_are_the_golden_ones(
    scope: ExecutionScope, identity: WaitIdentity, generation: str, key_id: str, text: str, stored: StoredKey
) -> None:
    """A key depends on the secret, the scope, the wait and the generation, and decodes to them."""
    key = sign_key(SECRET, scope, identity, generation)
    assert key == WaitKey(scope=scope, identity=identity, generation=generation, key_id=key_id, text=text)
    assert verify_key(SECRET, key) == verify_key(SECRET, text) == stored


def test_another_secret_signs_otherwise() -> None:
    """The id of a key is the same under every secret; its signature differs."""
    scope, identity, generation, key_id, text, _ = GOLDEN[0]
    other = sign_key(b"x" * 32, scope, identity, generation)
    assert other.key_id == key_id
    assert other.text.rpartition(".")[0] == text.rpartition(".")[0]
    assert other.text != text
    assert verify_key(b"x" * 32, text) is None
    assert verify_key(SECRET, other.text) is None


@pytest.mark.parametrize("place", range(len(TEXT)))
def test_every_letter_counts(place: int) -> None:
    """No letter can be replaced, even where another encodes the same bytes."""
    for letter in "ABab01-_.=":
        changed = TEXT[:place] + letter + TEXT[place + 1 :]
        assert (verify_key(SECRET, changed) is not None) == (changed == TEXT)


def test_the_letters_that_carry_no_bits_count_too() -> None:
    """A payload whose last letter differs only in unused bits is refused."""
    version, payload, signature = TEXT.split(".")
    same = [
        letter
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        if base64.urlsafe_b64decode(payload[:-1] + letter + "==") == base64.urlsafe_b64decode(payload + "==")
    ]
    assert len(same) == 16
    accepted = [each for each in same if verify_key(SECRET, f"{version}.{payload[:-1]}{each}.{signature}")]
    assert accepted == [payload[-1]]


@given(st.text())
def test_no_text_is_a_key_by_chance(text: str) -> None:
    """Any text is refused and none crashes."""
    assert verify_key(SECRET, text) is None


@given(st.binary(), st.binary(min_size=32, max_size=32))
def test_no_signed_looking_text_is_a_key_by_chance(payload: bytes, signature: bytes) -> None:
    """Texts of the right form are refused, whatever their content."""
    parts = [base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (payload, signature)]
    assert verify_key(SECRET, "lw1." + ".".join(parts)) is None


@given(st.integers(0, len(TEXT)), st.integers(0, len(TEXT)), st.text(max_size=3))
def test_no_change_of_a_key_is_a_key(start: int, end: int, insert: str) -> None:
    """With anything cut out or inserted, only the exact text is valid."""
    changed = TEXT[:start] + insert + TEXT[end:]
    assert (verify_key(SECRET, changed) is not None) == (changed == TEXT)


@pytest.mark.parametrize("payload", ["A", "AAAAA", "A" * MAX_KEY_LENGTH])
def test_texts_of_impossible_length_are_refused(payload: str) -> None:
    """No encoding has this number of letters, and no key has so many."""
    assert verify_key(SECRET, f"lw1.{payload}.{'A' * 43}") is None


def test_the_longest_key_is_within_the_limit() -> None:
    """Ids of maximum length, in letters of the most bytes, still fit."""
    longest = "\x01" * 255
    key = sign_key(
        SECRET,
        TurnScope(session_id=longest, turn_id=longest),
        SignalIdentity(process_id=longest, signal_name=longest, ordinal=2**63 - 1),
        f"{2**63 - 1}.{2**63 - 1}",
    )
    assert len(key.text) < MAX_KEY_LENGTH
    assert verify_key(SECRET, key) is not None


def test_a_text_beyond_the_limit_is_not_read() -> None:
    """A text of the maximum length is a key if it is signed; a longer one is refused, signed or not."""

    def unpadded(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    start, end = b'[{"type":"runtime_operation","operation_id":"o"},{"type":"custom","key":"', b'"},"0"]'
    for size, length in ((12_252, 16_384), (12_255, 16_388)):
        payload = start + b"x" * (size - len(start) - len(end)) + end
        key_id = hashlib.sha256(b"lash.wait.id.v1\0" + payload).hexdigest()
        signature = hmac.digest(SECRET, b"lash.wait.signature.v1\0" + key_id.encode(), "sha256")
        text = f"lw1.{unpadded(payload)}.{unpadded(signature)}"
        assert len(text) == length
        assert (verify_key(SECRET, text) is not None) == (length == 16_384)


def test_a_key_of_the_future_is_unknown() -> None:
    """A genuine key of a kind that this version does not know is refused like any other."""
    assert verify_key(SECRET, OF_THE_FUTURE) is None


@pytest.mark.parametrize("field", WaitKey.__struct_fields__)
def test_every_field_must_say_what_the_text_says(field: str) -> None:
    """Every field of a key must match its text."""
    keys = [sign_key(SECRET, *each[:3]) for each in GOLDEN[:2]]
    assert verify_key(SECRET, msgspec.structs.replace(keys[0], **{field: getattr(keys[1], field)})) is None


def test_generations() -> None:
    """Sessions have one per life and revocation, processes one per life, operations just one."""
    assert generation_of(SessionLife(7, 2)) == "7.2"
    assert generation_of(12) == "12"
    assert generation_of(None) == "0"


@pytest.mark.parametrize("bad", [None, "k", {"type": "custom"}, TurnScope(session_id="s", turn_id="t")])
def test_what_is_no_identity_is_refused(bad: object) -> None:
    """A value of another type is refused."""
    with pytest.raises(InvalidInput, match="identity"):
        check_wait_identity(bad)


@pytest.mark.parametrize(
    ("identity", "field"),
    [
        (ToolCompletion(tool_call_id=" "), "tool_call_id"),
        (CustomIdentity(key=""), "key"),
        (msgspec.structs.replace(SIGNAL, process_id="\0"), "process_id"),
        (msgspec.structs.replace(SIGNAL, signal_name="x" * 256), "signal_name"),
        (msgspec.structs.replace(SIGNAL, ordinal=0), "ordinal"),
        (msgspec.structs.replace(SIGNAL, ordinal=2**63), "ordinal"),
    ],
)
def test_bad_parts_of_an_identity_are_refused(identity: WaitIdentity, field: str) -> None:
    """Blank parts and the ordinal 0 are refused; the message names the field."""
    with pytest.raises(InvalidInput, match=f"identity.{field}"):
        check_wait_identity(identity)
    with pytest.raises(InvalidInput, match=f"identity.{field}"):
        sign_key(SECRET, OperationScope(operation_id="o"), identity, "0")


def test_the_first_signal_has_the_ordinal_1() -> None:
    """Signals are counted from one."""
    first = msgspec.structs.replace(SIGNAL, ordinal=1)
    assert check_wait_identity(first) == first


def test_arguments_are_checked() -> None:
    """Valid keys, times and cursors pass, others are refused."""
    assert (check_key("text"), check_timeout(None), check_timeout(0), check_after(None)) == ("text", None, 0, "")
    assert check_after("a" * 64) == "a" * 64
    for check, bad in ((check_key, b"text"), (check_timeout, -1), (check_timeout, 0.5), (check_after, "x")):
        with pytest.raises(InvalidInput):
            check(bad)


@pytest.mark.parametrize(
    ("resolution", "text"),
    [
        (Resolved(), '{"resolution":{"status":"ok"}}'),
        (Resolved(value={"a": [1, None]}), '{"resolution":{"status":"ok","value":{"a":[1,null]}}}'),
        (Rejected(code="c", message=""), '{"resolution":{"status":"err","code":"c","message":""}}'),
        (Rejected(code="c", message="m", raw=1), '{"resolution":{"status":"err","code":"c","message":"m","raw":1}}'),
        (TimedOut(), '{"resolution":{"status":"timeout"}}'),
        (Cancelled(), '{"resolution":{"status":"cancelled"}}'),
    ],
)
def test_resolutions_are_stored_and_read(resolution: Resolution, text: str) -> None:
    """Every kind of resolution decodes unchanged."""
    assert encode_resolution(resolution) == text
    assert decode_resolution(text) == resolution


def test_the_timeout_is_a_resolution() -> None:
    """A timeout is stored as a resolution."""
    assert decode_resolution(TIMED_OUT) == TimedOut()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (None, "expected Resolved, Rejected, TimedOut or Cancelled, got NoneType"),
        ("ok", "expected Resolved, Rejected, TimedOut or Cancelled, got str"),
        (Accepted(), "expected Resolved, Rejected, TimedOut or Cancelled, got Accepted"),
        (Resolved(value=_ANYTHING), "resolution.value"),
        (Rejected(code="", message="m"), "resolution.code is blank"),
        (Rejected(code="c", message=_ANYTHING), "resolution.message"),
    ],
)
def test_what_is_no_resolution_is_refused(bad: object, why: str) -> None:
    """An invalid resolution is refused with the fault, before anything is written."""
    with pytest.raises(InvalidInput, match=why):
        encode_resolution(bad)


def test_large_resolutions_are_refused() -> None:
    """A resolution of one mebibyte is stored, one more letter is refused."""
    largest = "x" * (2**20 - len('{"resolution":{"status":"ok","value":""}}'))
    assert len(encode_resolution(Resolved(value=largest))) == 2**20
    with pytest.raises(InvalidInput, match="1,048,577 characters"):
        encode_resolution(Resolved(value=largest + "x"))


def test_rows_are_read() -> None:
    """A row decodes to a record; an unreadable one is damage, not absence."""
    record = WaitRecord(
        key_id="a" * 64,
        scope=ProcessScope(process_id="p"),
        identity=CustomIdentity(key="k"),
        deadline_ms=20,
        resolution=Resolved(value=[1]),
        created_at_ms=10,
        resolved_at_ms=15,
    )
    assert decode_wait(ROW) == record
    pending = msgspec.structs.replace(ROW, resolution=None, resolved_at_ms=None)
    assert decode_wait(pending) == msgspec.structs.replace(record, resolution=None, resolved_at_ms=None)
    for field in ("scope", "identity", "resolution"):
        with pytest.raises(CorruptData):
            decode_wait(msgspec.structs.replace(ROW, **{field: "{}"}))


def test_answers() -> None:
    """The first resolution is accepted, later ones get it, and unknown keys get nothing."""
    assert resolve_answer(WaitAnswer(1, lives=True, written=True, row=ROW)) == Accepted()
    told = resolve_answer(WaitAnswer(1, lives=True, written=False, row=ROW))
    assert told == AlreadyResolved(terminal=Resolved(value=[1]))
    assert resolve_answer(WaitAnswer(1, lives=False, written=False, row=None)) == UnknownOrRevoked()
    for row in (None, msgspec.structs.replace(ROW, resolution=None)):
        with pytest.raises(CorruptData):
            resolve_answer(WaitAnswer(1, lives=True, written=False, row=row))


QUESTION: Final = Question(text="Sure?", schema={"type": "boolean"})


def test_questions_are_stored_and_read() -> None:
    """A question has a stored form, in which defaults are left out or kept, and returns unchanged."""
    assert encode_question(None) is None
    text = encode_question(QUESTION)
    assert decode_wait(msgspec.structs.replace(ROW, ask=text)).ask == QUESTION
    assert decode_wait(ROW).ask is None
    plain = encode_question(Question(text="t", details="")) or ""
    longest = Question(text="t", details="d" * (MAX_QUESTION_LENGTH - len(plain)))
    assert encode_question(longest) is not None


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("text", "expected a Question, got str"),
        (Question(text=_ANYTHING), "ask.text"),
        (Question(text="t" * 4_097), "ask.text"),
        (Question(text="t", details=_ANYTHING), "ask"),
        (Question(text="t", details="d" * MAX_QUESTION_LENGTH), "at most 65,536"),
        (Question(text="t", schema={"type": "nothing"}), "ask.schema"),
    ],
)
def test_what_is_no_question_is_refused(bad: object, why: str) -> None:
    """The error names the part."""
    with pytest.raises(InvalidInput, match=why):
        encode_question(bad)


def test_only_answers_are_checked() -> None:
    """An answer must match the schema of an open question; rejections and questions without a schema need no match."""
    asked = WaitAnswer(
        1, lives=True, written=False, row=msgspec.structs.replace(ROW, resolution=None, ask=encode_question(QUESTION))
    )
    no, yes = Resolved(value="no"), Resolved(value=True)
    assert (is_checked(yes), is_checked(Cancelled())) == (False, True)
    assert must_check(asked)
    for other in (
        msgspec.structs.replace(asked, lives=False),
        msgspec.structs.replace(asked, written=True),
        msgspec.structs.replace(asked, row=None),
        msgspec.structs.replace(asked, row=msgspec.structs.replace(ROW, ask=encode_question(QUESTION))),
        msgspec.structs.replace(asked, row=msgspec.structs.replace(ROW, resolution=None)),
    ):
        assert not must_check(other)
    check_answer(asked, yes)
    check_answer(asked, Cancelled())
    with pytest.raises(InvalidInput, match="the answer to 'Sure\\?': value: "):
        check_answer(asked, no)
    check_answer(msgspec.structs.replace(asked, row=None), no)
    check_answer(
        msgspec.structs.replace(asked, row=msgspec.structs.replace(ROW, ask=encode_question(Question(text="Sure?")))),
        no,
    )
    check_answer(msgspec.structs.replace(asked, row=ROW), no)
