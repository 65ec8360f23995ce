"""Parses expressions: operators and what follows an operand."""

from __future__ import annotations

from typing import Final

from lash.lang.parse import primaries
from lash.lang.parse.cursor import Cursor
from lash.lang.parse.lookahead import is_conditional
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import BinaryOperator, Expression

PRECEDENCE: Final[dict[BinaryOperator, int]] = {
    "or": 1,
    "and": 2,
    "equal": 3,
    "not-equal": 3,
    "less": 3,
    "less-equal": 3,
    "greater": 3,
    "greater-equal": 3,
    "add": 4,
    "subtract": 4,
    "multiply": 5,
    "divide": 5,
    "modulo": 5,
}
"""How strongly each operator binds. All are left associative."""

BINARY: Final[dict[str, BinaryOperator]] = {
    "or": "or",
    "||": "or",
    "and": "and",
    "&&": "and",
    "==": "equal",
    "!=": "not-equal",
    "<": "less",
    "<=": "less-equal",
    ">": "greater",
    ">=": "greater-equal",
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "modulo",
}
"""The operator of each token."""


def parse_expression(cursor: Cursor) -> Expression:
    """Parse an expression with all operators, and `condition ? value : value`."""
    cursor.enter()
    start = cursor.token.span
    found = _binary(cursor, 1)
    if cursor.accept("?"):
        then = parse_expression(cursor)
        cursor.expect(":", "`:` and the other value of the conditional")
        found = nodes.If(found, then, parse_expression(cursor), span=cursor.span_from(start))
    cursor.leave()
    return found


def _binary(cursor: Cursor, weakest: int) -> Expression:
    """Parse operators that bind at least this strongly."""
    start = cursor.token.span
    left = _unary(cursor)
    while True:
        operator = BINARY.get(cursor.token.kind)
        if operator is None or PRECEDENCE[operator] < weakest:
            return left
        cursor.advance()
        right = _binary(cursor, PRECEDENCE[operator] + 1)
        left = nodes.Binary(left, operator, right, span=cursor.span_from(start))


def _unary(cursor: Cursor) -> Expression:
    start = cursor.token.span
    operator = cursor.accept("-", "not", "!", "await")
    if operator is None:
        return _postfix(cursor)
    cursor.enter()
    operand = _unary(cursor)
    cursor.leave()
    span = cursor.span_from(start)
    if operator.kind == "await":
        return nodes.Await(operand, span=span)
    return nodes.Unary("negate" if operator.kind == "-" else "not", operand, span=span)


def _postfix(cursor: Cursor) -> Expression:
    """Parse an operand, then fields, operations, indexes and unwraps of it."""
    start = cursor.token.span
    found = primaries.parse_primary(cursor, parse_expression)
    while True:
        if cursor.accept("."):
            found = _field_or_call(cursor, found)
        elif cursor.accept("["):
            index = parse_expression(cursor)
            cursor.expect("]")
            found = nodes.Index(found, index, span=cursor.span_from(start))
        elif cursor.at("?") and not is_conditional(cursor):
            cursor.advance()
            found = nodes.Unwrap(found, span=cursor.span_from(start))
        else:
            return found


def _field_or_call(cursor: Cursor, target: Expression) -> Expression:
    start = target.span or cursor.token.span
    name = cursor.expect_key("a field or an operation")
    if not cursor.at("("):
        return nodes.Field(target, name, span=cursor.span_from(start))
    arguments = primaries.parse_arguments(cursor, parse_expression)
    return nodes.ReceiverCall(target, name, arguments, span=cursor.span_from(start))
