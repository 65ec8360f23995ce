"""A page with plots of a soak, in one file that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.proof.soak.samples import GROWING, Sample

_WIDTH, _HEIGHT, _MARGIN = 640, 180, 8
_MIB: Final = 1024 * 1024
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222; }
figure { margin: 1.5em 0; } figcaption { font-weight: 600; } svg { background: #f6f6f8; width: 100%; height: auto; }
table { border-collapse: collapse; } td, th { padding: .15em .8em; text-align: right; }
th:first-child, td:first-child { text-align: left; } .bad { color: #b00020; }
"""


@dataclass(frozen=True)
class Line:
    """One figure over the rounds."""

    title: str
    unit: str
    points: Sequence[tuple[float, float]]


def page(title: str, samples: Sequence[Sample], problems: Sequence[str]) -> str:
    """Return the report as HTML: the verdict, a plot of each figure, and all figures at rest."""
    verdict = "".join(f'<li class="bad">{html.escape(problem)}</li>' for problem in problems)
    seconds = samples[-1].inside.seconds - samples[0].inside.seconds
    rounds = samples[-1].inside.rounds
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<p>{rounds} rounds in {seconds:.0f} s, {len(samples)} samples. "
        f"{'Everything stayed bounded.' if not problems else 'Beyond their bounds:'}</p><ul>{verdict}</ul>"
        + "".join(plot(line) for line in lines(samples))
        + _tables(samples)
        + "</html>"
    )


def lines(samples: Sequence[Sample]) -> list[Line]:
    """Return the figures that are plotted."""
    rests = [sample for sample in samples if sample.inside.at_rest]
    busy = [sample for sample in samples if not sample.inside.at_rest]

    def over(chosen: Sequence[Sample], values: Sequence[float]) -> list[tuple[float, float]]:
        return [(sample.inside.rounds, value) for sample, value in zip(chosen, values, strict=True)]

    return [
        Line("Memory", "MiB", over(samples, [each.inside.memory_bytes / _MIB for each in samples])),
        Line("Open files", "", over(samples, [each.inside.files for each in samples])),
        Line("Connections", "", over(samples, [each.connections for each in samples])),
        Line("Tasks at rest", "", over(rests, [each.inside.tasks for each in rests])),
        Line("Rows under load", "", over(busy, [sum(each.rows.values()) for each in busy])),
        Line("Rows at rest", "", over(rests, [sum(each.rows.values()) for each in rests])),
        Line("Write-ahead log", "MiB", over(samples, [each.log_bytes / _MIB for each in samples])),
        Line("Database", "MiB", over(samples, [each.database_bytes / _MIB for each in samples])),
        Line("A turn (median)", "ms", over(busy, [each.inside.turn_ms for each in busy])),
        Line("A turn (slowest)", "ms", over(busy, [each.inside.slowest_turn_ms for each in busy])),
    ]


def plot(line: Line) -> str:
    """Return a figure with a curve that begins at zero, and its least and largest value."""
    if not line.points:
        return ""
    most = max(value for _, value in line.points)
    left, right = line.points[0][0], line.points[-1][0]
    across, up = (_WIDTH - 2 * _MARGIN) / ((right - left) or 1), (_HEIGHT - 2 * _MARGIN) / (most or 1)
    curve = " ".join(
        f"{_MARGIN + (place - left) * across:.1f},{_HEIGHT - _MARGIN - value * up:.1f}" for place, value in line.points
    )
    least = min(value for _, value in line.points)
    caption = f"{line.title}: {least:.4g} to {most:.4g} {line.unit}".strip()
    return (
        f"<figure><figcaption>{html.escape(caption)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<polyline fill="none" stroke="#3949ab" stroke-width="2" points="{curve}"/></svg></figure>'
    )


def _tables(samples: Sequence[Sample]) -> str:
    """Return the rows of each table, at the first rest, at the last, and at most."""
    rests = [sample for sample in samples if sample.inside.at_rest]
    rows: list[str] = []
    for table in sorted(rests[-1].rows):
        figures = (rests[0].rows.get(table, 0), rests[-1].rows[table], max(each.rows.get(table, 0) for each in samples))
        cells = "".join(f"<td>{figure}</td>" for figure in figures)
        rows.append(f"<tr><td>{table}</td>{cells}<td>{html.escape(GROWING.get(table, ''))}</td></tr>")
    head = "<tr><th>Table</th><th>first rest</th><th>last rest</th><th>at most</th><th>grows by design</th></tr>"
    return f"<h2>Rows</h2><table>{head}{''.join(rows)}</table>"
