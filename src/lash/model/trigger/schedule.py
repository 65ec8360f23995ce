"""Schedules: cron expressions whose ticks are occurrences."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from lash.model.process.process import HOST
from lash.model.trigger.trigger import EmitReport, TriggerOwner
from lash.model.value import Count, JSONObject, Positive, Value, share_default

CRON_SOURCE_TYPE: Final = "cron"
"""The source type of every occurrence of a schedule."""


class CatchUp(enum.StrEnum):
    """What happens to ticks that no worker emitted in time."""

    SKIP = "skip"
    """A tick later than the schedule's ``grace_ms`` is dropped."""
    LAST = "last"
    """Of all ticks that are due, only the newest is emitted, however late."""
    ALL = "all"
    """Every tick is emitted, however late."""


_UTC: Final = "UTC"
_GRACE_MS: Final = 60_000
"""By default a tick is dropped if no worker emits it within a minute: cron has no finer unit."""


class ScheduleDraft(Value, frozen=True, kw_only=True):
    """The definition of a schedule: when it ticks, and the payload of its occurrences.

    ``cron`` has the five fields minute, hour, day of month, month and day of week, in ``time_zone``, an IANA name. A
    tick is emitted up to ``jitter_ms`` after its time. The delay depends only on the schedule and the tick, and never
    reaches the next tick. Each occurrence carries ``payload``, with the time of the tick under ``scheduled_at``.
    Without ``source_key`` the schedule has a source of its own.
    """

    owner: TriggerOwner = HOST
    key: str
    cron: str
    time_zone: str = _UTC
    catch_up: CatchUp = CatchUp.LAST
    grace_ms: Count = _GRACE_MS
    jitter_ms: Count = 0
    payload: JSONObject = msgspec.field(default_factory=dict)
    source_key: str | None = None

    def __post_init__(self) -> None:
        share_default(self, "owner", HOST)
        share_default(self, "time_zone", _UTC)
        share_default(self, "grace_ms", _GRACE_MS)


class Schedule(Value, frozen=True, kw_only=True):
    """A schedule in its current state.

    ``next_tick_ms`` is the time of the next tick, and ``next_fire_ms`` the moment from which a worker emits it; both
    are None while it is disabled. ``last_tick_ms`` is the newest tick that was emitted or dropped. ``revision`` grows
    with every change of the other fields.
    """

    schedule_id: str
    definition: ScheduleDraft
    source_key: str
    enabled: bool
    revision: Positive
    next_tick_ms: int | None
    next_fire_ms: int | None
    last_tick_ms: int | None
    created_at_ms: int
    updated_at_ms: int

    @property
    def owner(self) -> TriggerOwner:
        return self.definition.owner

    @property
    def key(self) -> str:
        return self.definition.key


class RegisteredSchedule(Value, frozen=True, kw_only=True):
    """The answer to a registration."""

    schedule: Schedule
    created: bool


class SchedulePage(Value, frozen=True, kw_only=True):
    """One page of schedules, ordered by owner and key; ``next_cursor`` asks for the next page.

    ``damaged`` lists the ids of unreadable schedules on this page; getting one of them raises the reason.
    """

    schedules: tuple[Schedule, ...]
    damaged: tuple[str, ...] = ()
    next_cursor: str | None = None


class FiredTick(Value, frozen=True, kw_only=True):
    """A tick that was emitted; ``report`` is None if its source already had another occurrence at this moment."""

    tick_ms: int
    report: EmitReport | None


class Fired(Value, frozen=True, kw_only=True):
    """What one worker did for one due schedule.

    Without ticks, all due ticks were dropped as too late. ``problem`` is the reason if this machine cannot
    read the schedule: a worker tries it again after a minute, and no tick is lost.
    """

    schedule_id: str
    owner_session_id: str | None = None
    key: str
    ticks: tuple[FiredTick, ...] = ()
    next_fire_ms: int | None = None
    problem: str | None = None
