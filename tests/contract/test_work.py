"""The public contract of parking and of the work list on our own backends."""

from __future__ import annotations

from lash.testing.contract.work import ParkContract
from lash.testing.contract.work_end import WorkEndContract
from lash.testing.contract.work_look import LookContract, RunningContract
from lash.testing.contract.work_timer import TimerContract


class TestPark(ParkContract):
    """On each backend."""


class TestWorkEnd(WorkEndContract):
    """On each backend."""


class TestLook(LookContract):
    """On each backend."""


class TestRunning(RunningContract):
    """On each backend."""


class TestTimer(TimerContract):
    """On each backend."""
