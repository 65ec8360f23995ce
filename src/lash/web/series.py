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
_LEAST: Final = 2.0
"""The height of the smallest bar, so that one failure among thousands of turns is seen."""
_CLOCK: Final = slice(11, 16)
"""The hour and the minute in a moment."""


def series(intervals: Sequence[Throughput], per: str) -> h.Element:
    """Return the drawing. Each bar has a text beside the pointer; the label of the drawing has the sums.

    The bars are stretched to the width of the page, and texts are not, so they stand above and below the bars.
    """
    ended, failed = sum(each.turns for each in intervals), sum(each.failures for each in intervals)
    label = f"{plural(ended, 'turn')} and {plural(failed, 'failure')}, by {per}"
    most = max((each.turns for each in intervals), default=0)
    worst = max((each.failures for each in intervals), default=0)
    wide = _WIDTH / max(len(intervals), 1)
    size = {"viewBox": f"0 0 {_WIDTH} {_UP + _DOWN}", "preserveAspectRatio": "none"}
    bars = (_bars(each, index * wide, wide, max(most, 1), max(worst, 1)) for index, each in enumerate(intervals))
    return h.figure(".series")[
        h.figcaption[
            h.span[f"{plural(most, 'turn')} in the busiest {per}"],
            worst > 0 and h.span(".bad")[f"{plural(worst, 'failure')} in the worst {per}"],
        ],
        h.svg(size, role="img", aria_label=label)[h.line(x1="0", x2=str(_WIDTH), y1=str(_UP), y2=str(_UP)), bars],
        h.div[(h.span[moment(each.at_ms)[_CLOCK]] for each in _shown(intervals))],
    ]


def _bars(at: Throughput, left: float, wide: float, most: int, worst: int) -> h.Element:
    title = f"{moment(at.at_ms)}: {plural(at.turns, 'turn')}, {plural(at.failures, 'failure')}"
    up = max(at.turns * _UP / most, _LEAST) if at.turns else 0.0
    down = max(at.failures * _DOWN / worst, _LEAST) if at.failures else 0.0
    place = {"x": f"{left:.1f}", "width": f"{max(wide - 2, 1):.1f}"}
    return h.g[
        h.title[title],
        # What the pointer is over; an empty interval has a text too.
        h.rect(".back", {"y": "0", "height": str(_UP + _DOWN), **place}),
        up > 0 and h.rect(".turns", {"y": f"{_UP - up:.1f}", "height": f"{up:.1f}", **place}),
        down > 0 and h.rect(".failures", {"y": str(_UP), "height": f"{down:.1f}", **place}),
    ]


def _shown(intervals: Sequence[Throughput]) -> Sequence[Throughput]:
    """Return the intervals whose times stand below the drawing: the first, the middle one, and the last."""
    return (intervals[0], intervals[len(intervals) // 2], intervals[-1]) if intervals else ()
