"""The canonical layout."""

from __future__ import annotations

import pytest

from lash.lang.diagnostic import ProgramError
from lash.lang.parse import parse
from lash.lang.printing.program import format_source, module_text
from lash.lang.printing.words import number_text
from tests.lang.hosts import linked
from tests.lang.test_codec import EVERYTHING


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x=1;y  =  'a'", 'x = 1\ny = "a"\n'),
        ("let x = (((1)))", "x = 1\n"),
        ("if a&&!b{c=1}else if d{}else{e=2}", "if a and not b {\n  c = 1\n} else if d {} else {\n  e = 2\n}\n"),
        ("x = a-(b-c)", "x = a - (b - c)\n"),
        ("x = (a+b)*c", "x = (a + b) * c\n"),
        ("x = (a?b:c)?d:e", "x = (a ? b : c) ? d : e\n"),
        ("x = y\n(z)", "x = y(z)\n"),
        ("process p(a:str)->int{finish 1}x = 1", "process p(a: str) -> int {\n  finish 1\n}\n\nx = 1\n"),
        ("process p() {} type T=str", "process p() {}\n\ntype T = str\n"),
        ('{"a b":1,c:2}', '{ "a b": 1, c: 2 }\n'),
        ("r'a\\b'", '"a\\\\b"\n'),
        ("", ""),
    ],
)
def test_layout(source: str, expected: str) -> None:
    """One program has one layout."""
    assert format_source(source) == expected
    assert format_source(expected) == expected


def test_long_lines_are_broken() -> None:
    """A record, a list or a call that does not fit a line has one item a line."""
    words = ", ".join(f"'{'w' * 12}{n}'" for n in range(9))
    assert format_source(f"x = [{words}]") == ("x = [\n" + "".join(f'  "{"w" * 12}{n}",\n' for n in range(9)) + "]\n")
    text = format_source(f"x = await web.fetch({{ url: 'x', words: [{words}] }})?")
    assert text.startswith('x = await web.fetch({\n  url: "x",\n  words: [\n    "w')
    assert text.endswith("  ],\n})?\n")


def test_comments_and_blank_lines_stay() -> None:
    """No comment is lost, and groups of statements stay apart by one blank line."""
    source = (
        "# head\nx=1 // one\n\n\n# two\nif x { # open\n # in\n y=[1, # inner\n 2]\n\n z=3 }\n"
        "process p() { # p\n finish 1 # done\n # end\n}\n# last"
    )
    assert format_source(source) == (
        "# head\nx = 1  // one\n\n# two\nif x {\n  # open\n  # in\n  y = [1, 2]\n  # inner\n\n  z = 3\n}\n\n"
        "process p() {\n  # p\n  finish 1  # done\n  # end\n}\n# last\n"
    )
    assert format_source(format_source(source)) == format_source(source)


def test_a_stored_module_can_be_read_and_linked_again() -> None:
    """The source text of a module, linked against its host, is the same module."""
    module = linked(EVERYTHING)
    assert linked(module_text(module.artifact)).module_ref == module.module_ref


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0"), (1e21, "1" + "0" * 21), (0.1, "0.1"), (1e-7, "0.0000001"), (1.5e300, None), (5e-324, None)],
)
def test_numbers_have_no_exponent(value: float, expected: str | None) -> None:
    """A number is written so that the lexer reads the same double."""
    text = number_text(value)
    assert expected in (None, text)
    assert "e" not in text
    assert float(text) == value


def test_programs_with_errors_are_not_formatted() -> None:
    """The formatter reports the error of the parser."""
    with pytest.raises(ProgramError, match="wanted a value"):
        format_source("x = ")


def test_statements_stay_apart() -> None:
    """A statement that would continue the one before it is put in parentheses."""
    for source in ("(x)\n(-1)", '(x."a b")\n([])', "x = (y)\n(z)", "(a.b()?)\n(c ? 1 : 2)"):
        assert len(parse(source).main.statements) == 2
        assert parse(format_source(source)) == parse(source)
