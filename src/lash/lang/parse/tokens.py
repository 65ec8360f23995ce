"""Tokens, and the words of the language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lash.lang.syntax.span import Span

KEYWORDS: Final = (
    "if",
    "else",
    "for",
    "in",
    "await",
    "cancel",
    "submit",
    "print",
    "call",
    "and",
    "or",
    "not",
    "true",
    "false",
    "null",
)
"""Words that are never names. ``call`` is reserved and always an error."""

CONTEXTUAL_WORDS: Final = (
    "type",
    "process",
    "trigger",
    "signals",
    "label",
    "let",
    "while",
    "break",
    "continue",
    "yield",
    "wake",
    "finish",
    "fail",
    "start",
    "sleep",
    "until",
    "wait_signal",
    "signal_run",
    "Type",
    "parallel",
)
"""Words with a meaning at certain places, and names elsewhere."""

OPERATORS: Final = ("==", "!=", "&&", "||", "<=", ">=", *"{}()[],:@?.!=|<>+-*/%")
"""Operators and punctuation; longer ones are tried first."""

NAME, NUMBER, STRING, END = "name", "number", "string", "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token. The kind of a keyword or an operator is its text."""

    kind: str
    text: str
    span: Span
    value: str | float | None = None

    def __str__(self) -> str:
        if self.kind == END:
            return "the end of the program"
        return "a string" if self.kind == STRING else f"`{self.text}`"


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its mark, without the end of the line."""

    text: str
    span: Span


EXPRESSION_STARTS: Final = frozenset(
    {NAME, NUMBER, STRING, "null", "true", "false", "(", "[", "{", "-", "!", "not", "await"}
)
"""Kinds of tokens that can begin an expression."""
