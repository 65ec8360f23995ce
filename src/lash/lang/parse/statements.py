"""Parses statements, blocks and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lash.lang.diagnostic import ProgramError
from lash.lang.parse.cursor import Cursor
from lash.lang.parse.expressions import parse_expression
from lash.lang.parse.lookahead import begins_assignment, begins_contextual_statement, can_begin_expression
from lash.lang.parse.tokens import END, NAME, STRING
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression

_PROCESS_WORDS: Final = {
    "yield": "use `print` to show a value",
    "wake": "use `submit` to answer",
    "finish": "use `submit` to answer",
    "fail": "use `submit` to answer",
}
"""Statements of process bodies, with what to use outside of them."""
_FOREGROUND_WORDS: Final = {"submit": "use `finish` to end the process", "print": "use `yield` to report progress"}
"""Statements that are not for process bodies, with what to use inside of them."""


def parse_statements(cursor: Cursor, closing: str) -> tuple[Expression, ...]:
    """Parse statements up to this token, which is not consumed."""
    found = []
    while not cursor.at(closing):
        if cursor.at(END):
            raise cursor.expected(f"`{closing}`")
        found.append(parse_labelled(cursor))
    return tuple(found)


def parse_block(cursor: Cursor) -> nodes.Block:
    """Parse statements in braces."""
    start = cursor.token.span
    cursor.expect("{")
    cursor.enter()
    statements = parse_statements(cursor, "}")
    cursor.leave()
    cursor.advance()
    return nodes.Block(statements, span=cursor.span_from(start))


def parse_labelled(cursor: Cursor) -> Expression:
    """Parse a statement with or without a label."""
    if not cursor.at("@"):
        return parse_statement(cursor)
    start = cursor.token.span
    label = parse_label(cursor)
    statement = parse_statement(cursor)
    return nodes.Labelled(label, statement, span=cursor.span_from(start))


def parse_label(cursor: Cursor) -> nodes.Label:
    """Parse a label, and check that something follows that can have one."""
    start = cursor.advance().span
    if not cursor.at_word("label"):
        raise cursor.expected("`label`", 'such as `@label(title: "Collect")`')
    cursor.advance()
    cursor.expect("(")
    values: dict[str, str] = {}
    while not cursor.at(")"):
        _label_argument(cursor, values)
        if not cursor.accept(","):
            break
    cursor.expect(")", "`,` or `)`")
    if "title" not in values:
        raise cursor.fail("bad-label", "label: the title is missing", cursor.span_from(start))
    is_type = cursor.at_word("type") and begins_contextual_statement(cursor)
    if is_type or cursor.at("@", "}", END):
        raise cursor.fail("bad-label-target", "a label goes before a statement or a process")
    return nodes.Label(values["title"], values.get("description"))


def _label_argument(cursor: Cursor, values: dict[str, str]) -> None:
    if not cursor.at_word("title", "description"):
        raise cursor.fail("bad-label", f"label: unknown key {cursor.token}", hint="keys are `title` and `description`")
    key = cursor.advance()
    if key.text in values:
        raise cursor.fail("bad-label", f"label: `{key.text}` is repeated", key.span)
    cursor.expect(":")
    # A string that is only the beginning of an expression is not a literal.
    if not cursor.at(STRING) or cursor.peek().kind not in (",", ")"):
        raise cursor.fail("bad-label", f"label: `{key.text}` must be a literal string")
    values[key.text] = str(cursor.advance().value)


def parse_statement(cursor: Cursor) -> Expression:
    """Parse a statement without a label."""
    if begins_assignment(cursor):
        return _assignment(cursor)
    token = cursor.token
    if token.kind == NAME:
        return _word(cursor)
    match token.kind:
        case "if":
            return _if(cursor)
        case "for":
            return _for(cursor)
        case "cancel":
            cursor.advance()
            return nodes.Cancel(parse_expression(cursor), span=cursor.span_from(token.span))
        case "submit" | "print":
            return _foreground(cursor)
        case "else":
            raise cursor.unexpected("`else` follows the block of an `if`")
        case _:
            return parse_expression(cursor)


def _word(cursor: Cursor) -> Expression:
    """Parse a statement that begins with a name: some names are words of statements."""
    token = cursor.token
    match token.text:
        case "while" if begins_contextual_statement(cursor):
            return _while(cursor)
        case "break" | "continue":
            return _loop_control(cursor)
        case "let" if cursor.peek().kind == NAME:
            cursor.advance()
            return _assignment(cursor)
        case "type" | "process" if begins_contextual_statement(cursor):
            raise cursor.unexpected("declare types and processes at the top level of the program")
        case "trigger" if begins_contextual_statement(cursor):
            raise trigger_syntax_removed(cursor)
        case word if word in _PROCESS_WORDS and _is_process_statement(cursor):
            return _process_statement(cursor)
    return parse_expression(cursor)


def trigger_syntax_removed(cursor: Cursor) -> ProgramError:
    """Return the error for a declaration of a trigger."""
    hint = "await triggers.register({ source: ..., target: process_name, inputs: { event: trigger.event } })"
    message = "triggers are no longer declared; build a source value and register it"
    return cursor.fail("trigger-syntax-removed", message, hint=hint)


def _assignment(cursor: Cursor) -> Expression:
    start = cursor.token.span
    root = cursor.advance().text
    steps: list[nodes.Step] = []
    while True:
        if cursor.accept("."):
            steps.append(nodes.FieldStep(cursor.expect_key("a field")))
        elif cursor.accept("["):
            steps.append(nodes.IndexStep(parse_expression(cursor)))
            cursor.expect("]")
        else:
            break
    cursor.expect("=")
    value = parse_expression(cursor)
    return nodes.Assign(root, tuple(steps), value, span=cursor.span_from(start))


def _if(cursor: Cursor) -> Expression:
    """Parse a conditional. An absent `else` is an empty block; `else if` is a conditional of its own."""
    start = cursor.advance().span
    condition = parse_expression(cursor)
    then = parse_block(cursor)
    otherwise: Expression = nodes.Block(span=cursor.span_from(start))
    if cursor.accept("else"):
        otherwise = _if(cursor) if cursor.at("if") else parse_block(cursor)
    return nodes.If(condition, then, otherwise, span=cursor.span_from(start))


def _for(cursor: Cursor) -> Expression:
    start = cursor.advance().span
    binding = cursor.expect(NAME, "a name").text
    cursor.expect("in")
    iterable = parse_expression(cursor)
    body = _loop_body(cursor)
    return nodes.For(binding, iterable, body, span=cursor.span_from(start))


def _while(cursor: Cursor) -> Expression:
    start = cursor.advance().span
    condition = parse_expression(cursor)
    body = _loop_body(cursor)
    return nodes.While(condition, body, span=cursor.span_from(start))


def _loop_body(cursor: Cursor) -> nodes.Block:
    outer, cursor.in_loop = cursor.in_loop, True
    body = parse_block(cursor)
    cursor.in_loop = outer
    return body


def _loop_control(cursor: Cursor) -> Expression:
    token = cursor.advance()
    if not cursor.in_loop:
        raise cursor.fail("loop-control", f"`{token.text}` needs an enclosing loop", token.span)
    return nodes.Break(span=token.span) if token.text == "break" else nodes.Continue(span=token.span)


def _foreground(cursor: Cursor) -> Expression:
    token = cursor.token
    if cursor.in_process:
        message = f"`{token.text}` cannot be used in a process body"
        raise cursor.fail("foreground-word", message, hint=_FOREGROUND_WORDS[token.text])
    cursor.advance()
    if token.kind == "submit" and cursor.at("}", END):
        return nodes.Submit(None, span=token.span)
    make: Callable[..., Expression] = nodes.Submit if token.kind == "submit" else nodes.Print
    return make(parse_expression(cursor), span=cursor.span_from(token.span))


def _is_process_statement(cursor: Cursor) -> bool:
    """Return whether the word is a statement here; before an operator it is a variable."""
    following = cursor.peek()
    return can_begin_expression(following) or following.kind in ("}", END)


def _process_statement(cursor: Cursor) -> Expression:
    token = cursor.token
    if not cursor.in_process:
        message = f"`{token.text}` belongs in a process body"
        raise cursor.fail("process-word", message, hint=_PROCESS_WORDS[token.text])
    cursor.advance()
    if token.text == "finish" and cursor.at("}", END):
        return nodes.Finish(None, span=token.span)
    operand = parse_expression(cursor)
    span = cursor.span_from(token.span)
    match token.text:
        case "yield":
            return nodes.Yield(operand, span=span)
        case "wake":
            return nodes.Wake(operand, span=span)
        case "finish":
            return nodes.Finish(operand, span=span)
        case _:
            return nodes.Fail(operand, span=span)
