"""The public contract of schedules on our own backends."""

from __future__ import annotations

from lash.testing.contract.schedule import ScheduleContract, SessionScheduleContract


class TestSchedule(ScheduleContract):
    """On each backend."""


class TestSessionSchedule(SessionScheduleContract):
    """On each backend."""
