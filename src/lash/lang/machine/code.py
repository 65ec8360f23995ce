"""The body of a process, or a main block, prepared for a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from lash.errors import CorruptData
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.paths import MAIN, Path, children, path_text, site_id, site_kind, unlabelled
from lash.lang.syntax.types import Type
from lash.lang.values.value import Value


@dataclass(frozen=True, slots=True)
class ModuleRefs:
    """The identity of a module, and of its processes as values."""

    module_ref: str
    process_values: Mapping[str, Value] = field(default_factory=dict)
    types: Mapping[str, Type] = field(default_factory=dict)
    """The types that the module declares and those of the host, by name."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of a batch: the places of its receiver and its arguments among the values, and its site."""

    name: str
    receiver: int
    arguments: range
    node_id: str
    unwraps: bool


Shape: TypeAlias = (
    tuple[Literal["list"], tuple[Any, ...]]
    | tuple[Literal["record"], tuple[tuple[str, Any], ...]]
    | tuple[Literal["call"], int]
    | tuple[Literal["value"], int]
)
"""What the answers of a batch are put into."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The operations of an awaited list or record, and the shape of its value."""

    calls: tuple[Call, ...]
    shape: Shape


@dataclass(slots=True)
class Op:
    """A node that the machine evaluates."""

    node: Expression
    path: str
    children: tuple[Op, ...]
    node_id: str = ""
    """The id of its site, if it has an effect."""
    batch: BatchPlan | None = None


class Code:
    """The nodes of one entry of a module by their paths."""

    def __init__(self, refs: ModuleRefs, body: Expression, entry: str = MAIN) -> None:
        self.refs = refs
        self.entry = entry
        self._ops: dict[str, Op] = {}
        self.root = self._prepare(body, ())

    def op(self, path: str) -> Op:
        """Return the node of a path, or raise CorruptData."""
        found = self._ops.get(path)
        if found is None:
            raise CorruptData(f"the program has no node {path!r}; the stored state belongs to another program")
        return found

    def _prepare(self, node: Expression, path: Path) -> Op:
        if isinstance(node, nodes.Labelled):
            return self._prepare(node.expression, path)
        if isinstance(node, nodes.Await):
            return self._prepare_await(node, path)
        below = tuple(self._prepare(child, (*path, index)) for index, child in enumerate(children(node)))
        return self._add(Op(node, path_text(path), below, self._node_id(node, path)))

    def _prepare_await(self, node: nodes.Await, path: Path) -> Op:
        operand, inner = unlabelled(node.operand), (*path, 0)
        if _call_in(operand) is not None:
            # The effect happens in the call; the await adds nothing.
            return self._prepare(operand, inner)
        if isinstance(operand, nodes.Unwrap):
            # `await h?` waits first and unwraps what came.
            waited = Op(
                node, path_text(path), (self._prepare(operand.operand, (*inner, 0)),), self._node_id(node, path)
            )
            return self._add(Op(operand, path_text(inner), (self._add(waited),)))
        leaves = list(_leaves(operand, inner)) if isinstance(operand, nodes.List | nodes.Record) else []
        if any(_call_in(leaf) is not None for leaf, _ in leaves):
            return self._prepare_batch(node, path, operand)
        return self._add(Op(node, path_text(path), (self._prepare(operand, inner),), self._node_id(node, path)))

    def _prepare_batch(self, node: nodes.Await, path: Path, literal: Expression) -> Op:
        below: list[Op] = []
        calls: list[Call] = []

        def place(part: Expression, at: Path) -> Shape:
            match part:
                case nodes.List():
                    return "list", tuple(place(item, (*at, index)) for index, item in enumerate(part.items))
                case nodes.Record():
                    pairs = enumerate(part.entries)
                    return "record", tuple((key, place(item, (*at, index))) for index, (key, item) in pairs)
            call = _call_in(part)
            if call is None:
                below.append(self._prepare(part, at))
                return "value", len(below) - 1
            unwraps, first = isinstance(part, nodes.Unwrap), len(below)
            inner = (*at, 0) if unwraps else at
            below.extend(self._prepare(each, (*inner, index)) for index, each in enumerate(children(call)))
            site = site_id(self.refs.module_ref, self.entry, at, "resource_operation")
            calls.append(Call(call.operation, first, range(first + 1, len(below)), site, unwraps))
            return "call", len(calls) - 1

        shape = place(literal, (*path, 0))
        plan = BatchPlan(tuple(calls), shape)
        return self._add(Op(node, path_text(path), tuple(below), self._node_id(node, path), plan))

    def _node_id(self, node: Expression, path: Path) -> str:
        kind = "process_event" if isinstance(node, nodes.Print) else site_kind(node)
        return "" if kind is None else site_id(self.refs.module_ref, self.entry, path, kind)

    def _add(self, op: Op) -> Op:
        self._ops[op.path] = op
        return op


_LITERALS: Final = (nodes.List, nodes.Record)


def _call_in(node: Expression) -> nodes.ReceiverCall | None:
    """Return the operation that a node is, with or without a question mark."""
    inner = unlabelled(node.operand) if isinstance(node, nodes.Unwrap) else node
    return inner if isinstance(inner, nodes.ReceiverCall) else None


def _leaves(node: Expression, path: Path) -> Iterator[tuple[Expression, Path]]:
    """Yield what a literal consists of, without the lists and records that only give it its shape."""
    if not isinstance(node, _LITERALS):
        yield node, path
        return
    for index, child in enumerate(children(node)):
        yield from _leaves(child, (*path, index))
