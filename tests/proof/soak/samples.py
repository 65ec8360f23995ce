"""The measurements of a worker under load, and the bounds that they must keep."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

GROWING: Final[Mapping[str, str]] = {
    "lash_process_tombstones": "a small row for each pruned process records that it existed",
}
"""The tables that grow by design, with the reason."""
MEMORY_GROWTH_BYTES: Final = 16 * 1024 * 1024
LOG_BYTES: Final = 32 * 1024 * 1024
ROWS: Final = 8
FILES: Final = 4
TASKS: Final = 4
"""How much more there may be at rest, however long the load lasted; and the maximum size of the write-ahead log."""
CONNECTIONS: Final = 17
"""A full pool of 16 connections and the one that listens. The pool fills when callers need it, also late."""


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's own measurements."""

    at_rest: bool
    rounds: int
    seconds: float
    memory_bytes: int
    files: int
    tasks: int
    turn_ms: float
    slowest_turn_ms: float


@dataclass(frozen=True)
class Sample:
    """The worker's own measurements, and those of its database at that moment."""

    inside: Inside
    rows: Mapping[str, int] = field(default_factory=dict)
    connections: int = 0
    log_bytes: int = 0
    database_bytes: int = 0


def unbounded(samples: Sequence[Sample]) -> list[str]:
    """Return what has grown beyond its bound, between the first third of the samples at rest and the last.

    All prunable rows were pruned, so anything that still grows is unbounded. The first rest is left out:
    caches and pools fill before it.
    """
    rests = [sample for sample in samples if sample.inside.at_rest][1:]
    third = max(1, len(rests) // 3)
    first, last = rests[:third], rests[-third:]
    found = [
        *_rows(first, last),
        *_grown("open files", first, last, lambda sample: sample.inside.files - sample.connections, FILES),
        *_grown("tasks", first, last, lambda sample: sample.inside.tasks, TASKS),
        *_grown("bytes of memory", first, last, lambda sample: sample.inside.memory_bytes, MEMORY_GROWTH_BYTES),
        *_too_many_connections(rests),
    ]
    largest = max(sample.log_bytes for sample in samples)
    return found if largest <= LOG_BYTES else [*found, f"the write-ahead log took {largest} bytes"]


def _too_many_connections(rests: Sequence[Sample]) -> Iterator[str]:
    most = max(sample.connections for sample in rests)
    if most > CONNECTIONS:
        yield f"{most} connections; expected at most {CONNECTIONS}"


def _rows(first: Sequence[Sample], last: Sequence[Sample]) -> Iterator[str]:
    for table in sorted(last[-1].rows.keys() - GROWING.keys()):

        def count(sample: Sample, table: str = table) -> int:
            return sample.rows.get(table, 0)

        yield from _grown(f"rows of {table}", first, last, count, ROWS)


def _grown(
    what: str, first: Sequence[Sample], last: Sequence[Sample], figure: Callable[[Sample], int], bound: int
) -> Iterator[str]:
    before, after = (statistics.median(figure(sample) for sample in part) for part in (first, last))
    if after - before > bound:
        rounds = last[-1].inside.rounds - first[0].inside.rounds
        yield f"{what} grew from {before:.0f} to {after:.0f} in {rounds} rounds; {bound} more would be in order"
