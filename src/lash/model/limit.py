"""Named limits: how often steps may start, over all workers of a storage."""

from __future__ import annotations

from lash.model.value import Count, Value


class Rate(Value, frozen=True, kw_only=True):
    """How often something may start: ``count`` times in a period, evenly spaced.

    After a pause, up to ``burst`` of them may start at once. With a burst of 1, no span of the period's length has
    more than ``count`` starts.
    """

    count: int
    period_ms: int
    burst: int = 1


class Reservation(Value, frozen=True, kw_only=True):
    """The moment at which a caller may start, for this caller alone."""

    at_ms: int
    now_ms: int
    """The time of the storage at the reservation."""

    @property
    def wait_ms(self) -> int:
        """How long the caller has to wait."""
        return max(0, self.at_ms - self.now_ms)


class LimitState(Value, frozen=True, kw_only=True):
    """A limit that was used, for one key; the empty key is the limit without one."""

    name: str
    key: str
    interval_us: int
    """The microseconds between two starts, by the last reservation."""
    burst: int
    waiting: Count
    """How many reservations are for later moments."""
    next_at_ms: int
    """The moment that the next reservation would get."""
