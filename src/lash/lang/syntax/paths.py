"""The order of children, and the paths and ids that follow from it.

A path is the indexes of children from the body of an entry to a node. The order of children is part of the protocol:
ids of effects are derived from paths, so changing it breaks the replay of stored processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression

Path: TypeAlias = tuple[int, ...]
SiteKind: TypeAlias = Literal[
    "resource_operation",
    "child_process",
    "sleep",
    "wait",
    "signal",
    "terminal",
    "process_event",
    "branch",
    "step",
]

MAIN: Final = "main"
"""The entry of the main block."""
_ID_LENGTH: Final = 24
"""Hex digits of the hash in an id: 96 bits, enough for the ids of a module to be distinct."""


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the children of a node in the order that paths count: the order of evaluation."""
    match node:
        case nodes.Block():
            return node.statements
        case nodes.List():
            return node.items
        case nodes.Record():
            return tuple(value for _, value in node.entries)
        case nodes.ListComp():
            return (*(_clause_expression(clause) for clause in node.clauses), node.element)
        case nodes.Assign():
            return (*(step.index for step in node.steps if isinstance(step, nodes.IndexStep)), node.value)
        case nodes.If():
            return node.condition, node.then, node.otherwise
        case nodes.For():
            return node.iterable, node.body
        case nodes.While():
            return node.condition, node.body
        case nodes.Start():
            return tuple(value for _, value in node.arguments)
        case nodes.ReceiverCall():
            return node.receiver, *node.arguments
        case nodes.BuiltinCall():
            return node.arguments
        case nodes.SignalRun():
            return node.run, node.payload
        case nodes.Index():
            return node.target, node.index
        case nodes.Binary():
            return node.left, node.right
        case _:
            return _only_child(node)


def _only_child(node: Expression) -> tuple[Expression, ...]:
    match node:
        case nodes.Labelled():
            return (node.expression,)
        case nodes.HostDescriptor():
            return (node.input,)
        case nodes.Field():
            return (node.target,)
        case nodes.Submit() | nodes.Finish():
            return () if node.operand is None else (node.operand,)
        case (
            nodes.Await()
            | nodes.SleepFor()
            | nodes.SleepUntil()
            | nodes.Unwrap()
            | nodes.Cancel()
            | nodes.Print()
            | nodes.Yield()
            | nodes.Wake()
            | nodes.Fail()
            | nodes.Unary()
        ):
            return (node.operand,)
        case _:
            return ()


def _clause_expression(clause: nodes.Clause) -> Expression:
    return clause.iterable if isinstance(clause, nodes.ForClause) else clause.condition


def walk(body: Expression) -> Iterator[tuple[Path, Expression]]:
    """Yield every node below and including this one with its path, parents first.

    A labelled node and the node inside it have the same path; the labelled one comes first.
    """
    waiting: list[tuple[Path, Expression]] = [((), body)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        if isinstance(node, nodes.Labelled):
            waiting.append((path, node.expression))
        else:
            found = [((*path, index), child) for index, child in enumerate(children(node))]
            waiting.extend(reversed(found))


def node_at(body: Expression, path: Path) -> Expression:
    """Return the node with this path, without its label; raise IndexError if there is none."""
    node = unlabelled(body)
    for index in path:
        node = unlabelled(children(node)[index])
    return node


def unlabelled(node: Expression) -> Expression:
    """Return the statement inside a labelled node, or the node itself."""
    return node.expression if isinstance(node, nodes.Labelled) else node


def path_text(path: Path) -> str:
    """Return the text of a path in ids: its indexes joined with dots, or ``root``."""
    return ".".join(map(str, path)) or "root"


def site_id(module_ref: str, entry: str, path: Path, kind: SiteKind) -> str:
    """Return the id of a node, which is stable as long as the module is the same.

    ``entry`` is `MAIN`, or the key of a process: its component and position.
    """
    parts = (module_ref, entry, path_text(path), kind)
    digest = hashlib.sha256("".join(f"{part}\0" for part in parts).encode()).hexdigest()
    return f"{kind}:{digest[:_ID_LENGTH]}"


def site_kind(node: Expression) -> SiteKind | None:
    """Return which kind of site a node is, or None if it has no effect and does not branch.

    An ``await`` is a wait and a ``cancel`` is a signal: the reference has no ids for them.
    """
    match node:
        case nodes.ReceiverCall():
            return "resource_operation"
        case nodes.Start():
            return "child_process"
        case nodes.SleepFor() | nodes.SleepUntil():
            return "sleep"
        case nodes.WaitSignal() | nodes.Await():
            return "wait"
        case nodes.SignalRun() | nodes.Cancel():
            return "signal"
        case nodes.Submit() | nodes.Finish() | nodes.Fail():
            return "terminal"
        case nodes.Yield() | nodes.Wake():
            return "process_event"
        case nodes.If():
            return "branch"
        case _:
            return None
