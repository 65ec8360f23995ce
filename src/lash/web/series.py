"""Throughput as a drawing: one bar for each interval, turns upwards and failures downwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import htpy as h

from lash.cli.text import moment, plural
from lash.model.maintenance import Throughput

_WIDTH: Final = 960
_UP: Final = 90
"""The height of the bars of turns."""
_DOWN: Final = 36
"""The height of the bars of failures."""
_TOP: Final = 16
_LEAST: Final = 2.0
"""The height of the smallest bar, so that one failure among thousands of turns is seen."""
_CLOCK: Final = slice(11, 16)
"""The hour and the minute in a moment."""


def series(intervals: Sequence[Throughput], per: str) -> h.Element:
    """Return the drawing. Each bar has a text beside the pointer; the label of the drawing has the sums."""
    ended, failed = sum(each.turns for each in intervals), sum(each.failures for each in intervals)
    label = f"{plural(ended, 'turn')} and {plural(failed, 'failure')}, by {per}"
    most, worst = (
        max((each.turns for each in intervals), default=0),
        max((each.failures for each in intervals), default=0),
    )
    wide = _WIDTH / max(len(intervals), 1)
    base, height = _TOP + _UP, _TOP + _UP + _DOWN + 18
    return h.svg(".series", viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=label)[
        h.line(x1="0", x2=str(_WIDTH), y1=str(base), y2=str(base)),
        (_bars(each, index * wide, wide, base, max(most, 1), max(worst, 1)) for index, each in enumerate(intervals)),
        h.text(x="0", y="11")[f"{plural(most, 'turn')} in the busiest {per}"],
        worst > 0
        and h.text(".bad", x=str(_WIDTH), y="11", text_anchor="end")[f"{plural(worst, 'failure')} in the worst {per}"],
        _clock(intervals, height),
    ]


def _bars(at: Throughput, left: float, wide: float, base: int, most: int, worst: int) -> h.Element:
    failed = at.failures
    title = f"{moment(at.at_ms)}: {plural(at.turns, 'turn')}, {plural(failed, 'failure')}"
    up = max(at.turns * _UP / most, _LEAST) if at.turns else 0.0
    down = max(failed * _DOWN / worst, _LEAST) if failed else 0.0
    place = {"x": f"{left:.1f}", "width": f"{max(wide - 2, 1):.1f}"}
    return h.g[
        h.title[title],
        # What the pointer is over; an empty interval has a text too.
        h.rect(".back", {"y": str(_TOP), "height": str(_UP + _DOWN), **place}),
        up > 0 and h.rect(".turns", {"y": f"{base - up:.1f}", "height": f"{up:.1f}", **place}),
        down > 0 and h.rect(".failures", {"y": f"{base + 1:.1f}", "height": f"{down:.1f}", **place}),
    ]


def _clock(intervals: Sequence[Throughput], height: int) -> list[h.Element]:
    """Return the times below the drawing: that of the first bar, of the middle one, and of the last."""
    if not intervals:
        return []
    shown = (("start", 0, intervals[0]), ("middle", _WIDTH // 2, intervals[len(intervals) // 2]))
    last = ("end", _WIDTH, intervals[-1])
    return [
        h.text(x=str(x), y=str(height - 3), text_anchor=anchor)[moment(each.at_ms)[_CLOCK]]
        for anchor, x, each in (*shown, last)
    ]
