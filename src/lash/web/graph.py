"""The graph of a session as a drawing: one dot and one line of text for each node, one column for each branch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import htpy as h

from lash.model.session.message import PartKind, Role
from lash.model.session.node import ErasedEntry, MessageEntry, Node
from lash.web.show import line, link

_STEP: Final = 22
_EDGE: Final = 14
_RADIUS: Final = 5
_TONES: Final = (Role.USER.value, Role.ASSISTANT.value)
_MOST_COLUMNS: Final = 12
"""Branches beyond this many share the last column."""
_TEXTS: Final = (PartKind.TEXT, PartKind.PROSE)
_TEXT: Final = 34
"""How many characters of a message stand beside its dot."""
_TEXT_WIDTH: Final = 236


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


class Drawing(NamedTuple):
    """The drawing of one session."""

    session_id: str
    shown: Collection[str]
    """The nodes whose messages are on the page. Their dots lead there, other dots to the page of their branch."""
    forks: Mapping[str, str]
    """Sessions by the node at which they began; each is a square beside its dot, a link to the session."""
    redact: Callable[[str], str]

    def draw(self, dots: Sequence[Dot]) -> h.Element:
        """Return the drawing. Every dot is a link with a text for screen readers."""
        columns = max((dot.column for dot in dots), default=0) + any(dot.node.node_id in self.forks for dot in dots)
        texts = _EDGE * 2 + columns * _STEP
        width, height = texts + _TEXT_WIDTH, _EDGE * 2 + max(len(dots) - 1, 0) * _STEP
        lines = (_line(dot, dots[dot.parent]) for dot in dots if dot.parent is not None)
        return h.svg(".graph", viewBox=f"0 0 {width} {height}", width=str(width), height=str(height))[
            lines,
            (self._fork(dot, columns) for dot in dots if dot.node.node_id in self.forks),
            (self._dot(dot, texts) for dot in dots),
        ]

    def _fork(self, dot: Dot, column: int) -> h.Element:
        session_id = self.forks[dot.node.node_id]
        (x, y), right = _point(dot), _EDGE + column * _STEP
        name = line(f"fork {session_id}", 80)
        return h.a(".fork", href=link("session", id=session_id), aria_label=name)[
            h.title[name],
            h.path(d=f"M{x} {y} H{right}", class_="side"),
            h.rect(x=str(right - _RADIUS), y=str(y - _RADIUS), width=str(_RADIUS * 2), height=str(_RADIUS * 2)),
        ]

    def _dot(self, dot: Dot, texts: int) -> h.Element:
        node, (x, y) = dot.node, _point(dot)
        kind, text = _kind(node), line(self.redact(_words(node)), _TEXT)
        tone = kind if kind in _TONES else "other"
        name = line(f"{kind}: {text or node.node_id}", 80)
        here = f"#{anchor(node.node_id)}" if node.node_id in self.shown else None
        address = here or link("session", id=self.session_id, leaf=node.node_id)
        return h.a(href=address, aria_label=name)[
            h.title[name],
            h.circle(cx=str(x), cy=str(y), r=str(_RADIUS), class_=[tone, "active" if dot.is_active else "side"]),
            h.text(x=str(texts), y=str(y + 4), class_=None if dot.is_active else "side")[text or kind],
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


def _kind(node: Node) -> str:
    return node.entry.message.role.value if isinstance(node.entry, MessageEntry) else node.kind


def _words(node: Node) -> str:
    """Return the begin of a message, and nothing of other nodes: the text of a redacted one may be longer."""
    if not isinstance(node.entry, MessageEntry):
        return "erased" if isinstance(node.entry, ErasedEntry) else ""
    parts = node.entry.message.parts
    texts = [part.content[: _TEXT * 10] for part in parts if part.kind in _TEXTS]
    return " ".join(texts or [part.tool_name or part.kind.value.replace("_", " ") for part in parts[:1]])
