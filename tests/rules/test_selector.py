"""Selection of values from payloads."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lash.errors import InvalidInput
from lash.model.process.event import Constant, Pointer, Present, Selector, Template, WholePayload
from lash.model.value import JSON
from lash.plan.trigger.selector import as_text, check_pointer, check_selector, is_truthy, select

# The document and the pointers of RFC 6901, section 5.
DOCUMENT: JSON = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}
NAMES = st.text("ab/~0", max_size=3)
PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text("ab{}", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)
ABSENT = object()


def walk(steps: list[str], value: JSON) -> object:
    """Look a value up independently: step by step, without escapes."""
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step in [str(index) for index in range(len(value))]:
            value = value[int(step)]
        else:
            return ABSENT
    return value


def escaped(steps: list[str]) -> str:
    return "".join("/" + re.sub("[~/]", lambda match: {"~": "~0", "/": "~1"}[match[0]], step) for step in steps)


@st.composite
def places(draw: st.DrawFn) -> tuple[JSON, list[str]]:
    """Generate a payload and steps into it, most of which exist."""
    payload = draw(PAYLOADS)
    steps: list[str] = []
    value = payload
    while isinstance(value, dict | list) and value and draw(st.booleans()):
        step = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else [*range(len(value))]))
        steps.append(str(step))
        value = value[step]
    return payload, [*steps, *draw(st.lists(NAMES | st.sampled_from(["0", "1", "00", "-"]), max_size=1))]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_pointers_are_those_of_the_standard(path: str, value: JSON) -> None:
    """All examples of RFC 6901 give its results."""
    assert select(Pointer(path=path), DOCUMENT) == value
    assert select(Present(path=path), DOCUMENT) is True


@pytest.mark.parametrize(
    "path",
    [
        *("/bar", "/foo/2", "/foo/-", "/foo/00", "/foo/01", "/foo/+0", "/foo/-1", "/foo/ 0", "/foo/\u0660", "/foo/"),
        *("/foo/0/0", "/m~n/x", "/ /x", "//", "/foo/" + "9" * 19, "/foo/" + "9" * 5_000),
    ],
)
def test_a_pointer_that_leads_nowhere_is_said_so(path: str) -> None:
    """A miss is an error, and so is a signed, zero-padded or very long index."""
    with pytest.raises(InvalidInput, match=r"^payload pointer '/.* did not match$"):
        select(Pointer(path=path), DOCUMENT)
    assert select(Present(path=path), DOCUMENT) is False


def test_a_null_is_there() -> None:
    """A null at a pointer is a value and is present."""
    assert select(Pointer(path="/a"), {"a": None}) is None
    assert select(Present(path="/a"), {"a": None}) is True


def test_an_escaped_escape_is_read_once() -> None:
    """``~01`` means the two characters ``~1``, not a slash."""
    assert select(Pointer(path="/~01"), {"~1": "tilde", "/": "slash"}) == "tilde"


def test_a_tuple_is_a_list() -> None:
    """Tuples are treated as lists, as which they are stored."""
    assert select(Pointer(path="/a/1"), {"a": ("x", "y")}) == "y"


def test_the_payload_and_a_constant_are_taken_as_they_are() -> None:
    """Neither depends on the other."""
    assert select(WholePayload(), {"a": 1}) == {"a": 1}
    assert select(Constant(value=[1, None]), {"a": 1}) == [1, None]


@pytest.mark.parametrize(
    ("template", "fields", "text"),
    [
        ("job #{n} is {state}", {"n": Pointer(path="/n"), "state": Pointer(path="/state")}, "job #7 is done"),
        ("{n}{n}", {"n": Pointer(path="/n")}, "77"),
        ("{all}", {"all": WholePayload()}, '{"n":7,"of":[1.5,null],"state":"done"}'),
        ("{of}", {"of": Pointer(path="/of")}, "[1.5,null]"),
        ("{there}", {"there": Present(path="/n")}, "true"),
        ("{a} {b}", {"a": Constant(value="{b}"), "b": Constant(value="{a}")}, "{b} {a}"),
        ("{unknown} {} {{n}}", {"n": Constant(value=1)}, "{unknown} {} {1}"),
        ("{outer}", {"outer": Template(template="<{n}>", fields={"n": Pointer(path="/n")})}, "<7>"),
        ("plain", {}, "plain"),
    ],
)
def test_a_template_is_filled_in_one_pass(template: str, fields: dict[str, Selector], text: str) -> None:
    """Text is inserted unchanged, other values as compact JSON; braces in a value stay unchanged."""
    payload: JSON = {"state": "done", "n": 7, "of": [1.5, None]}
    assert select(Template(template=template, fields=fields), payload) == text


def test_a_template_with_a_pointer_that_misses_fails() -> None:
    """A template is never filled in part, even if the missing field is not used in it."""
    with pytest.raises(InvalidInput, match="pointer '/a' did not match"):
        select(Template(template="x", fields={"a": Pointer(path="/a")}), {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(("text", "text"), ("", ""), (None, "null"), (True, "true"), (7, "7"), (1.0, "1.0"), ([], "[]")),
        ({"b": 1, "a": {"d": "ä", "c": '"'}}, '{"a":{"c":"\\"","d":"ä"},"b":1}'),
    ],
)
def test_values_become_text(value: JSON, text: str) -> None:
    """Strings are unchanged, other values are compact JSON with sorted keys."""
    assert as_text(value) == text


@pytest.mark.parametrize("value", [True, 0, 0.0, -1, "0", " ", [None], [0], {"": None}])
def test_what_counts_as_true(value: JSON) -> None:
    """Every number counts as true, and so does every non-empty value."""
    assert is_truthy(value) is True


@pytest.mark.parametrize("value", [None, False, "", [], {}])
def test_what_does_not_count_as_true(value: JSON) -> None:
    """Null, false and empty values do not count as true."""
    assert is_truthy(value) is False


@pytest.mark.parametrize("path", ["", "/", "/a/0", "/~x"])
def test_a_pointer_begins_with_a_slash_or_is_empty(path: str) -> None:
    """A valid pointer is accepted."""
    check_pointer(path)


@pytest.mark.parametrize("path", ["a", " /a", "#/a", None, 0])
def test_what_is_no_pointer_is_refused(path: object) -> None:
    """A missing slash is found at registration, not at the first event."""
    with pytest.raises(InvalidInput, match="expected a JSON pointer that starts with a slash"):
        check_pointer(path)


@pytest.mark.parametrize(
    "selector",
    [
        WholePayload(),
        Constant(value="no/pointer"),
        Pointer(path=""),
        Present(path="/a"),
        Template(template="{a}", fields={"a": Template(template="", fields={"b": Pointer(path="/b")})}),
    ],
)
def test_usable_selectors_are_accepted(selector: Selector) -> None:
    """Only pointers and fields can be invalid."""
    check_selector(selector)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (Pointer(path="a"), "starts with a slash, got 'a'"),
        (Present(path="a"), "starts with a slash, got 'a'"),
        (Template(template="", fields={"a": Pointer(path="a")}), "starts with a slash, got 'a'"),
        (
            Template(template="", fields={"a": Template(template="", fields={"b": Present(path="b")})}),
            "starts with a slash, got 'b'",
        ),
        (Template(template="{a{b}}", fields={"a{b}": WholePayload()}), r"without braces, got 'a\{b\}'"),
        (Template(template="{a}}", fields={"a}": WholePayload()}), r"without braces, got 'a\}'"),
        (Template(template="{{a}", fields={"{a": WholePayload()}), r"without braces, got '\{a'"),
    ],
)
def test_unusable_selectors_are_refused(selector: Selector, message: str) -> None:
    """Invalid selectors are found at any depth, and so is a field that could never be filled."""
    with pytest.raises(InvalidInput, match=message):
        check_selector(selector)


@given(places())
def test_pointers_agree_with_a_walk_by_steps(place: tuple[JSON, list[str]]) -> None:
    """A pointer finds exactly what a walk step by step finds."""
    payload, steps = place
    found = walk(steps, payload)
    assert select(Present(path=escaped(steps)), payload) is (found is not ABSENT)
    if found is not ABSENT:
        assert select(Pointer(path=escaped(steps)), payload) == found


@given(
    st.lists(st.sampled_from(["{a}", "{b}", "{", "}", "x", "{}"]), max_size=8),
    st.dictionaries(st.sampled_from("ab"), PAYLOADS, min_size=2),
)
def test_templates_agree_with_filling_piece_by_piece(pieces: list[str], payload: dict[str, JSON]) -> None:
    """Splitting the text at its fields and filling each alone gives the same text."""
    template = "".join(pieces)
    expected = ""
    for piece in re.split(r"(\{[ab]\})", template):
        value = payload[piece[1]] if piece in ("{a}", "{b}") else piece
        expected += value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    fields: dict[str, Selector] = {name: Pointer(path="/" + name) for name in payload}
    assert select(Template(template=template, fields=fields), payload) == expected
