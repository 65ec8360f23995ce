"""Parses operands: literals, names, calls, lists, records, and the words that begin an effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lash.lang.parse.cursor import Cursor
from lash.lang.parse.lookahead import begins_assignment
from lash.lang.parse.tokens import NAME, NUMBER, STRING
from lash.lang.parse.types import parse_object_type
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.span import Span

Parse: TypeAlias = Callable[[Cursor], Expression]
"""The parser of whole expressions, which operands contain."""

_HINTS = {
    "if": "`if` is a statement; inside an expression write `condition ? value : other`",
    "for": "`for` is a statement; inside an expression write a comprehension: `[item for item in items]`",
    "call": "call an operation by its module path, such as `await web.fetch({ url: address })`",
    "submit": "`submit` is a statement of its own",
    "print": "`print` is a statement of its own",
    "cancel": "`cancel` is a statement of its own",
    "@": "a label goes before a statement or a process",
    "&": "use `and`",
}


def parse_primary(cursor: Cursor, parse: Parse) -> Expression:
    """Parse an operand without what may follow it."""
    token = cursor.token
    match token.kind:
        case "null":
            return nodes.Null(span=cursor.advance().span)
        case "true" | "false":
            return nodes.Bool(token.kind == "true", span=cursor.advance().span)
        case kind if kind == NUMBER:
            assert isinstance(token.value, float)
            return nodes.Number(token.value, span=cursor.advance().span)
        case kind if kind == STRING:
            return nodes.String(str(token.value), span=cursor.advance().span)
        case "(":
            return _parenthesised(cursor, parse)
        case "[":
            return _list(cursor, parse)
        case "{":
            return _record(cursor, parse)
        case kind if kind == NAME:
            return _word(cursor, parse)
        case kind if kind in _HINTS:
            raise cursor.unexpected(_HINTS[kind])
        case _:
            raise cursor.expected("a value")


def _parenthesised(cursor: Cursor, parse: Parse) -> Expression:
    cursor.advance()
    found = parse(cursor)
    cursor.expect(")")
    return found


def parse_arguments(cursor: Cursor, parse: Parse) -> tuple[Expression, ...]:
    """Parse arguments in parentheses."""
    cursor.expect("(")
    found = []
    while not cursor.at(")"):
        found.append(parse(cursor))
        if not cursor.accept(","):
            break
    cursor.expect(")", "`,` or `)`")
    return tuple(found)


def _list(cursor: Cursor, parse: Parse) -> Expression:
    start = cursor.advance().span
    items: list[Expression] = []
    while not cursor.at("]"):
        items.append(parse(cursor))
        if len(items) == 1 and cursor.at("for"):
            return _comprehension(cursor, parse, items[0], start)
        if not cursor.accept(","):
            break
    cursor.expect("]", "`,` or `]`")
    return nodes.List(tuple(items), span=cursor.span_from(start))


def _comprehension(cursor: Cursor, parse: Parse, element: Expression, start: Span) -> Expression:
    clauses: list[nodes.Clause] = []
    while not cursor.at("]"):
        if cursor.accept("for"):
            binding = cursor.expect(NAME, "a name").text
            cursor.expect("in")
            clauses.append(nodes.ForClause(binding, parse(cursor)))
        elif cursor.accept("if"):
            clauses.append(nodes.IfClause(parse(cursor)))
        else:
            raise cursor.expected("`for`, `if` or `]`")
    cursor.advance()
    return nodes.ListComp(element, tuple(clauses), span=cursor.span_from(start))


def _record(cursor: Cursor, parse: Parse) -> Expression:
    start = cursor.token.span
    entries = _entries(cursor, parse, "{", "}")
    return nodes.Record(entries, span=cursor.span_from(start))


def _entries(cursor: Cursor, parse: Parse, opening: str, closing: str) -> tuple[tuple[str, Expression], ...]:
    """Parse `key: value` pairs in brackets."""
    cursor.expect(opening)
    found: list[tuple[str, Expression]] = []
    while not cursor.at(closing):
        key = cursor.expect_key(f"a key or `{closing}`")
        cursor.expect(":")
        found.append((key, parse(cursor)))
        if not cursor.accept(","):
            break
    cursor.expect(closing, f"`,` or `{closing}`")
    return tuple(found)


def _word(cursor: Cursor, parse: Parse) -> Expression:
    """Parse a name: a variable, a call of a builtin, or a word that begins an effect."""
    token, following = cursor.token, cursor.peek().kind
    match token.text:
        case "Type" if following == "{":
            cursor.advance()
            kind = parse_object_type(cursor)
            return nodes.TypeLiteral(kind, span=cursor.span_from(token.span))
        case "start" if _begins_start(cursor):
            return _start(cursor, parse)
        case "sleep":
            return _sleep(cursor, parse)
        case "wait_signal" if following == "(":
            return _wait_signal(cursor)
        case "signal_run" if following == "(":
            return _signal_run(cursor, parse)
        case "parallel" if following == "{":
            raise cursor.unexpected(
                "await a record or a list of operations: `await { a: web.fetch(x), b: web.fetch(y) }`"
            )
    cursor.advance()
    if cursor.at("("):
        arguments = parse_arguments(cursor, parse)
        return nodes.BuiltinCall(token.text, arguments, span=cursor.span_from(token.span))
    return nodes.Variable(token.text, span=token.span)


def _begins_start(cursor: Cursor) -> bool:
    """Return whether `start` starts a process here; it is a variable before an operator or the next assignment."""
    following = cursor.peek().kind
    if following == NAME:
        return not begins_assignment(cursor, 1)
    return following in ("{", "(", "call")


def _start(cursor: Cursor, parse: Parse) -> Expression:
    start = cursor.advance().span
    hint = "declare a process and start it by its name: `start name(argument: value)`"
    if not cursor.at(NAME):
        raise cursor.unexpected(hint)
    process = cursor.advance().text
    if not cursor.at("("):
        raise cursor.expected("`(`", hint)
    arguments = _entries(cursor, parse, "(", ")")
    return nodes.Start(process, arguments, span=cursor.span_from(start))


def _sleep(cursor: Cursor, parse: Parse) -> Expression:
    start = cursor.advance().span
    if cursor.accept("for"):
        return nodes.SleepFor(parse(cursor), span=cursor.span_from(start))
    if cursor.accept_word("until"):
        return nodes.SleepUntil(parse(cursor), span=cursor.span_from(start))
    raise cursor.expected("`for` or `until` after `sleep`", "such as `sleep for 2000`; numbers are milliseconds")


def _wait_signal(cursor: Cursor) -> Expression:
    start = cursor.advance().span
    cursor.expect("(")
    name = _signal_name(cursor)
    cursor.expect(")")
    return nodes.WaitSignal(name, span=cursor.span_from(start))


def _signal_run(cursor: Cursor, parse: Parse) -> Expression:
    start = cursor.advance().span
    cursor.expect("(")
    run = parse(cursor)
    cursor.expect(",")
    name = _signal_name(cursor)
    cursor.expect(",")
    payload = parse(cursor)
    cursor.accept(",")
    cursor.expect(")")
    return nodes.SignalRun(run, name, payload, span=cursor.span_from(start))


def _signal_name(cursor: Cursor) -> str:
    return cursor.expect_string("the name of a signal as a string", "names of signals cannot be computed")
