"""From source text to tokens."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple, NoReturn

from lash.lang.diagnostic import Diagnostic, ProgramError
from lash.lang.parse.tokens import END, KEYWORDS, NAME, NUMBER, OPERATORS, STRING, Comment, Token
from lash.lang.syntax.span import Span

_SPACE: Final = re.compile(r"[\s;]+")
_COMMENT: Final = re.compile(r"(?:#|//)[^\n]*")
_STRING_START: Final = re.compile(r"([rR]?)(\"\"\"|'''|\"|')")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?")
_NUMBER_TAIL: Final = re.compile(r"[A-Za-z0-9_.]*")
_OPERATOR: Final = re.compile("|".join(map(re.escape, OPERATORS)))
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_MAX_SHOWN: Final = 40
"""Characters of a malformed number that its error quotes."""


class Lexed(NamedTuple):
    """The tokens of a source text, the last of which is its end, and its comments in order."""

    tokens: list[Token]
    comments: list[Comment]


def lex(source: str) -> Lexed:
    """Return the tokens and comments of a source text, or raise ProgramError."""
    lone = _SURROGATE.search(source)
    if lone is not None:
        _fail(source, "unexpected-char", "a lone surrogate is not allowed in a program", lone.start(), lone.end())
    tokens: list[Token] = []
    comments: list[Comment] = []
    position = 0
    while position < len(source):
        if (space := _SPACE.match(source, position)) is not None:
            position = space.end()
        elif (comment := _COMMENT.match(source, position)) is not None:
            comments.append(Comment(comment[0].rstrip(), Span(position, comment.end())))
            position = comment.end()
        else:
            token = _token(source, position)
            tokens.append(token)
            position = token.span.end
    tokens.append(Token(END, "", Span(len(source), len(source))))
    return Lexed(tokens, comments)


def _token(source: str, position: int) -> Token:
    if (start := _STRING_START.match(source, position)) is not None:
        return _string(source, start)
    if (name := _NAME.match(source, position)) is not None:
        kind = name[0] if name[0] in KEYWORDS else NAME
        return Token(kind, name[0], Span(*name.span()))
    if (number := _NUMBER.match(source, position)) is not None:
        return _number(source, number)
    operator = _OPERATOR.match(source, position)
    if operator is None:
        _unexpected(source, position)
    return Token(operator[0], operator[0], Span(*operator.span()))


def _string(source: str, start: re.Match[str]) -> Token:
    raw, quote = bool(start[1]), start[2]
    letters: list[str] = []
    position = start.end()
    while not source.startswith(quote, position):
        if position >= len(source):
            hint = f"close it with {quote}"
            _fail(source, "unterminated-string", "this string is never closed", *start.span(), hint)
        letter = source[position]
        if letter == "\\" and not raw and position + 1 < len(source):
            position += 1
            letter = _ESCAPES.get(source[position], source[position])
        letters.append(letter)
        position += 1
    span = Span(start.start(), position + len(quote))
    return Token(STRING, source[span.start : span.end], span, "".join(letters))


def _number(source: str, match: re.Match[str]) -> Token:
    tail = _NUMBER_TAIL.match(source, match.end())
    end = match.end() if tail is None else tail.end()
    text = source[match.start() : end]
    shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    if end != match.end():
        hint = "numbers are digits with at most one point, without sign, exponent, underscore or hex"
        _fail(source, "bad-number", f"`{shown}` is not a number", match.start(), end, hint)
    value = float(text)
    if math.isinf(value):
        _fail(source, "bad-number", f"`{shown}` is too large for a number", match.start(), end)
    return Token(NUMBER, text, Span(match.start(), end), value)


def _unexpected(source: str, position: int) -> NoReturn:
    letter = source[position]
    hint = "use `and` or `&&`" if letter == "&" else None
    shown = letter if letter.isprintable() else f"U+{ord(letter):04X}"
    _fail(source, "unexpected-char", f"character `{shown}` is not allowed here", position, position + 1, hint)


def _fail(source: str, kind: str, message: str, start: int, end: int, hint: str | None = None) -> NoReturn:
    raise ProgramError(Diagnostic("lex", kind, message, Span(start, end), hint), source)
