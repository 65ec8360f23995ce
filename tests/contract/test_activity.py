"""The public contract of activity on our own backends."""

from __future__ import annotations

from lash.testing.contract.activity import ActivityContract
from lash.testing.contract.activity_look import ActivityProcessContract, ActivityQueueContract


class TestActivity(ActivityContract):
    """On each backend."""


class TestActivityQueue(ActivityQueueContract):
    """On each backend."""


class TestActivityProcess(ActivityProcessContract):
    """On each backend."""
