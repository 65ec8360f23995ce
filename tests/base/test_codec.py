"""A value that encode accepts comes back unchanged; any other is refused with its path."""

import dataclasses
import datetime
import decimal
import enum
import hashlib
import json
import math
import uuid

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lash.base.codec import canonical, content_hash, decode, encode
from lash.errors import CorruptData, InvalidInput
from lash.model.value import JSON, Count, Timestamp, Value

NOON = datetime.datetime(2025, 6, 1, 12, tzinfo=datetime.UTC)


class Box(Value, frozen=True, kw_only=True):
    """One field of each kind that the model has."""

    body: JSON = None
    count: Count = 0
    labels: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    at: Timestamp | None = None


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


def nested(levels: int, innermost: object = 1) -> object:
    value = innermost
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


def refused(value: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        encode(value, Box, "box")
    return str(caught.value)


def test_a_value_becomes_compact_text_without_its_defaults() -> None:
    """Fields are in the order of their definition, without white space or escaped letters."""
    box = Box(body={"b": [1, 2.5, None, True], "a": "é\n"}, count=2, at=NOON)
    assert (
        encode(box, Box, "box") == '{"body":{"b":[1,2.5,null,true],"a":"é\\n"},"count":2,"at":"2025-06-01T12:00:00Z"}'
    )
    assert encode(Box(), Box, "box") == "{}"


plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(plain_json)
def test_plain_json_comes_back_as_it_was(value: object) -> None:
    """Every JSON value is accepted, comes back with its types, and is readable by any JSON reader."""
    text = encode(Box(body=value), Box, "box")  # type: ignore[arg-type]
    back = decode(text, Box, "box").body
    assert repr(back) == repr(value)
    assert repr(json.loads(text).get("body")) == repr(value)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(max_size=3)
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC))
    | st.decimals()
    | st.uuids(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=3) | st.integers(), children, max_size=3)
        | st.frozensets(st.text(max_size=2), max_size=2)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(anything)
def test_whatever_is_accepted_comes_back_equal(value: object) -> None:
    """A value is either refused when it is written, or comes back unchanged."""
    try:
        text = encode(Box(body=value), Box, "box")  # type: ignore[arg-type]
    except InvalidInput:
        return
    assert decode(text, Box, "box").body == value


@pytest.mark.parametrize(
    "value",
    [
        Box(body=2**63 - 1),
        Box(body=-(2**63)),
        Box(body="1234567890123456789012345"),
        Box(body=0.1234567890123456789),
        Box(body=[[]] * 200),
        Box(labels=("a", "b"), hidden=frozenset({"a", "b", "c"}), at=NOON),
        Box(at=datetime.datetime(2025, 6, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=5, minutes=45)))),
    ],
)
def test_what_only_looks_suspicious_is_accepted(value: Box) -> None:
    """The largest integers, long digits in text and wide values are stored like any other."""
    assert decode(encode(value, Box, "box"), Box, "box") == value


def test_negative_zero_keeps_its_sign() -> None:
    """Floats come back bit for bit."""
    back = decode(encode(Box(body=-0.0), Box, "box"), Box, "box").body
    assert isinstance(back, float)
    assert math.copysign(1, back) == -1


def test_tuples_become_lists_and_enumerations_their_text() -> None:
    """Only the two lossless conversions are made."""
    assert decode(encode(Box(body=(1, {"a": (2,)})), Box, "box"), Box, "box").body == [1, {"a": [2]}]  # type: ignore[arg-type]
    assert decode(encode(Box(body=Colour.RED), Box, "box"), Box, "box").body == "red"


def test_a_list_is_taken_for_a_typed_tuple() -> None:
    """A list in a field declared as a tuple comes back as a tuple."""
    assert decode(encode(Box(labels=["a"]), Box, "box"), Box, "box").labels == ("a",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"a": [math.nan]}, "box.body.a[0] is nan, which JSON cannot represent"),
        ({"a": [math.inf]}, "box.body.a[0] is inf, which JSON cannot represent"),
        (-math.inf, "box.body is -inf, which JSON cannot represent"),
        ({"a": 2**63}, "box.body.a is an integer beyond 64 bits; send it as text"),
        ([0, -(2**63) - 1], "box.body[1] is an integer beyond 64 bits; send it as text"),
        (10**30, "box.body is an integer beyond 64 bits; send it as text"),
        ({"a": {1: 2}}, "box.body.a has a key that is not text: 1"),
        ({None: 2}, "box.body has a key that is not text: None"),
        ({b"k": 2}, "box.body has a key that is not text: b'k'"),
        ([b"x"], "box.body[0] is of type bytes, which is not plain JSON"),
        ({"a": {1, 2}}, "box.body.a is of type set, which is not plain JSON"),
        ([object()], "box.body[0] is of type object, which is not plain JSON"),
        ({"a": Point(1)}, "box.body.a is of type Point, which is not plain JSON"),
        (decimal.Decimal("1.5"), "box.body is of type Decimal, which is not plain JSON"),
        (uuid.UUID(int=1), "box.body is of type UUID, which is not plain JSON"),
        (datetime.date(2025, 6, 1), "box.body is of type date, which is not plain JSON"),
        ({"a": frozenset({"x"})}, "box.body.a is of type frozenset and would be read back as ['x']"),
        ({"a": [NOON]}, "box.body.a[0] is of type datetime and would be read back as '2025-06-01T12:00:00Z'"),
        ({"a": Box(count=1)}, "box.body.a is of type Box and would be read back as {'count': 1}"),
    ],
)
def test_what_json_cannot_carry_is_refused_by_its_path(body: JSON, message: str) -> None:
    """Nothing is rounded, dropped or converted on the way."""
    assert refused(Box(body=body)) == message


@pytest.mark.parametrize("body", ["\ud800", {"a": "x\udfff"}, {"\ud800": 1}])
def test_a_lone_surrogate_is_refused(body: JSON) -> None:
    """A lone surrogate is refused in values and in keys."""
    assert refused(Box(body=body)) == "box contains a lone surrogate"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Box(count=-1), "$.count"),
        (Box(count="1"), "$.count"),  # type: ignore[arg-type]
        (Box(count=True), "$.count"),
        (Box(count=1.5), "$.count"),  # type: ignore[arg-type]
        (Box(labels="abc"), "$.labels"),  # type: ignore[arg-type]
        (Box(labels=("a", 1)), "$.labels[1]"),  # type: ignore[arg-type]
        (Box(at=datetime.datetime(2025, 6, 1)), "$.at"),  # noqa: DTZ001
        ({"count": 1, "labels": 7}, "$.labels"),
    ],
)
def test_a_wrong_type_in_a_typed_field_is_refused_by_its_path(value: object, path: str) -> None:
    """The path in the error names the field."""
    message = refused(value)
    assert message.startswith("box: ")
    assert f"`{path}`" in message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Box(at="2025-06-01T12:00:00Z"), "box.at is of type str and would be read back as datetime"),  # type: ignore[arg-type]
        ({"count": 1}, "box is of type dict and would be read back as Box"),
    ],
)
def test_the_text_of_a_typed_value_is_not_the_value(value: object, message: str) -> None:
    """Encoded text is refused where a typed value is expected."""
    assert refused(value).startswith(message)


def test_a_zone_that_does_not_fit_is_refused() -> None:
    """A zone with odd seconds is refused, since rounding would change the moment."""
    odd = datetime.timezone(datetime.timedelta(hours=5, minutes=53, seconds=28))
    assert refused(Box(at=datetime.datetime(2025, 6, 1, tzinfo=odd))).startswith(
        "box.at is of type datetime and would be"
    )


def test_nesting_is_accepted_up_to_the_limit() -> None:
    """A value of a hundred levels, the record included, comes back."""
    deepest = Box(body=nested(99))  # type: ignore[arg-type]
    assert decode(encode(deepest, Box, "box"), Box, "box") == deepest
    emptiest = Box(body=nested(98, []))  # type: ignore[arg-type]
    assert decode(encode(emptiest, Box, "box"), Box, "box") == emptiest


@pytest.mark.parametrize("innermost", [1, [], {}])
@pytest.mark.parametrize("levels", [100, 150, 900, 10_000])
def test_nesting_beyond_the_limit_is_refused(levels: int, innermost: object) -> None:
    """One more level is refused, and so are ten thousand, without a RecursionError; empty levels count."""
    outer = levels if innermost == 1 else levels - 1
    assert refused(Box(body=nested(outer, innermost))) == "box is nested more than 100 levels deep"  # type: ignore[arg-type]


def test_a_value_that_contains_itself_is_refused() -> None:
    """A cyclic value is refused."""
    circle: list[object] = []
    circle.append(circle)
    assert refused(Box(body=circle)) == "box is nested more than 100 levels deep"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"count":-1}',
        '{"count":"x"}',
        '{"labels":7}',
        '{"at":"2025-06-01T12:00:00"}',
        "{}x",
        b'{"body":"\xff"}',
    ],
)
def test_stored_text_that_cannot_be_read_is_corrupt(text: str | bytes) -> None:
    """The error names the record, and has the decoder's error as its cause."""
    with pytest.raises(CorruptData, match="the box cannot be read") as caught:
        decode(text, Box, "the box")
    assert caught.value.__cause__ is not None


def test_stored_text_of_any_depth_is_corrupt_not_a_crash() -> None:
    """A deeply nested damaged row does not exhaust the stack."""
    with pytest.raises(CorruptData):
        decode('{"body":' + "[" * 100_000, Box, "the box")


def test_unknown_fields_of_an_open_record_are_ignored() -> None:
    """A record written by a newer version can be read."""
    assert decode('{"count":1,"later":true}', Box, "box") == Box(count=1)


def test_the_canonical_text_does_not_depend_on_the_order_of_keys_or_sets() -> None:
    """Keys and members are sorted, fields stay in the order of their definition."""
    first = Box(body={"b": 1, "a": {"d": 1, "c": 2}}, hidden=frozenset({"y", "x"}))
    second = Box(body={"a": {"c": 2, "d": 1}, "b": 1}, hidden=frozenset({"x", "y"}))
    assert canonical(first) == b'{"body":{"a":{"c":2,"d":1},"b":1},"hidden":["x","y"]}'
    assert canonical(second) == canonical(first)


@pytest.mark.parametrize("content", [b"", b"abc", bytes(range(256)) * 40])
def test_the_content_hash_is_sha_256(content: bytes) -> None:
    """The hash is lowercase hex over the unchanged bytes."""
    assert content_hash(content) == hashlib.sha256(content).hexdigest()


def test_any_shape_can_be_named() -> None:
    """Types other than records can be decoded too."""
    assert decode(encode([1, 2], list[int], "list"), list[int], "list") == [1, 2]
    with pytest.raises(InvalidInput, match="list: "):
        encode(["x"], list[int], "list")


def test_text_is_written_as_utf8_that_other_readers_understand() -> None:
    """NUL, quotes and letters outside the basic plane are read by another reader."""
    text = encode(Box(body='\0"\\😀'), Box, "box")
    assert json.loads(text) == {"body": '\0"\\😀'}
    assert msgspec.json.decode(text) == {"body": '\0"\\😀'}
