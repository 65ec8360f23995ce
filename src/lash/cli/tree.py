"""Draws a conversation graph with its branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lash.cli.output import Line, Piece

if TYPE_CHECKING:
    from lash.model.session.node import Graph, Node


class Signs(NamedTuple):
    """The characters of a drawing."""

    branch: str
    beside: str
    active: str
    other: str


LINES = Signs(branch="├─", beside="│ ", active="●", other="○")
ASCII = Signs(branch="|-", beside="| ", active="*", other="o")


class TreeLine(NamedTuple):
    """One line of a drawing: the node, its prefix, and whether it is on the active path."""

    node: Node
    lead: str
    depth: int
    active: bool
    leaf: bool


def active_path(graph: Graph) -> frozenset[str]:
    """Return the ids of the nodes from the leaf up to the root, or to the last ancestor that was not removed."""
    parents = {node.node_id: node.parent_node_id for node in graph.nodes}
    path: set[str] = set()
    node_id = graph.leaf_node_id
    while node_id is not None and node_id in parents and node_id not in path:
        path.add(node_id)
        node_id = parents[node_id]
    return frozenset(path)


def tree_lines(graph: Graph, signs: Signs = LINES) -> Iterator[TreeLine]:
    """Yield the lines of the graph, parents first.

    The active path, or else the newest branch, goes straight down; the other branches stand to its right, above the
    place where it goes on.
    """
    path = active_path(graph)
    children = _children(graph)
    # An explicit stack: a conversation may be deeper than Python's recursion limit.
    stack = [(node, lead, rest, 0) for node, lead, rest in _placed(children.get(None, []), "", path, signs)]
    while stack:
        node, lead, rest, depth = stack.pop()
        yield TreeLine(node, lead, depth, node.node_id in path, node.node_id == graph.leaf_node_id)
        below = _placed(children.get(node.node_id, []), rest, path, signs)
        stack.extend((child, first, others, depth + 1) for child, first, others in below)


def render(line: TreeLine, describe: Callable[[Node], str], signs: Signs) -> Line:
    """Return one line of the drawing."""
    mark = Piece(signs.active, "active") if line.active else Piece(signs.other)
    arrow = "  <- head" if line.leaf else ""
    return Piece(line.lead), mark, Piece(f" {describe(line.node)}{arrow}")


def _children(graph: Graph) -> dict[str | None, list[Node]]:
    known = {node.node_id for node in graph.nodes}
    children: dict[str | None, list[Node]] = {}
    for node in graph.nodes:
        parent = node.parent_node_id if node.parent_node_id in known else None
        children.setdefault(parent, []).append(node)
    return children


def _placed(siblings: Sequence[Node], rest: str, path: frozenset[str], signs: Signs) -> Iterator[tuple[Node, str, str]]:
    """Return nodes with their prefixes and those of their children, in reverse order of drawing."""
    if not siblings:
        return
    straight = next((node for node in siblings if node.node_id in path), siblings[-1])
    yield straight, rest, rest
    for node in reversed(siblings):
        if node is not straight:
            yield node, rest + signs.branch, rest + signs.beside
