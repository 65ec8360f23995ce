"""The metrics of one program in the text format of Prometheus."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from lash.runtime.hooks import Attributes, Hook
from lash.telemetry.figures import FIGURES, SECONDS, Figure, FigureHook, FigureKind, Labels

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_UNITS: Final = {SECONDS: "_seconds", "By": ""}
_STALE_S: Final = 60.0
"""A gauge that was not measured for this long is left out: another worker measures it now."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class PrometheusHook(Hook):
    """Keeps the metrics of `lash.telemetry.figures`, for ``App(url, hooks=[PrometheusHook()])``.

    `text` returns them; a worker of the command line with ``--http`` serves them without further code. The hook may be
    read from any thread.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = _Registry(clock)
        self._figures = FigureHook(self._registry)

    def span(self, kind: str, attributes: Attributes) -> AbstractContextManager[None]:
        return self._figures.timing(kind, attributes)

    def note(self, kind: str, attributes: Attributes) -> None:
        self._figures.note(kind, attributes)

    def measure(self, name: str, value: float, attributes: Attributes) -> None:
        self._figures.measure(name, value, attributes)

    def statement(self, name: str) -> None:
        self._figures.statement(name)

    def text(self) -> str:
        """Return all figures in the text format."""
        return self._registry.text()


class _Registry:
    """Counters, histograms and gauges by their labels."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Statements are counted in the threads that send them, and a scrape reads in its own.
        self._lock = threading.Lock()
        self._counters: dict[str, dict[str, float]] = {}
        self._histograms: dict[str, dict[str, _Histogram]] = {}
        self._gauges: dict[str, dict[str, tuple[float, float]]] = {}

    def add(self, figure: Figure, labels: Labels) -> None:
        key = _labels(labels)
        with self._lock:
            counted = self._counters.setdefault(figure.name, {})
            counted[key] = counted.get(key, 0) + 1

    def observe(self, figure: Figure, value: float, labels: Labels) -> None:
        key = _labels(labels)
        with self._lock:
            of_labels = self._histograms.setdefault(figure.name, {})
            if key not in of_labels:
                of_labels[key] = _Histogram(figure.bounds)
            of_labels[key].add(value)

    def set(self, figure: Figure, value: float, labels: Labels) -> None:
        key = _labels(labels)
        with self._lock:
            self._gauges.setdefault(figure.name, {})[key] = (value, self._clock())

    def text(self) -> str:
        with self._lock:
            lines = [line for figure in FIGURES for line in self._lines(figure)]
        return "\n".join(lines) + "\n"

    def _lines(self, figure: Figure) -> Iterator[str]:
        name, samples = metric_name(figure), list(self._samples(figure))
        if samples:
            yield f"# HELP {name} {figure.description}"
            yield f"# TYPE {name} {figure.kind.value}"
            yield from samples

    def _samples(self, figure: Figure) -> Iterator[str]:
        name = metric_name(figure)
        match figure.kind:
            case FigureKind.COUNTER:
                for labels, count in self._counters.get(figure.name, {}).items():
                    yield f"{name}{_braced(labels)} {_number(count)}"
            case FigureKind.HISTOGRAM:
                for labels, histogram in self._histograms.get(figure.name, {}).items():
                    yield from histogram.samples(name, labels)
            case FigureKind.GAUGE:
                oldest = self._clock() - _STALE_S
                for labels, (value, measured_at) in self._gauges.get(figure.name, {}).items():
                    if measured_at >= oldest:
                        yield f"{name}{_braced(labels)} {_number(value)}"


class _Histogram:
    """How many values were at most each bound, their number and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self, name: str, labels: str) -> Iterator[str]:
        total, comma = 0, "," if labels else ""
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        yield f"{name}_sum{_braced(labels)} {_number(self._sum)}"
        yield f"{name}_count{_braced(labels)} {total}"


def metric_name(figure: Figure) -> str:
    """Return the name of a figure by the rules of Prometheus: with its unit, and ``_total`` for a counter."""
    ending = "_total" if figure.kind is FigureKind.COUNTER else _UNITS.get(figure.unit, "")
    return figure.name.replace(".", "_") + ending


def _labels(labels: Labels) -> str:
    return ",".join(f'{name.replace(".", "_")}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
