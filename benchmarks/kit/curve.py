"""Curves as SVG, made of text alone: figures over the number of workers, or over another number that doubles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 860, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 630, 40, 292
_NAMES_APART = 17
_FONT = 'font-family="system-ui, sans-serif" font-size="13"'
_INK, _GRID = "#6b7080", "#9aa0b444"
_COLOURS = ("#4051b5", "#d08a2e", "#2e8b7a", "#a0508f", "#9aa0b4")
_STEPS = (1, 2, 2.5, 5, 10)


class Point(NamedTuple):
    """One figure of a curve, with its extremes."""

    at: float
    value: float
    low: float
    high: float


def curves(title: str, across: str, series: Mapping[str, Sequence[Point]], unit: str = "") -> str:
    """Return one line for each series, with its name at its end; the horizontal scale is logarithmic."""
    points = [point for each in series.values() for point in each]
    scale = _Scale([point.at for point in points], max(point.high for point in points))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" {_FONT}>',
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="18" font-weight="600" fill="{_INK}">{escape(title)}</text>',
        *_axes(scale, sorted({point.at for point in points}), across, unit),
    ]
    heights = _apart({name: scale.y(each[-1].value) for name, each in series.items()})
    for number, (name, each) in enumerate(series.items()):
        lines += _line(scale, each, _COLOURS[number % len(_COLOURS)])
        label = f"{name}: {_number(each[-1].value)}{unit}"
        colour = _COLOURS[number % len(_COLOURS)]
        lines.append(f'<text x="{_RIGHT + 12}" y="{heights[name] + 4:.1f}" fill="{colour}">{escape(label)}</text>')
    return "\n".join([*lines, "</svg>", ""])


class _Scale:
    """Places figures in the picture: logarithmic across, and linear from zero upwards."""

    def __init__(self, across: Sequence[float], top: float) -> None:
        self._low = math.log2(min(across))
        self._wide = math.log2(max(across)) - self._low or 1.0
        self.step = nice_step(top)
        self.top = self.step * math.ceil(top / self.step) or 1.0

    def x(self, at: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (math.log2(at) - self._low) / self._wide

    def y(self, value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * value / self.top


def nice_step(top: float) -> float:
    """Return a round distance of grid lines, of which four to ten fit below the highest figure."""
    if top <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(top / 4))
    return max(size * step for step in _STEPS if size * step <= top / 4)


def _number(value: float) -> str:
    """Return at least three digits, and none behind the point that would be zero."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _axes(scale: _Scale, across: Sequence[float], name: str, unit: str) -> Iterable[str]:
    for number in range(round(scale.top / scale.step) + 1):
        y = scale.y(number * scale.step)
        yield f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_GRID}"/>'
        text = f"{_number(number * scale.step)}{unit}"
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{_INK}">{text}</text>'
    for at in across:
        yield f'<text x="{scale.x(at):.1f}" y="{_BOTTOM + 20}" text-anchor="middle" fill="{_INK}">{_number(at)}</text>'
    middle = (_LEFT + _RIGHT) / 2
    yield f'<text x="{middle}" y="{_BOTTOM + 40}" text-anchor="middle" fill="{_INK}">{escape(name)}</text>'


def _line(scale: _Scale, points: Sequence[Point], colour: str) -> Iterable[str]:
    path = " ".join(f"{scale.x(point.at):.1f},{scale.y(point.value):.1f}" for point in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for point in points:
        x, low, high = scale.x(point.at), scale.y(point.low), scale.y(point.high)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
        yield f'<circle cx="{x:.1f}" cy="{scale.y(point.value):.1f}" r="3.5" fill="{colour}"/>'


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """Return heights at which names do not cover each other, from the lowest upwards."""
    placed: dict[str, float] = {}
    free = math.inf
    for name, height in sorted(heights.items(), key=lambda item: -item[1]):
        placed[name] = min(height, free)
        free = placed[name] - _NAMES_APART
    return placed
