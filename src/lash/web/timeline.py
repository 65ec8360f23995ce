"""The timeline of a process as a drawing: steps as bars, attempts and ends as marks, on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import htpy as h

from lash.model.session.trace import TurnTrace
from lash.web.show import line

_ROW: Final = 24
_LABELS: Final = 260
_WIDTH: Final = 900
_LEAST_BAR: Final = 3.0
_MOST_ROWS: Final = 300
"""How many bars a drawing has; a process of thousands of steps shows the last ones."""


class TimelineBar(NamedTuple):
    """Something that took time, or a moment if both times are equal."""

    name: str
    began_ms: int
    ended_ms: int
    tone: str
    """How it ended: ``good``, ``bad``, ``warn``, or ``mark`` for a moment."""
    note: str = ""
    address: str | None = None
    """Where the bar leads."""


def trace_bars(trace: TurnTrace) -> list[TimelineBar]:
    """Return the steps of a committed turn as bars."""
    return [
        TimelineBar(
            step.name,
            step.began_at_ms,
            step.began_at_ms + step.took_ms,
            "good" if step.error is None else "bad",
            " · ".join(each for each in (f"attempt {step.attempt}", step.worker, step.error) if each),
        )
        for step in trace.steps
    ]


def timeline(bars: Sequence[TimelineBar]) -> h.Node:
    """Return the drawing of bars in the order of their beginnings; nothing without bars."""
    shown = sorted(bars, key=lambda bar: bar.began_ms)[-_MOST_ROWS:]
    if not shown:
        return None
    began = min(bar.began_ms for bar in shown)
    span = max(max(bar.ended_ms for bar in shown) - began, 1)
    height = len(shown) * _ROW + _ROW
    rows = (_bar(bar, index, began, span) for index, bar in enumerate(shown))
    # Bars may be links, which an image cannot contain.
    role = "group" if any(bar.address for bar in shown) else "img"
    return h.svg(".timeline", viewBox=f"0 0 {_LABELS + _WIDTH + 20} {height}", role=role, aria_label="Timeline")[
        _axis(span, height), rows
    ]


def _axis(span: int, height: int) -> list[h.Element]:
    ticks = [(index, _LABELS + index * _WIDTH / 4) for index in range(5)]
    return [
        h.g(".axis")[
            h.line(x1=f"{x:.1f}", x2=f"{x:.1f}", y1=str(_ROW), y2=str(height)),
            h.text(x=f"{x:.1f}", y="14", text_anchor="start" if index == 0 else "end")[duration(span * index // 4)],
        ]
        for index, x in ticks
    ]


def _bar(bar: TimelineBar, index: int, began: int, span: int) -> h.Element:
    top = _ROW + index * _ROW
    left = _LABELS + (bar.began_ms - began) * _WIDTH / span
    width = max((bar.ended_ms - bar.began_ms) * _WIDTH / span, _LEAST_BAR)
    took = duration(bar.ended_ms - bar.began_ms) if bar.ended_ms > bar.began_ms else ""
    title = " · ".join(each for each in (line(bar.name, 80), took, line(bar.note, 120)) if each)
    drawn = (
        h.title[title],
        h.text(x="0", y=str(top + 16))[line(bar.name, 36)],
        h.rect(x=f"{left:.1f}", y=str(top + 4), width=f"{width:.1f}", height=str(_ROW - 8), rx="2"),
    )
    inner = drawn if bar.address is None else h.a(href=bar.address, aria_label=title)[drawn]
    return h.g(class_=["bar", bar.tone])[inner]


def duration(milliseconds: int) -> str:
    """Return a duration for people: ``12 ms``, ``3.4 s``, ``5.2 min``."""
    if milliseconds < 1_000:  # noqa: PLR2004 (a second)
        return f"{milliseconds} ms"
    seconds = milliseconds / 1_000
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"  # noqa: PLR2004 (two minutes)
