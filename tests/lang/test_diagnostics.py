"""The texts of diagnostics, as a model reads them."""

from __future__ import annotations

import pickle

import pytest

from lash.lang.diagnostic import Diagnostic, ProgramError, render
from lash.lang.parse import parse
from lash.lang.syntax.span import Span


def test_the_whole_text() -> None:
    """A diagnostic has a sentence, a place, the line with a caret, and a hint."""
    with pytest.raises(ProgramError) as caught:
        parse("x = 1\ny = 1e5 + 2\n")
    assert str(caught.value) == (
        "`1e5` is not a number\n"
        "--> line 2, column 5\n"
        "2 | y = 1e5 + 2\n"
        "        ^~~\n"
        "hint: numbers are digits with at most one point, without sign, exponent, underscore or hex"
    )


def test_wide_characters_and_tabs() -> None:
    """The caret is below the place although characters before it are wide, combining or a tab."""
    text = render(Diagnostic("lex", "k", "m", Span(6, 7)), "\t日本é\u0301 !")
    assert text.splitlines()[-1] == " " * (4 + 1 + 4 + 1 + 0 + 1) + "^"


def test_control_characters_are_replaced() -> None:
    """A source line cannot drive the terminal that shows it."""
    text = render(Diagnostic("lex", "k", "m", Span(0, 1)), "a\x1b[31m")
    assert "\x1b" not in text


def test_long_lines_are_cut_around_the_place() -> None:
    """The place is visible in a long line, and so is what is before it."""
    text = render(Diagnostic("lex", "k", "m", Span(500, 503)), "a" * 500 + "BBB" + "c" * 500)
    _, place, line, caret = text.splitlines()
    assert place == "--> line 1, column 501"
    assert len(line) <= 130
    assert line[caret.index("^") : caret.index("^") + 3] == "BBB"


def test_a_place_at_the_end() -> None:
    """An error behind the last character points behind it."""
    with pytest.raises(ProgramError) as caught:
        parse("x = [1,\n2")
    assert "--> line 2, column 2" in str(caught.value)


def test_errors_can_be_pickled() -> None:
    """The error keeps its diagnostic across processes."""
    with pytest.raises(ProgramError) as caught:
        parse("x = ")
    found = pickle.loads(pickle.dumps(caught.value))
    assert (str(found), found.diagnostic) == (str(caught.value), caught.value.diagnostic)
