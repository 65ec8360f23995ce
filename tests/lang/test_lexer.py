"""Tokens, and the errors of texts that have none."""

from __future__ import annotations

import pytest

from lash.lang.diagnostic import ProgramError
from lash.lang.parse.lexer import lex


def values(source: str) -> list[object]:
    return [token.text if token.value is None else token.value for token in lex(source).tokens[:-1]]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a ;\n\tb", ["a", "b"]),
        ("a # one\nb // two", ["a", "b"]),
        ("12 3.5 7.", [12.0, 3.5, 7.0]),
        (r'"a\n\r\t\\\"\q"', ['a\n\r\t\\"q']),
        (r"'it\'s'", ["it's"]),
        ('"""a "quoted" line\nand more"""', ['a "quoted" line\nand more']),
        (r'r"\n" R' + r"'''\'''", ["\\n", "\\"]),
        ('"# no comment"', ["# no comment"]),
        ("a<=b!=c&&d||e->f", ["a", "<=", "b", "!=", "c", "&&", "d", "||", "e", "-", ">", "f"]),
        ("", []),
    ],
)
def test_tokens(source: str, expected: list[object]) -> None:
    """Separators and comments vanish; strings and numbers have their values."""
    assert values(source) == expected


@pytest.mark.parametrize(
    ("source", "kind", "start"),
    [
        ("x = é", "unexpected-char", 4),
        ("a & b", "unexpected-char", 2),
        ("a \ud800", "unexpected-char", 2),
        ('x = "abc', "unterminated-string", 4),
        ('x = "abc\\', "unterminated-string", 4),
        ("1.2.3", "bad-number", 0),
        ("1e5", "bad-number", 0),
        ("0x10", "bad-number", 0),
        ("1_000", "bad-number", 0),
        ("9" * 400, "bad-number", 0),
    ],
)
def test_errors(source: str, kind: str, start: int) -> None:
    """An error has a kind and the place where it begins; that of an open string is its quote."""
    with pytest.raises(ProgramError) as caught:
        lex(source)
    assert caught.value.kind == kind
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.start == start


def test_the_largest_number_is_allowed() -> None:
    """Digits up to the largest double are a number, digits beyond it are an error."""
    largest = str(int(1.7976931348623157e308))
    assert values(largest) == [1.7976931348623157e308]
