"""The static graph of a module: its effects and branches, in the order in which a run can come to them.

Ids of nodes are the ids that effects of a run have, so an observer can show where a run is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lash.lang.module.artifact import ModuleArtifact
from lash.lang.printing.expressions import ExpressionPrinter
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.paths import MAIN, Path, SiteKind, children, path_text, site_id, site_kind, unlabelled
from lash.lang.syntax.span import Span

_MAX_TEXT: Final = 60
"""Characters of a node's text."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An effect, a branch, or a labelled step. ``path`` counts children from the body of the entry."""

    id: str
    entry: str
    path: str
    kind: SiteKind
    text: str
    title: str | None = None
    description: str | None = None
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """One way from a node to the next. ``when`` is yes or no behind a branch, and repeat at the end of a loop."""

    source: str
    target: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """A body: the main block, or a process. ``first`` are the nodes that a run can begin with."""

    entry: str
    name: str
    first: tuple[str, ...]
    title: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ModuleGraph:
    """The graph of a module. Nodes are in source order of their entries."""

    module_ref: str
    entries: tuple[GraphEntry, ...]
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]


def module_graph(artifact: ModuleArtifact) -> ModuleGraph:
    """Return the graph of a module; equal modules have equal graphs except for names of local variables."""
    flows = [_Flow(artifact, MAIN, artifact.program.main)] if artifact.program.main.statements else []
    entries = [GraphEntry(MAIN, MAIN, flow.first) for flow in flows]
    for process in artifact.program.processes:
        key = str(artifact.exports[process.name])
        flow = _Flow(artifact, key, process.body)
        flows.append(flow)
        label = process.label or nodes.Label("")
        entries.append(GraphEntry(key, process.name, flow.first, label.title or None, label.description))
    found = tuple(node for flow in flows for node in flow.nodes)
    edges = tuple(edge for flow in flows for edge in flow.edges)
    return ModuleGraph(artifact.module_ref, tuple(entries), found, edges)


Ends: TypeAlias = tuple[tuple[str | None, str | None], ...]
"""Where a run can be: behind a node, with the condition of the way from it. Before the first node it is None."""

_START: Final[Ends] = ((None, None),)


@dataclass(slots=True)
class _Loop:
    breaks: list[tuple[str | None, str | None]] = field(default_factory=list)
    repeats: list[tuple[str | None, str | None]] = field(default_factory=list)


class _Flow:
    """Follows one body in the order of evaluation, and collects nodes and edges."""

    def __init__(self, artifact: ModuleArtifact, entry: str, body: Expression) -> None:
        self._ref = artifact.module_ref
        self._entry = entry
        self._printer = ExpressionPrinter()
        self._loops: list[_Loop] = []
        self._labels: dict[Path, nodes.Label] = {}
        self.nodes: list[GraphNode] = []
        self._edges: dict[GraphEdge, None] = {}
        self._first: dict[str, None] = {}
        self._follow(body, (), _START)

    @property
    def edges(self) -> tuple[GraphEdge, ...]:
        return tuple(self._edges)

    @property
    def first(self) -> tuple[str, ...]:
        return tuple(self._first)

    def _follow(self, node: Expression, path: Path, ends: Ends) -> Ends:
        """Return where a run can be behind a node."""
        match node:
            case nodes.Labelled():
                return self._labelled(node, path, ends)
            case nodes.If():
                return self._if(node, path, ends)
            case nodes.For() | nodes.While():
                return self._loop(node, path, ends)
            case nodes.Break():
                self._loops[-1].breaks.extend(ends)
                return ()
            case nodes.Continue():
                self._loops[-1].repeats.extend(ends)
                return ()
            case nodes.Binary(operator="and" | "or"):
                left = self._follow(node.left, (*path, 0), ends)
                return _joined(left, self._follow(node.right, (*path, 1), left))
            case nodes.Await():
                return self._await(node, path, ends)
        for index, child in enumerate(children(node)):
            ends = self._follow(child, (*path, index), ends)
        kind = site_kind(node)
        if kind is None:
            return ends
        ends = self._add(node, path, kind, ends)
        return () if kind == "terminal" else ends

    def _await(self, node: nodes.Await, path: Path, ends: Ends) -> Ends:
        """Follow an await: of operations the effects are theirs, of handles it is an effect of its own."""
        calls = dict(_awaited_calls(node.operand, (*path, 0)))
        if not calls:
            ends = self._follow(node.operand, (*path, 0), ends)
            return self._add(node, path, "wait", ends)
        for inner, at in _leaves(node.operand, (*path, 0)):
            call = calls.get(at)
            if call is None:
                ends = self._follow(inner, at, ends)
                continue
            below = at if inner is call else (*at, 0)
            for index, child in enumerate(children(call)):
                ends = self._follow(child, (*below, index), ends)
            is_batch = isinstance(node.operand, nodes.List | nodes.Record)
            ends = self._add(call, at if is_batch else below, "resource_operation", ends)
        return ends

    def _labelled(self, node: nodes.Labelled, path: Path, ends: Ends) -> Ends:
        """Give the label to the effect of a statement, or make the statement a step."""
        place = _site_of_statement(node.expression, path)
        if place is None:
            ends = self._add(node.expression, path, "step", ends, node.label)
        else:
            self._labels[place] = node.label
        return self._follow(node.expression, path, ends)

    def _if(self, node: nodes.If, path: Path, ends: Ends) -> Ends:
        ends = self._follow(node.condition, (*path, 0), ends)
        branch = self._add(node, path, "branch", ends)
        then = self._follow(node.then, (*path, 1), tuple((where, "yes") for where, _ in branch))
        otherwise = self._follow(node.otherwise, (*path, 2), tuple((where, "no") for where, _ in branch))
        return _joined(then, otherwise)

    def _loop(self, node: nodes.For | nodes.While, path: Path, ends: Ends) -> Ends:
        """Follow a loop once; from its end a run can come back to its first node, or go on."""
        if isinstance(node, nodes.For):
            ends = self._follow(node.iterable, (*path, 0), ends)
        loop = _Loop()
        self._loops.append(loop)
        known = len(self.nodes)
        before = self._follow(node.condition, (*path, 0), ends) if isinstance(node, nodes.While) else ends
        after = self._follow(node.body, (*path, 1), before)
        self._loops.pop()
        back = _joined(after, tuple(loop.repeats))
        if len(self.nodes) > known:
            self._connect(tuple((where, "repeat") for where, _ in back), self.nodes[known].id)
        return _joined(_joined(before, back), tuple(loop.breaks))

    def _add(self, node: Expression, path: Path, kind: SiteKind, ends: Ends, label: nodes.Label | None = None) -> Ends:
        identity = site_id(self._ref, self._entry, path, kind)
        label = label or self._labels.get(path)
        self.nodes.append(
            GraphNode(
                identity,
                self._entry,
                path_text(path),
                kind,
                self._text(node),
                None if label is None else label.title,
                None if label is None else label.description,
                node.span,
            )
        )
        self._connect(ends, identity)
        return ((identity, None),)

    def _connect(self, ends: Ends, target: str) -> None:
        for where, when in ends:
            if where is None:
                self._first[target] = None
            else:
                self._edges[GraphEdge(where, target, when)] = None

    def _text(self, node: Expression) -> str:
        text = _statement_text(self._printer, node)
        return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def _joined(first: Ends, second: Ends) -> Ends:
    return tuple(dict.fromkeys((*first, *second)))


def _leaves(node: Expression, path: Path) -> Iterator[tuple[Expression, Path]]:
    """Yield the parts of an awaited literal, without the lists and records that only give it its shape."""
    if not isinstance(node, nodes.List | nodes.Record):
        yield node, path
        return
    for index, child in enumerate(children(node)):
        yield from _leaves(child, (*path, index))


def _awaited_calls(node: Expression, path: Path) -> Iterator[tuple[Path, nodes.ReceiverCall]]:
    """Yield the operations that an await awaits; the path of one with `?` is that of the `?`."""
    for leaf, at in _leaves(node, path):
        inner = unlabelled(leaf.operand) if isinstance(leaf, nodes.Unwrap) else leaf
        if isinstance(inner, nodes.ReceiverCall):
            yield at, inner


def _site_of_statement(node: Expression, path: Path) -> Path | None:
    """Return the path of the effect or branch that a statement is, or None if it is neither."""
    while True:
        match node:
            case nodes.Assign():
                path, node = (*path, len(children(node)) - 1), node.value
            case nodes.Await() if not any(_awaited_calls(node.operand, path)):
                return path
            case nodes.Await() | nodes.Unwrap():
                path, node = (*path, 0), node.operand
            case _:
                return path if site_kind(node) is not None else None


_WORDS: Final[dict[type, str]] = {
    nodes.Cancel: "cancel",
    nodes.Submit: "submit",
    nodes.Yield: "yield",
    nodes.Wake: "wake",
    nodes.Finish: "finish",
    nodes.Fail: "fail",
}


def _statement_text(printer: ExpressionPrinter, node: Expression) -> str:
    """Return a short text for a node: statements without their blocks."""
    match node:
        case nodes.If():
            return f"if {printer.flat(node.condition)}"
        case nodes.For():
            return f"for {node.binding} in {printer.flat(node.iterable)}"
        case nodes.While():
            return f"while {printer.flat(node.condition)}"
        case nodes.Assign():
            return f"{node.root} = {printer.flat(node.value)}"
        case nodes.Block() | nodes.Break() | nodes.Continue():
            return type(node).__name__.lower()
        case nodes.Submit() | nodes.Finish() if node.operand is None:
            return _WORDS[type(node)]
        case (
            nodes.Cancel()
            | nodes.Submit()
            | nodes.Yield()
            | nodes.Wake()
            | nodes.Finish()
            | nodes.Fail()
            | nodes.Print()
        ) if node.operand is not None:
            return f"{_WORDS.get(type(node), 'print')} {printer.flat(node.operand)}"
        case _:
            return printer.flat(node)
