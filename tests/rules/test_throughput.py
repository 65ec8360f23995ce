"""Throughput: ranges, and what each interval has."""

from __future__ import annotations

import pytest

from lash.errors import CorruptData, InvalidInput
from lash.model.maintenance import Throughput
from lash.plan.throughput import ThroughputRange, ThroughputRow, check_range, throughput_of


def test_a_range_begins_with_a_whole_interval() -> None:
    """The begin is rounded down; without an end the range is open."""
    assert check_range(25, 40, 10) == ThroughputRange(10, 20, 40)
    assert check_range(20, None, 10) == ThroughputRange(10, 20, 2**63 - 1)


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "interval_ms"), [(-1, 5, 1), (0, 5, 0), (0, 10_001, 1), ("0", 5, 1), (0, "5", 1)]
)
def test_bad_ranges_are_refused(since_ms: object, until_ms: object, interval_ms: object) -> None:
    """Ranges have at most 10,000 intervals of at least a millisecond."""
    with pytest.raises(InvalidInput):
        check_range(since_ms, until_ms, interval_ms)
    assert check_range(0, 10_000, 1).until_ms == 10_000


def test_every_interval_is_there() -> None:
    """The range ends with the interval of now, or before its end; failed and abandoned processes are failures."""
    rows = [
        ThroughputRow("now", 45, 0),
        ThroughputRow("turns", 2, 7),
        ThroughputRow("dead", 2, 1),
        ThroughputRow("completed", 4, 1),
        ThroughputRow("cancelled", 4, 2),
        ThroughputRow("failed", 4, 3),
        ThroughputRow("abandoned", 4, 4),
    ]
    found = (
        Throughput(at_ms=20, turns=7, dead=1),
        Throughput(at_ms=30),
        Throughput(at_ms=40, processes=10, failed=7),
    )
    assert throughput_of(check_range(20, None, 10), rows) == found
    assert throughput_of(check_range(20, 40, 10), rows) == found[:2]
    assert throughput_of(check_range(20, 41, 10), rows) == found
    assert throughput_of(check_range(20, 20, 10), rows) == ()
    assert throughput_of(check_range(40, None, 10), [ThroughputRow("now", 40, 0)]) == (Throughput(at_ms=40),)
    assert [each.failures for each in found] == [1, 0, 7]


def test_an_open_range_is_bounded_by_now() -> None:
    """Too many intervals before now are refused, and so is an answer without the time."""
    wanted = check_range(0, None, 1)
    assert len(throughput_of(wanted, [ThroughputRow("now", 9_999, 0)])) == 10_000
    with pytest.raises(InvalidInput, match="at most 10,000"):
        throughput_of(wanted, [ThroughputRow("now", 10_000, 0)])
    with pytest.raises(CorruptData):
        throughput_of(wanted, [])
