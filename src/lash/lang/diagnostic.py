"""Diagnostics: what is wrong with a program, where, and how to fix it.

The text of a diagnostic is written for models as well as for people: one sentence, the place, the line with a caret,
and a hint if there is a usual remedy.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from lash.errors import InvalidInput
from lash.lang.syntax.span import Span

Stage: TypeAlias = Literal["lex", "parse", "link", "run"]

_MAX_LINE: Final = 120
"""Longer source lines are shown in part."""
_CONTEXT: Final = 40
"""Characters before the caret that such a part begins with."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error of a program. ``kind`` is stable and meant for programs; the texts are for people and models."""

    stage: Stage
    kind: str
    message: str
    span: Span | None = None
    hint: str | None = None


class ProgramError(InvalidInput):
    """A program that cannot be used; its text is the rendered diagnostic."""

    def __init__(self, diagnostic: Diagnostic, source: str | None = None) -> None:
        super().__init__(render(diagnostic, source))
        self.diagnostic = diagnostic

    @property
    def kind(self) -> str:
        """The kind of the diagnostic, such as ``unknown-name``."""
        return self.diagnostic.kind


def render(diagnostic: Diagnostic, source: str | None = None) -> str:
    """Return the text of a diagnostic; the place needs the source text."""
    lines = [diagnostic.message]
    if source is not None and diagnostic.span is not None:
        lines += _place(source, diagnostic.span)
    if diagnostic.hint is not None:
        lines.append(f"hint: {diagnostic.hint}")
    return "\n".join(lines)


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of an offset, both from 1. Only a line feed ends a line."""
    start = source.rfind("\n", 0, offset) + 1
    return source.count("\n", 0, start) + 1, offset - start + 1


def _place(source: str, span: Span) -> list[str]:
    """Return the place, the source line, and a caret below it with tildes to the end of the span."""
    number, column = line_and_column(source, min(span.start, len(source)))
    start = span.start - (column - 1)
    end = source.find("\n", start)
    line = source[start : len(source) if end < 0 else end]
    begin, stop = column - 1, max(column, min(span.end - start, len(line)))
    cut = begin - _CONTEXT if len(line) > _MAX_LINE and begin > _CONTEXT else 0
    shown = line[cut : cut + _MAX_LINE]
    indent = sum(map(_width, shown[: begin - cut]))
    marked = max(1, sum(map(_width, shown[begin - cut : stop - cut])))
    margin = f"{number} | "
    return [
        f"--> line {number}, column {column}",
        margin + "".join(map(_visible, shown)).rstrip(),
        " " * (len(margin) + indent) + "^" + "~" * (marked - 1),
    ]


def _visible(letter: str) -> str:
    """Return a character that neither moves nor drives a terminal."""
    if letter == "\t":
        return " "
    return letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1
