"""Values: coercions, text, comparison, and the limits that every value has."""

from __future__ import annotations

import math

import pytest

from lash.lang.machine.frames import value_from_json, value_to_json
from lash.lang.values import operators
from lash.lang.values.convert import as_number, display, from_json, number_text, to_json
from lash.lang.values.fault import Fault, FaultKind
from lash.lang.values.value import MAX_DEPTH, Record, Resource, Value, equal, make_list, make_record, truthy
from lash.model.value import JSON


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e21, "1000000000000000000000"),
        (1e-7, "0.0000001"),
        (1.5e300, "15" + "0" * 299),
        (2.0**63, "9223372036854775808"),
        (123456.789, "123456.789"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_are_shown_without_an_exponent(number: float, text: str) -> None:
    """A number is shown with the fewest digits that mean it."""
    assert number_text(number) == text


@pytest.mark.parametrize(
    ("plain", "is_true"),
    [(None, False), (False, False), (0, False), ("", False), ([], True), ({}, True), (0.5, True), ("0", True)],
)
def test_empty_containers_are_true(plain: JSON, is_true: bool) -> None:  # noqa: FBT001 (a parameter of the case)
    """Null, false, zero and the empty string are false; everything else is true."""
    assert truthy(from_json(plain)) is is_true
    assert not truthy(math.nan)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (1, 2, 3),
        ("a", 1, "a1"),
        (1.5, "a", "1.5a"),
        ("x", [1, {"b": 2, "a": None}], 'x[1,{"a":null,"b":2}]'),
        ([1], [2], [1, 2]),
        (True, None, 1),
        (None, None, 0),
    ],
)
def test_plus_adds_or_joins(left: JSON, right: JSON, result: JSON) -> None:
    """A string on either side makes text; two lists make a list; the rest are numbers."""
    assert to_json(operators.add(from_json(left), from_json(right))) == result


def test_division_by_zero_is_not_an_error() -> None:
    """It gives infinities or NaN, as doubles do."""
    assert operators.divide(1.0, 0.0) == math.inf
    assert operators.divide(-1.0, 0.0) == -math.inf
    assert operators.divide(1.0, -0.0) == -math.inf
    for value in (operators.divide(0.0, 0.0), operators.modulo(1.0, 0.0), operators.modulo(math.inf, 2.0)):
        assert isinstance(value, float)
        assert math.isnan(value)
    assert operators.modulo(-7.0, 3.0) == -1.0, "the sign is that of the dividend"


def test_values_of_different_kinds_differ() -> None:
    """Equality is by kind and content; the order of fields does not count."""
    assert not equal(1.0, "1")
    assert not equal(1.0, True)
    assert not equal(None, False)
    assert equal(make_record({"a": 1.0, "b": 2.0}), make_record({"b": 2.0, "a": 1.0}))
    assert not equal(make_list([1.0, 2.0]), make_list([2.0, 1.0]))
    assert not equal(math.nan, math.nan)


def test_text_is_read_as_a_number_only_if_it_is_one() -> None:
    """White space is ignored, the empty text is zero, and anything else is an error."""
    assert as_number(" 2.5 ", "x") == 2.5
    assert as_number("", "x") == 0
    for text in ("two", "1_000", "0x10", "nan", "inf", "\N{ARABIC-INDIC DIGIT ONE}"):
        with pytest.raises(Fault, match="needs a number"):
            as_number(text, "x")


def test_reads_of_what_is_missing_are_null() -> None:
    """A missing field, an index out of range, and parts of null are null; a part of a scalar is an error."""
    record, items = from_json({"a": 1}), from_json([1, 2, 3])
    assert operators.read_field(record, "b") is None
    assert operators.read_field(None, "b") is None
    assert operators.read_index(items, -1.0) == 3
    assert operators.read_index(items, 3.0) is None
    assert operators.read_index("héllo", 1.0) == "é"
    with pytest.raises(Fault, match="needs a record, got number"):
        operators.read_field(1.0, "b")
    with pytest.raises(Fault, match="an index needs an integer"):
        operators.read_index(items, 0.5)


def test_an_assignment_copies_the_path_and_shares_the_rest() -> None:
    """The old value keeps its content."""
    old = from_json({"a": {"b": [1, 2]}, "c": 1})
    new = operators.write_path(old, ["a", "b", -1.0], "x")
    assert to_json(new) == {"a": {"b": [1, "x"]}, "c": 1}
    assert to_json(old) == {"a": {"b": [1, 2]}, "c": 1}
    with pytest.raises(Fault, match="below the missing field `d`"):
        operators.write_path(old, ["d", "e"], 1.0)
    with pytest.raises(Fault, match="index 2 is not in this list"):
        operators.write_path(old, ["a", "b", 2.0], 1.0)
    with pytest.raises(Fault, match="cannot assign to a part of a string"):
        operators.write_path("abc", [0.0], "x")


def test_a_value_that_contains_another_twice_weighs_twice_as_much() -> None:
    """A list that doubles itself reaches the limit after a few rounds, before anything has walked it."""

    def double() -> None:
        value: Value = "x" * 100
        for _ in range(64):
            value = make_list([value, value])

    with pytest.raises(Fault, match="a list has at most") as raised:
        double()
    assert raised.value.kind is FaultKind.LIMIT


def test_values_are_nested_to_a_limit() -> None:
    """A value that could not be stored cannot be made."""

    def nest(levels: int) -> Value:
        value: Value = None
        for _ in range(levels):
            value = make_record({"next": value})
        return value

    assert isinstance(nest(MAX_DEPTH), Record)
    with pytest.raises(Fault, match=f"nested at most {MAX_DEPTH} levels"):
        nest(MAX_DEPTH + 1)


def test_the_text_of_a_container_has_a_limit() -> None:
    """Numbers without exponents are long: the text is refused while it is made."""
    with pytest.raises(Fault, match="at most 1,000,000 characters"):
        display(make_list([1e300] * 10_000))


def test_the_stored_form_of_a_value_is_exact() -> None:
    """The order of fields, negative zero, NaN and authorities survive; plain JSON keeps none of them."""
    value = make_record({"b": make_list([-0.0, math.inf]), "a": Resource("Mail", "mail.work"), "c": None})
    back = value_from_json(value_to_json(value))
    assert equal(back, value)
    assert list(getattr(back, "fields", {})) == ["b", "a", "c"]
    assert to_json(value) == {
        "b": [0, None],
        "a": {"__resource__": True, "type": "Mail", "alias": "mail.work"},
        "c": None,
    }
    forged = from_json({"__resource__": True, "type": "Mail", "alias": "mail.work"})
    assert not isinstance(forged, Resource), "an authority cannot be made of JSON"
