"""How long to wait before a retry, and how often to retry a lost race."""

from __future__ import annotations

import random
from typing import Final

FIRST_PAUSE_S: Final = 0.05
"""The first pause after a failure, unless the caller has a reason for another: most network blips are over by then."""
MAX_PLANS: Final = 10
"""How often a backend reads and plans again after another writer was faster, before it raises StoreUnavailable."""
_MOST_DOUBLINGS: Final = 60
"""Enough for any pause, and few enough that the power stays a float."""


def backoff(failures: int, *, first_s: float = FIRST_PAUSE_S, longest_s: float) -> float:
    """Return the pause after so many failures, counted from 0: it doubles each time, up to the longest."""
    return min(first_s * 2.0 ** min(failures, _MOST_DOUBLINGS), longest_s)


def jitter(pause_s: float) -> float:
    """Return a random pause of at least half the length, so that callers that failed together retry apart."""
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
