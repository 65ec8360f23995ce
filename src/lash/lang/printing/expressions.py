"""Writes expressions with the fewest parentheses that keep their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lash.lang.parse.expressions import BINARY, PRECEDENCE
from lash.lang.printing.types import type_text
from lash.lang.printing.words import key_text, number_text, string_text
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import BinaryOperator, Expression

WIDTH: Final = 100
"""Characters of a line; longer lists, records and calls are written one item a line."""
STEP: Final = "  "

ANYTHING: Final = 0
"""The weakest precedence: a conditional or a sleep needs no parentheses here."""
_OPERATOR: Final = 1
_UNARY: Final = 6
_POSTFIX: Final = 7

_SIGNS: Final[dict[BinaryOperator, str]] = {operator: sign for sign, operator in reversed(BINARY.items())}
_PARENTHESISED: Final = frozenset(
    {"while", "break", "continue", "yield", "wake", "finish", "fail", "start", "Type", "parallel"}
)
"""Words that could begin something else, and are written in parentheses if they are variables."""
_EVENT: Final = nodes.Record((("$lash.trigger.event", nodes.Bool(True)),))
"""The linked form of `trigger.event`."""


@dataclass(frozen=True, slots=True)
class ExpressionPrinter:
    """Writes expressions. ``constructors`` has the paths of the host's constructors by the type of their values."""

    constructors: Mapping[str, str] = field(default_factory=dict)

    def text(self, node: Expression, indent: str = "", used: int = 0, weakest: int = ANYTHING) -> str:
        """Return the text of a node for a line that is indented and has some characters already.

        The text has parentheses if an operator binds weaker than ``weakest``.
        """
        flat = self.flat(node, weakest)
        if len(indent) + used + len(flat) <= WIDTH:
            return flat
        broken = self._broken(node, indent, used)
        if broken is None:
            return flat
        return f"({broken})" if self._strength_and_text(node)[0] < weakest else broken

    def flat(self, node: Expression, weakest: int = ANYTHING) -> str:
        """Return the text of a node on one line."""
        strength, text = self._strength_and_text(node)
        return f"({text})" if strength < weakest else text

    def _strength_and_text(self, node: Expression) -> tuple[int, str]:
        match node:
            case nodes.If():
                then, otherwise = self.flat(node.then, _OPERATOR), self.flat(node.otherwise)
                return ANYTHING, f"{self.flat(node.condition, _OPERATOR)} ? {then} : {otherwise}"
            case nodes.SleepFor():
                return ANYTHING, f"sleep for {self.flat(node.operand, _OPERATOR)}"
            case nodes.SleepUntil():
                return ANYTHING, f"sleep until {self.flat(node.operand, _OPERATOR)}"
            case nodes.Binary():
                return PRECEDENCE[node.operator], self._binary(node)
            case nodes.Unary():
                sign = "-" if node.operator == "negate" else "not "
                return _UNARY, sign + self.flat(node.operand, _UNARY)
            case nodes.Await():
                return _UNARY, f"await {self.flat(node.operand, _UNARY)}"
            case _:
                return _POSTFIX, self._postfix(node)

    def _binary(self, node: nodes.Binary) -> str:
        strength = PRECEDENCE[node.operator]
        left, right = self.flat(node.left, strength), self.flat(node.right, strength + 1)
        if node.operator == "subtract" and left.endswith("?"):
            # The `?` would begin a conditional whose value is negative.
            left = f"({left})"
        return f"{left} {_SIGNS[node.operator]} {right}"

    def _postfix(self, node: Expression) -> str:
        match node:
            case nodes.Unwrap():
                return f"{self.flat(node.operand, _POSTFIX)}?"
            case nodes.Field():
                return f"{self._target(node.target)}.{key_text(node.name)}"
            case nodes.Index():
                target = self._target(node.target)
                # The `?` would begin a conditional whose value is a list.
                return f"{f'({target})' if target.endswith('?') else target}[{self.flat(node.index)}]"
            case nodes.ReceiverCall():
                return f"{self._target(node.receiver)}.{key_text(node.operation)}({self._items(node.arguments)})"
            case _:
                return self._primary(node)

    def _target(self, node: Expression) -> str:
        text = self.flat(node, _POSTFIX)
        return f"({text})" if isinstance(node, nodes.Number) else text

    def _primary(self, node: Expression) -> str:
        match node:
            case nodes.Null():
                return "null"
            case nodes.Bool():
                return "true" if node.value else "false"
            case nodes.Number():
                return number_text(node.value)
            case nodes.String():
                return string_text(node.value)
            case nodes.Variable():
                return f"({node.name})" if node.name in _PARENTHESISED else node.name
            case nodes.List():
                return f"[{self._items(node.items)}]"
            case nodes.ListComp():
                return f"[{self.flat(node.element)} {' '.join(map(self._clause, node.clauses))}]"
            case nodes.Record():
                return self._record(node)
            case nodes.TypeLiteral():
                return f"Type {type_text(node.type)}"
            case nodes.BuiltinCall():
                return f"{node.name}({self._items(node.arguments)})"
            case _:
                return self._effect(node)

    def _effect(self, node: Expression) -> str:
        match node:
            case nodes.Start():
                return f"start {node.process}({self._entries(node.arguments)})"
            case nodes.ProcessRef():
                return node.process
            case nodes.ResourceRef():
                return node.alias
            case nodes.HostDescriptor():
                path = self.constructors.get(node.type_name, node.type_name)
                return f"{path}({self.flat(node.input)})"
            case nodes.WaitSignal():
                return f"wait_signal({string_text(node.name)})"
            case nodes.SignalRun():
                return f"signal_run({self.flat(node.run)}, {string_text(node.name)}, {self.flat(node.payload)})"
            case _:
                raise TypeError(f"expected an expression, got a statement: {type(node).__name__}")

    def _clause(self, clause: nodes.Clause) -> str:
        if isinstance(clause, nodes.ForClause):
            return f"for {clause.binding} in {self.flat(clause.iterable)}"
        return f"if {self.flat(clause.condition)}"

    def _items(self, items: tuple[Expression, ...]) -> str:
        return ", ".join(map(self.flat, items))

    def _entries(self, entries: tuple[tuple[str, Expression], ...]) -> str:
        return ", ".join(f"{key_text(key)}: {self.flat(value)}" for key, value in entries)

    def _record(self, node: nodes.Record) -> str:
        if node == _EVENT:
            return "trigger.event"
        return f"{{ {self._entries(node.entries)} }}" if node.entries else "{}"

    def _broken(self, node: Expression, indent: str, used: int) -> str | None:
        """Return a node that is too long for a line with one item a line, or None if it cannot be broken."""
        match node:
            case nodes.List() if node.items:
                return self._lines("[", [("", item) for item in node.items], "]", indent)
            case nodes.Record() if node.entries:
                return self._lines("{", _labelled(node.entries), "}", indent)
            case nodes.Start() if node.arguments:
                return self._lines(f"start {node.process}(", _labelled(node.arguments), ")", indent)
            case nodes.BuiltinCall() if node.arguments:
                return self._call(f"{node.name}(", node.arguments, indent, used)
            case nodes.ReceiverCall() if node.arguments:
                opening = f"{self._target(node.receiver)}.{key_text(node.operation)}("
                return self._call(opening, node.arguments, indent, used)
            case nodes.Await():
                return f"await {self.text(node.operand, indent, used + len('await '), _UNARY)}"
            case nodes.Unwrap():
                return f"{self.text(node.operand, indent, used + 1, _POSTFIX)}?"
            case _:
                return None

    def _call(self, opening: str, arguments: tuple[Expression, ...], indent: str, used: int) -> str:
        if len(arguments) == 1:
            return f"{opening}{self.text(arguments[0], indent, used + len(opening))})"
        return self._lines(opening, [("", argument) for argument in arguments], ")", indent)

    def _lines(self, opening: str, items: list[tuple[str, Expression]], closing: str, indent: str) -> str:
        inner = indent + STEP
        lines = [f"{inner}{label}{self.text(item, inner, len(label) + 1)}," for label, item in items]
        return "\n".join((opening, *lines, f"{indent}{closing}"))


def _labelled(entries: tuple[tuple[str, Expression], ...]) -> list[tuple[str, Expression]]:
    return [(f"{key_text(key)}: ", value) for key, value in entries]
