"""Builtins: what each returns, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from lash.lang.values.builtins import BUILTINS
from lash.lang.values.convert import from_json, to_json
from lash.lang.values.fault import Fault

_SHAPE = {
    "$lash_type": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "sizes": {"type": "array", "items": {"type": "integer"}},
            "risk": {"type": "string", "enum": ["low", "high"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
}


def call(name: str, *arguments: Any) -> Any:  # noqa: ANN401 (plain JSON)
    return to_json(BUILTINS[name].call([from_json(each) for each in arguments]))


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("len", ("héé",), 3),
        ("len", (None,), 0),
        ("len", ({"a": 1},), 1),
        ("empty", ([],), True),
        ("empty", (None,), True),
        ("empty", ("x",), False),
        ("keys", ({"b": 1, "a": 2},), ["a", "b"]),
        ("values", ({"b": 1, "a": 2},), [2, 1]),
        ("keys", (None,), []),
        ("contains", ("hello", "ell"), True),
        ("contains", ([1, "1"], "1"), True),
        ("contains", ([1], "1"), False),
        ("contains", ({"1": 0}, 1), True),
        ("contains", (None, 1), False),
        ("starts_with", ("hello", "he"), True),
        ("ends_with", (12, 2), True),
        ("trim", ("\u2003 a\x1c \n",), "a\x1c"),
        ("split", ("a,b", ","), ["a", "b"]),
        ("split", ("ab", ""), ["", "a", "b", ""]),
        ("join", (["a", 1, None, True], "-"), "a-1-null-true"),
        ("join", ([], "-"), ""),
        ("find", ("hello", "l"), 2),
        ("find", ("hello", "l", 3), 3),
        ("find", ("hello", "", 5), 5),
        ("find", ("hello", "", 6), None),
        ("find", ("hello", "z"), None),
        ("slice", ("hello", 1, -1), "ell"),
        ("slice", ([1, 2, 3], None, 99), [1, 2, 3]),
        ("slice", ([1, 2, 3], 2, 1), []),
        ("range", (3,), [0, 1, 2]),
        ("range", (5, 0, -2), [5, 3, 1]),
        ("range", (0, 5, -1), []),
        ("range", (2, 2), []),
        ("ceil_div", (7, 2), 4),
        ("ceil_div", (-7, 2), -3),
        ("floor_div", (-7, 2), -4),
        ("push", ([1], [2]), [1, [2]]),
        ("to_string", ({"b": 1.5, "a": [True]},), '{"a":[true],"b":1.5}'),
        ("to_int", ("-2.9",), -2),
        ("to_float", ("2.5",), 2.5),
        ("json_parse", ('{"b":[1,2.5],"a":null}',), {"a": None, "b": [1, 2.5]}),
        ("format", ("{} of {{{}}}", 1, [2]), "1 of {[2]}"),
        ("format", ("{1}{0}{1}", "a", "b"), "bab"),
        ("validate", ({"name": "n", "sizes": [1], "more": 1}, _SHAPE), {"name": "n", "sizes": [1], "more": 1}),
    ],
)
def test_a_builtin_returns(name: str, arguments: tuple[Any, ...], result: object) -> None:
    """Each builtin returns what the language says."""
    assert call(name, *arguments) == result


def test_grep_text_shows_lines_with_places() -> None:
    """Lines end at a line feed only, with or without a carriage return before it."""
    assert call("grep_text", "a\r\nxb\x0bb\nb\n", "b") == [
        {"line": 2, "text": "xb\x0bb", "match": "b", "start": 1, "end": 2},
        {"line": 3, "text": "b", "match": "b", "start": 0, "end": 1},
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("len", (1,), "len needs a string, a list or a record, got number"),
        ("len", (), "len takes 1 argument, got 0"),
        ("find", ("a",), "find takes 2 to 3 arguments, got 1"),
        ("join", ([[1]], ","), "join needs text, got list"),
        ("grep_text", ("a", ""), "not empty"),
        ("range", (1.5,), "range needs an integer, got 1.5"),
        ("range", (0, 1, 0), "a step that is not 0"),
        ("range", (0, 1e300), "range makes at most 1,000,000 numbers"),
        ("ceil_div", (1, 0), "a divisor that is not 0"),
        ("floor_div", (1e400, 2), "needs an integer, got inf"),
        ("push", ("a", 1), "push needs a list, got string"),
        ("json_parse", ("{'a': 1}",), "is not JSON"),
        ("json_parse", ("NaN",), "is not JSON"),
        ("json_parse", ("[" * 5_000 + "]" * 5_000,), "nested"),
        ("format", ("{} {0}", 1), "in a template, not both"),
        ("format", ("{}",), "needs argument 0, and 0 are given"),
        ("format", ("{0}", 1, 2), "does not use argument 1"),
        ("format", ("a } b",), "a single `}`"),
        ("format", (1,), "needs a string as its template, got number"),
        ("validate", ({"sizes": []}, _SHAPE), 'field "name" is missing'),
        ("validate", ({"name": "n", "sizes": [1, "2"]}, _SHAPE), r"\$\.sizes\[1\]: expected integer, got string"),
        ("validate", ({"name": "n", "risk": "mid"}, _SHAPE), r'\$\.risk: expected one of "low", "high", got "mid"'),
        ("validate", ({"name": "n", "note": 1}, _SHAPE), r"\$\.note: expected string or null, got number"),
        ("validate", (1, {"type": "string"}), "validate needs a Type value, got record"),
    ],
)
def test_a_builtin_refuses(name: str, arguments: tuple[Any, ...], message: str) -> None:
    """Wrong numbers and kinds of arguments are errors that name the builtin."""
    with pytest.raises(Fault, match=message):
        call(name, *arguments)


def test_text_that_would_be_too_long_is_not_made() -> None:
    """A separator or a template cannot multiply text beyond the limit."""
    long = "x" * 900_000
    for name, arguments in (("join", (["a"] * 4, long)), ("format", ("{0}{0}", long)), ("split", ("x" * 999_999, ""))):
        with pytest.raises(Fault, match="at most 1,000,000"):
            call(name, *arguments)


def test_every_builtin_says_what_it_does() -> None:
    """The table is the reference: names, signatures and one line of help."""
    for name, builtin in BUILTINS.items():
        assert builtin.signature.startswith(f"{name}(")
        assert builtin.help.endswith(".")
