"""Named limits: how often steps may start, and how many may run at once, over all workers of a storage."""

from __future__ import annotations

import enum

from lash.model.lease import Resource
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


class Limit(Value, frozen=True, kw_only=True):
    """A declared limit: how often something may start, how many of it may run at once, or both."""

    rate: Rate | None = None
    concurrency: int | None = None


class LimitState(Value, frozen=True, kw_only=True):
    """A limit that was used, for one key; the empty key is the limit without one."""

    name: str
    key: str
    interval_us: int | None = None
    """The microseconds between two starts, by the last reservation; None without a rate."""
    burst: int | None = None
    waiting: Count = 0
    """How many reservations are for later moments, and how many runs wait for a place."""
    next_at_ms: int | None = None
    """The moment that the next reservation would get."""
    concurrency: int | None = None
    """How many may run at once, by the last run that asked for a place; None without such a limit."""
    held: Count = 0
    """How many places are held. A place whose holder died counts until its lease has expired."""


class PlaceState(enum.StrEnum):
    """The state of a place."""

    WAITING = "waiting"
    OFFERED = "offered"
    """The place is free for this run, which was woken."""
    HELD = "held"


class LimitPlace(Value, frozen=True, kw_only=True):
    """The place of one run in the line of a limit on concurrency."""

    number: int
    """Its order in the line."""
    resource: Resource
    """The session or process that runs or waits."""
    state: PlaceState
    since_ms: int
    """When it began to wait, or took the place."""
