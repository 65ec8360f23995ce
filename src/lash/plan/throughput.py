"""Throughput: what ended in each interval of a range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from lash.base.limits import MAX_INTEGER, check_integer
from lash.errors import CorruptData, InvalidInput
from lash.model.maintenance import Throughput
from lash.model.process.process import ProcessStatus

_MOST: Final = 10_000
"""How many intervals a range has at most: a week of minutes."""
_ENDED: Final = frozenset(status.value for status in ProcessStatus if status is not ProcessStatus.RUNNING)
_FAILED: Final = frozenset({ProcessStatus.FAILED.value, ProcessStatus.ABANDONED.value})


class ThroughputRange(msgspec.Struct, frozen=True):
    """A checked range: from the begin of an interval, and before a moment."""

    interval_ms: int
    since_ms: int
    until_ms: int


class ThroughputRow(msgspec.Struct, frozen=True, array_like=True):
    """How much of one kind ended in one interval, by its number since 1970; or ``now`` and the time."""

    kind: str
    number: int
    count: int


def check_range(since_ms: object, until_ms: object, interval_ms: object) -> ThroughputRange:
    """Return the range, or raise InvalidInput."""
    interval = check_integer("interval_ms", interval_ms, at_least=1)
    since = check_integer("since_ms", since_ms, at_least=0)
    until = MAX_INTEGER if until_ms is None else check_integer("until_ms", until_ms)
    wanted = ThroughputRange(interval, since - since % interval, until)
    if until_ms is not None:
        _check_count(wanted, until)
    return wanted


def throughput_of(wanted: ThroughputRange, rows: Sequence[ThroughputRow]) -> tuple[Throughput, ...]:
    """Return every interval of the range, empty ones included; raise InvalidInput if there are too many."""
    now_ms = next((row.number for row in rows if row.kind == "now"), None)
    if now_ms is None:
        raise CorruptData("query maintenance_throughput returned no time")
    until_ms = min(wanted.until_ms, now_ms + 1)
    _check_count(wanted, until_ms)
    counts: Counter[tuple[int, str]] = Counter()
    for row in rows:
        for name in _names(row.kind):
            counts[row.number, name] += row.count
    numbers = range(wanted.since_ms // wanted.interval_ms, -(-until_ms // wanted.interval_ms))
    return tuple(
        Throughput(
            at_ms=number * wanted.interval_ms,
            turns=counts[number, "turns"],
            dead=counts[number, "dead"],
            processes=counts[number, "processes"],
            failed=counts[number, "failed"],
        )
        for number in numbers
    )


def _names(kind: str) -> tuple[str, ...]:
    """Return under which names a kind counts: a process that failed has ended too."""
    if kind in _FAILED:
        return "processes", "failed"
    return ("processes",) if kind in _ENDED else (kind,)


def _check_count(wanted: ThroughputRange, until_ms: int) -> None:
    count = (until_ms - wanted.since_ms) // wanted.interval_ms
    if count > _MOST:
        raise InvalidInput(f"the range has {count:,} intervals; at most {_MOST:,} are allowed: choose longer ones")
