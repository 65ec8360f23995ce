"""The timeline of a turn or process as a drawing: steps as bars, moments and lost attempts as marks, on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import htpy as h

from lash.model.session.trace import TraceStep, TurnTrace
from lash.web.show import Redact, line

_ROW: Final = 24
_LABELS: Final = 210
_WIDTH: Final = 660
_AFTER: Final = 60
"""The room for the duration behind a bar that reaches the end."""
_LEAST_BAR: Final = 3.0
_MARK: Final = 6
_MOST_ROWS: Final = 300
"""How many bars a drawing has; a process of thousands of steps shows the last ones."""
_KINDS: Final = {"sleep": "wait", "await_event": "wait"}
"""The tone of steps that are pauses; that of others depends on their end."""


class TimelineBar(NamedTuple):
    """Something that took time, or a moment."""

    name: str
    began_ms: int
    ended_ms: int
    tone: str
    """How it ended: ``good``, ``bad`` or ``warn``; ``wait`` for a pause."""
    note: str = ""
    address: str | None = None
    """Where the bar leads."""
    is_mark: bool = False
    """Whether it is a moment; its end does not count."""


def step_tone(kind: str, ended: str) -> str:
    """Return the tone of a step: a pause that did not fail has a tone of its own."""
    return _KINDS.get(kind, ended) if ended != "bad" else ended


def trace_bars(trace: TurnTrace) -> list[TimelineBar]:
    """Return the steps of a committed turn as bars, with a mark where an attempt ended before the turn did."""
    bars = [
        TimelineBar(
            step.name,
            step.began_at_ms,
            step.began_at_ms + step.took_ms,
            step_tone(step.kind, "good" if step.error is None else "bad"),
            " · ".join(each for each in (_attempt(step), step.worker, step.error) if each),
        )
        for step in trace.steps
    ]
    how = "ended" if trace.failures and trace.crashes else "failed" if trace.failures else "crashed"
    marks = lost_attempts(((s.attempt, s.began_at_ms, s.began_at_ms + s.took_ms) for s in trace.steps), how)
    seen = max((step.attempt for step in trace.steps), default=1)
    if trace.attempts > seen:
        marks.append(_lost(trace.attempts - 1, trace.began_at_ms, how))
    return [*bars, *marks]


def lost_attempts(steps: Iterable[tuple[int, int, int]], how: str) -> list[TimelineBar]:
    """Return a mark where a step of a higher attempt follows: an earlier attempt ended there, without a record.

    Each step is its attempt, its begin and its end. The attempts of a process are counted from 1 after each pause.
    """
    marks: list[TimelineBar] = []
    attempt, last = 1, None
    for number, began, ended in sorted(steps, key=lambda step: step[1]):
        if number > attempt:
            marks.append(_lost(number - 1, began if last is None else last, how))
        attempt, last = number, ended
    return marks


def _lost(attempt: int, at_ms: int, how: str) -> TimelineBar:
    return TimelineBar(f"attempt {attempt} {how}", at_ms, at_ms, "bad", is_mark=True)


def _attempt(step: TraceStep) -> str:
    tries = f", {step.tries} tries" if step.tries > 1 else ""
    return f"attempt {step.attempt}{tries}"


def timeline(bars: Sequence[TimelineBar], redact: Redact) -> h.Node:
    """Return the drawing of bars in the order of their beginnings; nothing without bars."""
    newest = sorted(bars, key=lambda bar: (bar.began_ms, not bar.is_mark))[-_MOST_ROWS:]
    shown = [bar._replace(name=redact(bar.name), note=redact(bar.note)) for bar in newest]
    if not shown:
        return None
    began = min(bar.began_ms for bar in shown)
    span = max(max(bar.ended_ms for bar in shown) - began, 1)
    height = len(shown) * _ROW + _ROW
    rows = (_bar(bar, index, began, span) for index, bar in enumerate(shown))
    # Bars may be links, which an image cannot contain.
    role = "group" if any(bar.address for bar in shown) else "img"
    box = f"0 0 {_LABELS + _WIDTH + _AFTER} {height}"
    return h.svg(".timeline", viewBox=box, role=role, aria_label="Timeline")[_axis(span, height), rows]


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
    took = "" if bar.is_mark else duration(bar.ended_ms - bar.began_ms)
    title = " · ".join(each for each in (line(bar.name, 80), took, line(bar.note, 120)) if each)
    drawn = (
        h.title[title],
        h.rect(".back", x="0", y=str(top), width=str(_LABELS + _WIDTH + _AFTER), height=str(_ROW)),
        h.text(x="0", y=str(top + 16))[line(bar.name, 30)],
        _mark(left, top) if bar.is_mark else _length(bar, left, top, span, took),
    )
    inner = drawn if bar.address is None else h.a(href=bar.address, aria_label=title)[drawn]
    return h.g(class_=["bar", bar.tone])[inner]


def _mark(left: float, top: int) -> h.Element:
    middle = top + _ROW // 2
    points = ((left, middle - _MARK), (left + _MARK, middle), (left, middle + _MARK), (left - _MARK, middle))
    return h.polygon(points=" ".join(f"{x:.1f},{y}" for x, y in points))


def _length(bar: TimelineBar, left: float, top: int, span: int, took: str) -> tuple[h.Element, h.Element]:
    width = max((bar.ended_ms - bar.began_ms) * _WIDTH / span, _LEAST_BAR)
    return (
        h.rect(x=f"{left:.1f}", y=str(top + 5), width=f"{width:.1f}", height=str(_ROW - 10), rx="3"),
        h.text(".took", x=f"{left + width + 6:.1f}", y=str(top + 16))[took],
    )


def duration(milliseconds: int) -> str:
    """Return a duration for people: ``12 ms``, ``3.4 s``, ``5.2 min``, ``3 h``."""
    if milliseconds < 1_000:  # noqa: PLR2004 (a second)
        return f"{milliseconds} ms"
    seconds = milliseconds / 1_000
    if seconds < 120:  # noqa: PLR2004 (two minutes)
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.3g} min" if minutes < 120 else f"{minutes / 60:.3g} h"  # noqa: PLR2004 (two hours)
