"""The public contract of schedules on our own backends."""

from __future__ import annotations

from lash.testing.contract.schedule import ScheduleContract, SessionScheduleContract
from lash.testing.contract.schedule_fire import ScheduleFireContract


class TestSchedule(ScheduleContract):
    """On each backend."""


class TestSessionSchedule(SessionScheduleContract):
    """On each backend."""


class TestScheduleFire(ScheduleFireContract):
    """On each backend."""
