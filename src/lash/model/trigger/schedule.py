"""Schedules: cron lines whose ticks are occurrences."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from lash.model.process.process import HOST
from lash.model.trigger.trigger import EmitReport, TriggerOwner
from lash.model.value import Count, JSONObject, Positive, Value, share_default

CRON_SOURCE_TYPE: Final = "cron"
"""The source type of every occurrence that a schedule makes."""


class CatchUp(enum.StrEnum):
    """What becomes of ticks that nobody was there to emit in time."""

    SKIP = "skip"
    """A tick later than the schedule's ``grace_ms`` is dropped."""
    LAST = "last"
    """Of all ticks that are due, only the newest is emitted, however late."""
    ALL = "all"
    """Every tick is emitted, however late."""


_UTC: Final = "UTC"
_GRACE_MS: Final = 60_000


class ScheduleDraft(Value, frozen=True, kw_only=True):
    """What a schedule is: when it ticks, and what its occurrences say.

    ``cron`` has the five fields minute, hour, day of month, month and day of week, read in ``time_zone``, an IANA
    name. A tick is emitted up to ``jitter_ms`` after its time, by a delay that depends on the schedule and the tick
    alone and never reaches the next tick. Each occurrence carries ``payload`` and, in its key ``scheduled_at``, the
    time of the tick. Without ``source_key`` the source is this schedule's own.
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
    """A schedule as it stands.

    ``next_tick_ms`` is the time of the next tick, and ``next_fire_ms`` the moment from which a worker emits it; both
    are None while it is disabled. ``last_tick_ms`` is the newest tick that was emitted or dropped. ``revision`` grows
    with every change of what is said here but those three.
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
    """Some schedules, by owner and key, and the cursor with which to ask for the next ones.

    ``damaged`` has the ids of those on this page that cannot be read: asking for one of them says why.
    """

    schedules: tuple[Schedule, ...]
    damaged: tuple[str, ...] = ()
    next_cursor: str | None = None


class FiredTick(Value, frozen=True, kw_only=True):
    """A tick that was emitted; ``report`` is None if its source had something else under this moment before."""

    tick_ms: int
    report: EmitReport | None


class Fired(Value, frozen=True, kw_only=True):
    """What one worker did about one schedule that was due.

    No ticks means that all that were due were dropped as too late, unless ``problem`` says why this machine cannot
    read the schedule: it is then tried again after a minute, by whoever comes first, and nothing is lost.
    """

    schedule_id: str
    owner_session_id: str | None = None
    key: str
    ticks: tuple[FiredTick, ...] = ()
    next_fire_ms: int | None = None
    problem: str | None = None
