"""Tables of plain columns, in the style of docker and kubectl."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import click

from lash.cli.text import clean, shortened, width_of

_GAP: Final = "   "
_NARROWEST: Final = 12
_COLOURS: Final = {
    **dict.fromkeys(("running", "completed", "enabled", "ok", "started", "ready", "active"), "green"),
    **dict.fromkeys(("failed", "fail", "abandoned", "rejected", "unknown"), "red"),
    **dict.fromkeys(("waiting", "cancelled", "disabled", "warn", "delayed", "in_progress", "cancelling"), "yellow"),
}

Paint = Callable[[str, str], str]
"""Colours a text by a word such as a state, or leaves it unchanged."""


class Column(NamedTuple):
    """One column. A stretching one is cut if the terminal is narrow; the words of a ``state`` column are coloured."""

    title: str
    stretch: bool = False
    right: bool = False
    state: bool = False


def colour(text: str, word: str) -> str:
    """Return the text in the colour of a state, headings in bold."""
    if word == "heading":
        return click.style(text, bold=True)
    return click.style(text, fg=_COLOURS[word]) if word in _COLOURS else text


def plainly(text: str, word: str) -> str:  # noqa: ARG001 (one of the two ways to paint)
    """Return the text unchanged."""
    return text


def draw(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None, paint: Paint) -> list[str]:
    """Return the lines of a table, cut to a width if there is one. Control characters are escaped."""
    cells = [[clean(cell) or "-" for cell in row] for row in rows]
    widths = [
        max(width_of(column.title), *(width_of(row[index]) for row in cells), 0) for index, column in enumerate(columns)
    ]
    if width is not None:
        widths = _fitted(columns, widths, width)
    heading = _line(columns, [column.title for column in columns], widths, lambda text, _word: paint(text, "heading"))
    return [heading, *(_line(columns, row, widths, paint) for row in cells)]


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Shrink the stretching columns, the widest first; the others hold ids and are never cut."""
    fitted = list(widths)
    excess = sum(fitted) + len(_GAP) * (len(fitted) - 1) - width
    stretching = [index for index, column in enumerate(columns) if column.stretch]
    while excess > 0 and stretching:
        widest = max(stretching, key=lambda index: fitted[index])
        if fitted[widest] <= _NARROWEST:
            break
        fitted[widest] -= 1
        excess -= 1
    return fitted


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], paint: Paint) -> str:
    cells: list[str] = []
    for column, text, width in zip(columns, row, widths, strict=True):
        shown = shortened(text, width)
        padding = " " * (width - width_of(shown))
        word = text.split(" ", 1)[0].casefold() if column.state else ""
        painted = paint(shown, word)
        cells.append(padding + painted if column.right else painted + padding)
    return _GAP.join(cells).rstrip()
