"""Tables of plain columns, in the style of docker and kubectl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lash.cli.output import Line, Piece, one_line
from lash.cli.text import shortened, width_of

_GAP: Final = "   "
_NARROWEST: Final = 12


class Column(NamedTuple):
    """One column. A stretching one is cut if the terminal is narrow; the words of a ``state`` column are coloured."""

    title: str
    stretch: bool = False
    right: bool = False
    state: bool = False


def draw(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None) -> list[Line]:
    """Return the lines of a table, cut to a width if there is one. Each row is one line, whatever was stored."""
    cells = [[one_line(cell) or "-" for cell in row] for row in rows]
    widths = [
        max(width_of(column.title), *(width_of(row[index]) for row in cells), 0) for index, column in enumerate(columns)
    ]
    if width is not None:
        widths = _fitted(columns, widths, width)
    titles = [Piece(column.title, "heading") for column in columns]
    return [_line(columns, titles, widths), *(_line(columns, _pieces(columns, row), widths) for row in cells)]


def _pieces(columns: Sequence[Column], row: Sequence[str]) -> list[Piece]:
    return [
        Piece(cell, cell.split(" ", 1)[0].casefold() if column.state else "")
        for column, cell in zip(columns, row, strict=True)
    ]


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


def _line(columns: Sequence[Column], row: Sequence[Piece], widths: Sequence[int]) -> Line:
    pieces: list[Piece] = []
    for column, piece, width in zip(columns, row, widths, strict=True):
        shown = Piece(shortened(piece.text, width), piece.word)
        padding = Piece(" " * (width - width_of(shown.text)))
        pieces.extend((padding, shown) if column.right else (shown, padding))
        pieces.append(Piece(_GAP))
    while pieces and not pieces[-1].text.strip():
        pieces.pop()
    return pieces
