"""The graph of a session as a drawing: one dot for each node, one column for each branch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import htpy as h

from lash.model.session.message import Role
from lash.model.session.node import MessageEntry, Node
from lash.web.show import line, link

_STEP: Final = 22
_EDGE: Final = 14
_RADIUS: Final = 5
_TONES: Final = (Role.USER.value, Role.ASSISTANT.value)
_MOST_COLUMNS: Final = 12
"""Branches beyond this many share the last column."""


class Dot(NamedTuple):
    """A node and its place in the drawing."""

    node: Node
    row: int
    column: int
    parent: int | None
    """The row of the parent, if it is drawn."""
    is_active: bool


def laid_out(nodes: Sequence[Node], active: Sequence[Node]) -> list[Dot]:
    """Return nodes in the order of insertion with a column each: a first child continues the column of its parent."""
    on_path = {node.node_id for node in active}
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    continued: set[str] = set()
    newest = 0
    dots: list[Dot] = []
    for row, node in enumerate(nodes):
        parent = node.parent_node_id
        if parent in rows and parent not in continued:
            column = columns[parent]
        else:
            column = newest
            newest += 1
        if parent is not None:
            continued.add(parent)
        rows[node.node_id], columns[node.node_id] = row, column
        above = rows.get(parent) if parent is not None else None
        dots.append(Dot(node, row, min(column, _MOST_COLUMNS - 1), above, node.node_id in on_path))
    return dots


def drawing(dots: Sequence[Dot], forks: Mapping[str, str]) -> h.Element:
    """Return the drawing. Every dot is a link to its message on the page, with a text for screen readers.

    ``forks`` are sessions by the node at which they began; each is a square beside its dot, a link to the session.
    """
    columns = max((dot.column for dot in dots), default=0) + any(dot.node.node_id in forks for dot in dots)
    width = _EDGE * 2 + columns * _STEP
    height = _EDGE * 2 + max(len(dots) - 1, 0) * _STEP
    lines = (_line(dot, dots[dot.parent]) for dot in dots if dot.parent is not None)
    return h.svg(".graph", viewBox=f"0 0 {width} {height}", width=str(width), height=str(height))[
        lines,
        (_fork(dot, columns, forks[dot.node.node_id]) for dot in dots if dot.node.node_id in forks),
        (_dot(dot) for dot in dots),
    ]


def anchor(node_id: str) -> str:
    """Return the id of a node's message on a page; ids of nodes may have any characters."""
    return f"n-{hashlib.sha256(node_id.encode()).hexdigest()[:16]}"


def _point(dot: Dot) -> tuple[int, int]:
    return _EDGE + dot.column * _STEP, _EDGE + dot.row * _STEP


def _line(dot: Dot, parent: Dot) -> h.Element:
    (x, y), (left, top) = _point(dot), _point(parent)
    path = f"M{left} {top} V{y}" if x == left else f"M{left} {top} C{left} {top + _STEP} {x} {y - _STEP} {x} {y}"
    return h.path(d=path, class_="active" if dot.is_active else "side")


def _fork(dot: Dot, column: int, session_id: str) -> h.Element:
    (x, y), right = _point(dot), _EDGE + column * _STEP
    name = line(f"fork {session_id}", 80)
    return h.a(".fork", href=link("session", id=session_id), aria_label=name)[
        h.title[name],
        h.path(d=f"M{x} {y} H{right}", class_="side"),
        h.rect(x=str(right - _RADIUS), y=str(y - _RADIUS), width=str(_RADIUS * 2), height=str(_RADIUS * 2)),
    ]


def _dot(dot: Dot) -> h.Element:
    x, y = _point(dot)
    entry = dot.node.entry
    kind = entry.message.role.value if isinstance(entry, MessageEntry) else dot.node.kind
    tone = kind if kind in _TONES else "other"
    name = line(f"{kind} {dot.node.node_id}", 80)
    return h.a(href=f"#{anchor(dot.node.node_id)}", aria_label=name)[
        h.title[name],
        h.circle(cx=str(x), cy=str(y), r=str(_RADIUS), class_=[tone, "active" if dot.is_active else "side"]),
    ]
