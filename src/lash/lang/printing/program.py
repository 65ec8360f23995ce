"""Writes whole programs in one canonical layout, with the comments of their source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from lash.lang.diagnostic import Diagnostic, ProgramError
from lash.lang.module.artifact import ModuleArtifact
from lash.lang.parse.parser import parse, parse_with_comments
from lash.lang.parse.tokens import Comment
from lash.lang.printing.expressions import STEP, WIDTH, ExpressionPrinter
from lash.lang.printing.types import type_text
from lash.lang.printing.words import string_text
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.program import Declaration, Parameter, ProcessDeclaration, Program, TypeDeclaration
from lash.lang.syntax.span import Span

_CALLABLE_END: Final = re.compile(r'[A-Za-z0-9_"]\Z')
"""A name or a quoted field, which a parenthesis would make a call."""
_STATEMENT_START: Final = re.compile(r"(?:while|break|continue|yield|wake|finish|fail|let|type|process|trigger)\b")
_BLANK_LINE: Final = re.compile(r"\n[^\S\n]*\n")
_UNARY_STATEMENTS: Final[dict[type, str]] = {
    nodes.Cancel: "cancel",
    nodes.Print: "print",
    nodes.Submit: "submit",
    nodes.Yield: "yield",
    nodes.Wake: "wake",
    nodes.Finish: "finish",
    nodes.Fail: "fail",
}


def program_text(program: Program) -> str:
    """Return the canonical source text of a program. Parsing it returns an equal program."""
    return _Writer().program(program)


def module_text(artifact: ModuleArtifact) -> str:
    """Return source text of a stored module. Linking it against the same host returns the same module."""
    paths = {each.type_name: path for path, each in sorted(artifact.requirements.resources.constructors.items())}
    return _Writer(ExpressionPrinter(paths)).program(artifact.program)


def format_source(source: str) -> str:
    """Return a source text in canonical layout, with its comments and single blank lines.

    Raises ProgramError if it cannot be parsed, or is nested so deep that the parentheses of the layout do not fit.
    """
    program, comments = parse_with_comments(source)
    text = _Writer(source=source, comments=comments).program(program)
    try:
        is_same = parse(text) == program
    except ProgramError as error:
        message = f"this program cannot be formatted: {error.diagnostic.message}"
        raise ProgramError(Diagnostic("parse", error.kind, message), source) from None
    if not is_same:
        raise ProgramError(Diagnostic("parse", "unformattable", "this program cannot be formatted"), source)
    return text


class _Writer:
    """Lines of a program. Comments are written before the statement that follows them, or behind the one they end."""

    def __init__(
        self,
        expressions: ExpressionPrinter | None = None,
        source: str = "",
        comments: Sequence[Comment] = (),
    ) -> None:
        self._expressions = expressions or ExpressionPrinter()
        self._source = source
        self._comments = list(reversed(comments))
        self._lines: list[str] = []
        self._indent = ""
        self._last_end: int | None = None

    def program(self, program: Program) -> str:
        items: list[Declaration | Expression] = [*program.declarations, *program.main.statements]
        if self._source:
            items.sort(key=lambda item: item.span.start if item.span is not None else 0)
        previous: Declaration | Expression | None = None
        for item, following in zip_longest(items, items[1:]):
            if isinstance(item, ProcessDeclaration) or isinstance(previous, ProcessDeclaration):
                self._blank()
            self._before(item.span)
            if isinstance(item, Declaration):
                self._declaration(item)
            else:
                self._statement(item, None if isinstance(following, Declaration) else following)
            self._after(item.span)
            previous = item
        self._flush(len(self._source))
        return "".join(f"{line}\n" for line in self._lines)

    def _declaration(self, declaration: Declaration) -> None:
        if isinstance(declaration, TypeDeclaration):
            self._write(f"type {declaration.name} = {type_text(declaration.type)}")
            return
        if declaration.label is not None:
            self._write(_label_text(declaration.label))
        parameters = _parameters_text(declaration.parameters)
        rest = f" signals {{ {_parameters_text(declaration.signals)} }}" if declaration.signals else ""
        if declaration.return_type is not None:
            rest += f" -> {type_text(declaration.return_type)}"
        line = f"process {declaration.name}({parameters}){rest}"
        if len(line) + 2 > WIDTH and declaration.parameters:
            self._write(f"process {declaration.name}(")
            for parameter in declaration.parameters:
                self._write(f"{STEP}{_parameters_text((parameter,))},")
            line = f"){rest}"
        self._block(line, declaration.body)

    def _statement(self, node: Expression, following: Expression | None) -> None:
        """Write a statement; the one that follows decides whether it needs parentheses at its end."""
        match node:
            case nodes.Labelled():
                self._write(_label_text(node.label))
                self._statement(node.expression, following)
            case nodes.If() if isinstance(node.then, nodes.Block):
                self._if(node)
            case nodes.For():
                self._block(f"for {node.binding} in {self._text(node.iterable, 'for  in ' + node.binding)}", node.body)
            case nodes.While():
                self._block(f"while {self._text(node.condition, 'while ')}", node.body)
            case _:
                self._write(self._simple(node, is_called=following is not None and self._begins_call(following)))

    def _simple(self, node: Expression, *, is_called: bool = False) -> str:
        """Return a statement without a block. If ``is_called``, a parenthesis follows that must not make it a call."""
        match node:
            case nodes.Break():
                return "break"
            case nodes.Continue():
                return "continue"
            case nodes.Assign():
                target = node.root + "".join(map(self._step, node.steps))
                return f"{target} = {self._last(node.value, f'{target} = ', is_called=is_called)}"
            case nodes.Submit() | nodes.Finish() if node.operand is None:
                return _UNARY_STATEMENTS[type(node)]
            case (
                nodes.Cancel()
                | nodes.Print()
                | nodes.Submit()
                | nodes.Yield()
                | nodes.Wake()
                | nodes.Finish()
                | nodes.Fail()
            ) if node.operand is not None:
                word = _UNARY_STATEMENTS[type(node)]
                return f"{word} {self._last(node.operand, f'{word} ', is_called=is_called)}"
            case _:
                return self._bare(node, is_called=is_called)

    def _bare(self, node: Expression, *, is_called: bool) -> str:
        """Return an expression as a statement: it must not continue the statement before it."""
        text = self._last(node, "", is_called=is_called)
        is_unsafe = isinstance(node, nodes.If) or text.startswith(("[", "-")) or _STATEMENT_START.match(text)
        return f"({text})" if is_unsafe else text

    def _last(self, node: Expression, before: str, *, is_called: bool) -> str:
        text = self._text(node, before)
        return f"({text})" if is_called and _CALLABLE_END.search(text) else text

    def _begins_call(self, node: Expression) -> bool:
        """Return whether a statement begins with a parenthesis."""
        if isinstance(node, nodes.If) and isinstance(node.then, nodes.Block):
            return False
        return not isinstance(node, nodes.Labelled | nodes.For | nodes.While) and self._simple(node).startswith("(")

    def _step(self, step: nodes.Step) -> str:
        if isinstance(step, nodes.FieldStep):
            return self._expressions.flat(nodes.Field(nodes.Variable(""), step.name))
        return f"[{self._expressions.flat(step.index)}]"

    def _if(self, node: nodes.If, opening: str = "") -> None:
        assert isinstance(node.then, nodes.Block)
        self._block(f"{opening}if {self._text(node.condition, f'{opening}if ')}", node.then)
        match node.otherwise:
            case nodes.If():
                self._if(node.otherwise, f"{self._lines.pop().strip()} else ")
            case nodes.Block(statements=()):
                pass
            case _:
                self._block(f"{self._lines.pop().strip()} else", node.otherwise)

    def _block(self, opening: str, block: Expression) -> None:
        assert isinstance(block, nodes.Block)
        if not block.statements and not self._has_comment(block.span):
            self._write(f"{opening} {{}}")
            return
        self._write(f"{opening} {{")
        outer, self._indent = self._indent, self._indent + STEP
        self._last_end = None
        for statement, following in zip_longest(block.statements, block.statements[1:]):
            self._before(statement.span)
            self._statement(statement, following)
            self._after(statement.span)
        if block.span is not None:
            self._flush(block.span.end)
        self._indent = outer
        self._write("}")

    def _text(self, node: Expression, before: str) -> str:
        return self._expressions.text(node, self._indent, len(before))

    def _write(self, text: str) -> None:
        self._lines.append(self._indent + text)

    def _blank(self) -> None:
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def _has_comment(self, span: Span | None) -> bool:
        return bool(span and self._comments and self._comments[-1].span.start < span.end)

    def _before(self, span: Span | None) -> None:
        """Write what is in the source before a statement: comments, and one blank line if there are any."""
        if span is None:
            return
        self._flush(span.start)
        self._keep_blank(span.start)

    def _keep_blank(self, start: int) -> None:
        if self._last_end is not None and _BLANK_LINE.search(self._source, self._last_end, start):
            self._blank()

    def _after(self, span: Span | None) -> None:
        """Write a comment that ends the line of a statement."""
        if span is None:
            return
        self._last_end = span.end
        comment = self._comments[-1] if self._comments else None
        if comment is not None and comment.span.start >= span.end:
            between = self._source[span.end : comment.span.start]
            if not between.strip(" \t;"):
                self._lines[-1] += f"  {self._comments.pop().text}"
                self._last_end = comment.span.end

    def _flush(self, end: int) -> None:
        """Write the comments before this place, each on a line of its own."""
        while self._comments and self._comments[-1].span.start < end:
            comment = self._comments.pop()
            self._keep_blank(comment.span.start)
            self._write(comment.text)
            self._last_end = comment.span.end


def _label_text(label: nodes.Label) -> str:
    description = "" if label.description is None else f", description: {string_text(label.description)}"
    return f"@label(title: {string_text(label.title)}{description})"


def _parameters_text(parameters: Sequence[Parameter]) -> str:
    return ", ".join(f"{each.name}: {type_text(each.type)}" for each in parameters)
