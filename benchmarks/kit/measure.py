"""Figures: measured in alternation, reported as medians with their spread."""

from __future__ import annotations

import dataclasses
import gc
import statistics
from collections.abc import Callable, Sequence

Round = Callable[[int], float]
"""Measures once: takes the number of the round and returns the figure."""


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """All measurements of one figure."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The distance between the extremes, as a fraction of the median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0


def by_turns(sides: Sequence[Round], rounds: int) -> list[Samples]:
    """Measure every side once in each round, so that other load on the machine affects all of them.

    The order turns round from one round to the next. A first round that is not counted warms up.
    """
    figures: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + (rounds > 1)):
        order = range(len(sides)) if number % 2 else reversed(range(len(sides)))
        for index in order:
            gc.collect()
            # Objects made for all rounds must not be scanned by the garbage collector during this one.
            gc.freeze()
            figures[index].append(sides[index](number))
            gc.unfreeze()
    return [Samples(tuple(values[-rounds:])) for values in figures]


def percentile(values: Sequence[float], part: float) -> float:
    """Return the percentile of the values, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
