"""Decisions that need more than the next token.

Line ends have no meaning in the language, so what begins a statement is decided by the tokens that follow.
"""

from __future__ import annotations

from typing import Final

from lash.lang.parse.cursor import Cursor
from lash.lang.parse.tokens import END, EXPRESSION_STARTS, KEYWORDS, NAME, STRING, Token

_ENDS_OF_SCAN: Final = frozenset(
    {"=", ",", ")", "]", "}", END, "@", "submit", "print", "cancel", "if", "else", "for", "in"}
)
"""Tokens that cannot occur between the `?` and the `:` of a conditional expression, outside of brackets."""
_STATEMENT_WORDS: Final = frozenset({"while", "break", "continue", "yield", "wake", "finish", "fail"})
_DECLARING_WORDS: Final = frozenset({"let", "type", "process", "trigger"})


def begins_assignment(cursor: Cursor, distance: int = 0) -> bool:
    """Return whether the token at this distance begins an assignment: a name, steps, and `=`."""
    tokens, position = cursor.tokens, cursor.position + distance
    if position >= len(tokens) or tokens[position].kind != NAME:
        return False
    position += 1
    while True:
        kind = tokens[position].kind
        if kind == "." and tokens[position + 1].kind in (NAME, STRING, *KEYWORDS):
            position += 2
        elif kind == "[":
            position = cursor.after_groups[position]
        else:
            return kind == "="


def begins_contextual_statement(cursor: Cursor, distance: int = 0) -> bool:
    """Return whether a word at this distance begins a statement or a declaration, and is not a variable."""
    word, following = cursor.peek(distance), cursor.peek(distance + 1)
    if word.kind != NAME or begins_assignment(cursor, distance):
        return False
    if word.text in _DECLARING_WORDS:
        return following.kind == NAME
    return word.text in _STATEMENT_WORDS and can_begin_expression(following)


def can_begin_expression(token: Token) -> bool:
    return token.kind in EXPRESSION_STARTS


def is_conditional(cursor: Cursor) -> bool:
    """Return whether the next token, a `?` after an operand, begins a conditional expression.

    It does if a `:` follows outside of brackets in the same statement; it unwraps a result if not.
    """
    if not can_begin_expression(cursor.peek(1)):
        return False
    position = cursor.position + 1
    passed: list[int] = []
    while position not in cursor.conditionals:
        token = cursor.tokens[position]
        if token.kind == ":" or _ends_scan(cursor, position) or _begins_statement(cursor, position):
            cursor.conditionals[position] = token.kind == ":"
        else:
            passed.append(position)
            position = cursor.after_groups.get(position, position + 1)
    found = cursor.conditionals[position]
    cursor.conditionals.update(dict.fromkeys(passed, found))
    return found


def _ends_scan(cursor: Cursor, position: int) -> bool:
    """Return whether a token ends the search; the `for` of a sleep and a keyword that is a field do not."""
    token, before = cursor.tokens[position], cursor.tokens[position - 1]
    if token.kind in KEYWORDS and before.kind == ".":
        return False
    return token.kind in _ENDS_OF_SCAN and not (token.kind == "for" and before.text == "sleep")


def _begins_statement(cursor: Cursor, position: int) -> bool:
    """Return whether a statement begins at this position; a name after a point is a field."""
    if cursor.tokens[position - 1].kind == ".":
        return False
    distance = position - cursor.position
    return begins_assignment(cursor, distance) or begins_contextual_statement(cursor, distance)
