"""Plots as SVG, made of text alone. They follow the reader's light or dark theme as far as an image can."""

from __future__ import annotations

from html import escape
from typing import Any

from benchmarks.kit.curve import Point, curves

_WIDTH, _LABELS, _ROW, _TOP = 860, 430, 24, 34
_FONT = 'font-family="system-ui, sans-serif" font-size="13"'
_OURS, _OTHERS, _INK, _RANGE = "#4051b5", "#9aa0b4", "#6b7080", "#d08a2e"


def plot(result: dict[str, Any]) -> str:
    """Return the figures of the unit that the headline has: curves if each is a point of one, or a bar for each."""
    rows = [row for row in result["rows"] if row["unit"] == result["unit"]]
    title = f"{result['scenario']}: {result['unit']}, {result['better']} is better"
    if rows and all("at" in row for row in rows):
        return curves(title, "worker processes", _series(rows))
    return _chart(title, rows)


def _series(rows: list[dict[str, Any]]) -> dict[str, list[Point]]:
    """Return the points of each contender and case; the number of workers, which a case names, is across."""
    series: dict[str, list[Point]] = {}
    for row in rows:
        point = Point(row["at"], row["median"], min(row["values"]), max(row["values"]))
        case = [part for part in row["case"].split(", ") if "worker" not in part]
        series.setdefault(", ".join((row["contender"], *case)), []).append(point)
    return series


def _chart(title: str, rows: list[dict[str, Any]]) -> str:
    top = max((max(row["values"]) for row in rows), default=1.0) or 1.0
    height = _TOP + _ROW * len(rows) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" {_FONT}>',
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="18" font-weight="600" fill="{_INK}">{escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        lines += _bar(row, _TOP + _ROW * number, top)
    return "\n".join([*lines, "</svg>", ""])


def _bar(row: dict[str, Any], y: int, top: float) -> list[str]:
    room = _WIDTH - _LABELS - 110
    width, low, high = (room * value / top for value in (row["median"], min(row["values"]), max(row["values"])))
    colour = _OURS if row["contender"] == "lash" else _OTHERS
    middle = y + _ROW // 2 - 2
    label = f"{escape(row['contender'])}, {escape(row['case'])}"
    ends = f'x1="{_LABELS + low:.1f}" x2="{_LABELS + high:.1f}" y1="{middle}" y2="{middle}"'
    return [
        f'<text x="{_LABELS - 8}" y="{middle + 4}" text-anchor="end" fill="{_INK}">{label}</text>',
        f'<rect x="{_LABELS}" y="{y + 2}" width="{width:.1f}" height="{_ROW - 8}" rx="2" fill="{colour}"/>',
        f'<line {ends} stroke="{_RANGE}" stroke-width="2"/>',
        f'<text x="{_LABELS + max(width, high) + 6:.1f}" y="{middle + 4}" fill="{_INK}">{row["median"]:,.4g}</text>',
    ]
