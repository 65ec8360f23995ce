"""The tokens that stand for names in hashes, so that renaming a local variable changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.paths import children
from lash.lang.syntax.program import ProcessDeclaration

INPUT_NAMES: Final = ("input", "inputs")
"""Names that every process body has beside its parameters."""


class NameTokens:
    """The token of each name in one body: of a parameter, of a local variable by its number, or of a global one."""

    def __init__(self, interface: Iterable[str], body: Expression) -> None:
        self._interface = frozenset(interface)
        self._locals: dict[str, str] = {}
        for name in bound_names(body):
            if name not in self._interface and name not in self._locals:
                self._locals[name] = f"local:{len(self._locals)}"

    @classmethod
    def of_process(cls, process: ProcessDeclaration) -> NameTokens:
        return cls((*(parameter.name for parameter in process.parameters), *INPUT_NAMES), process.body)

    def __getitem__(self, name: str) -> str:
        if name in self._interface:
            return f"abi:{name}"
        return self._locals.get(name) or f"global:{name}"


def bound_names(body: Expression) -> list[str]:
    """Return the names that a body binds, in the order in which a walk from the top comes to them.

    An assignment binds before its value is visited; a loop or a comprehension after its sequence is visited.
    """
    found: list[str] = []
    waiting: list[Expression | str] = [body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            found.append(node)
        else:
            waiting.extend(reversed(_visited(node)))
    return found


def _visited(node: Expression) -> tuple[Expression | str, ...]:
    """Return what a walk visits below a node: children, and names where they are bound."""
    match node:
        case nodes.Assign():
            return node.root, *children(node)
        case nodes.For():
            return node.iterable, node.binding, node.body
        case nodes.ListComp():
            visited: list[Expression | str] = []
            for clause in node.clauses:
                if isinstance(clause, nodes.ForClause):
                    visited += (clause.iterable, clause.binding)
                else:
                    visited.append(clause.condition)
            return *visited, node.element
        case _:
            return children(node)
