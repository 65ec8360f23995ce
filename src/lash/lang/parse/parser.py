"""Parses modules: declarations and the main block."""

from __future__ import annotations

from typing import Final

from lash.lang.diagnostic import Diagnostic, ProgramError
from lash.lang.parse.cursor import Cursor
from lash.lang.parse.lookahead import begins_contextual_statement
from lash.lang.parse.statements import parse_block, parse_label, parse_statement, trigger_syntax_removed
from lash.lang.parse.tokens import END, NAME, Comment
from lash.lang.parse.types import parse_type
from lash.lang.syntax import nodes
from lash.lang.syntax.paths import children
from lash.lang.syntax.program import Declaration, Parameter, ProcessDeclaration, Program, TypeDeclaration
from lash.lang.syntax.span import Span

MAX_SOURCE: Final = 64 * 1024
"""Characters of a source text. Parsing and linking block the event loop, for less than a second at this size."""


def parse(source: str) -> Program:
    """Return the syntax tree of a source text, or raise ProgramError at the first error."""
    return parse_with_comments(source)[0]


def parse_with_comments(source: str) -> tuple[Program, list[Comment]]:
    """Return the syntax tree of a source text and its comments."""
    if len(source) > MAX_SOURCE:
        message = f"the program has {len(source):,} characters; at most {MAX_SOURCE:,} are allowed"
        raise ProgramError(Diagnostic("lex", "too-long", message))
    cursor = Cursor(source)
    try:
        program = _module(cursor)
    except RecursionError:
        # A chain of `else if`, or the caller's own stack was deep already.
        raise cursor.too_deep() from None
    for body in (program.main, *(process.body for process in program.processes)):
        _check_depth(cursor, body)
    return program, cursor.comments


def _module(cursor: Cursor) -> Program:
    declarations: list[Declaration] = []
    statements: list[nodes.Expression] = []
    while not cursor.at(END):
        start = cursor.token.span
        label = parse_label(cursor) if cursor.at("@") else None
        word = cursor.token.text if begins_contextual_statement(cursor) else ""
        if word == "type":
            declarations.append(_type_declaration(cursor))
        elif word == "process":
            declarations.append(_process(cursor, label, start))
        elif word == "trigger":
            raise trigger_syntax_removed(cursor)
        elif label is None:
            statements.append(parse_statement(cursor))
        else:
            statement = parse_statement(cursor)
            statements.append(nodes.Labelled(label, statement, span=cursor.span_from(start)))
    return Program(tuple(declarations), nodes.Block(tuple(statements), span=Span(0, len(cursor.source))))


def _type_declaration(cursor: Cursor) -> TypeDeclaration:
    start = cursor.advance().span
    name = cursor.advance().text
    cursor.expect("=")
    kind = parse_type(cursor)
    return TypeDeclaration(name, kind, span=cursor.span_from(start))


def _process(cursor: Cursor, label: nodes.Label | None, start: Span) -> ProcessDeclaration:
    cursor.advance()
    name = cursor.advance().text
    parameters = _parameters(cursor, "(", ")")
    signals: tuple[Parameter, ...] = ()
    if cursor.accept_word("signals"):
        signals = _parameters(cursor, "{", "}")
    return_type = None
    if cursor.accept("-"):
        cursor.expect(">")
        return_type = parse_type(cursor)
    cursor.in_process = True
    body = parse_block(cursor)
    cursor.in_process = False
    span = cursor.span_from(start)
    return ProcessDeclaration(name, parameters, body, signals, return_type, label, span=span)


def _parameters(cursor: Cursor, opening: str, closing: str) -> tuple[Parameter, ...]:
    cursor.expect(opening)
    found = []
    while not cursor.at(closing):
        start = cursor.token.span
        name = cursor.expect(NAME, f"a name or `{closing}`").text
        cursor.expect(":", "`:` and a type")
        kind = parse_type(cursor)
        found.append(Parameter(name, kind, span=cursor.span_from(start)))
        if not cursor.accept(","):
            break
    cursor.expect(closing, f"`,` or `{closing}`")
    return tuple(found)


def _check_depth(cursor: Cursor, body: nodes.Expression) -> None:
    level = [body]
    for _ in range(nodes.MAX_DEPTH):
        level = [child for node in level for child in children(node)]
        if not level:
            return
    message = f"more than {nodes.MAX_DEPTH} operators, fields or branches in one chain; split this up"
    raise cursor.fail("too-deep", message, level[0].span, "assign parts to variables")
