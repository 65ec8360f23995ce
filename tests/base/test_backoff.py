"""Pauses between retries."""

from __future__ import annotations

import pytest

from lash.base.backoff import backoff, jitter


@pytest.mark.parametrize(
    ("failures", "expected"), [(0, 0.01), (1, 0.02), (2, 0.04), (5, 0.32), (6, 0.5), (14, 0.5), (10_000, 0.5)]
)
def test_a_pause_doubles_with_each_failure_up_to_the_longest(failures: int, expected: float) -> None:
    """The pause doubles from the first one and never exceeds the longest, however many failures there were."""
    assert backoff(failures, first_s=0.01, longest_s=0.5) == pytest.approx(expected)


def test_a_first_pause_beyond_the_longest_is_cut() -> None:
    """The longest pause also bounds the first one."""
    assert backoff(0, longest_s=0.001) == 0.001


def test_jitter_keeps_between_half_of_a_pause_and_all_of_it() -> None:
    """A jittered pause is between half and all of the given pause, and two of them differ."""
    pauses = [jitter(1.0) for _ in range(100)]
    assert all(0.5 <= pause <= 1.0 for pause in pauses)
    assert len(set(pauses)) > 1
