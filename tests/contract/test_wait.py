"""The public contract of waits on our own backends."""

from __future__ import annotations

from lash.testing.contract.wait import WaitContract
from lash.testing.contract.wait_key import WaitKeyContract
from lash.testing.contract.wait_life import WaitingContract, WaitLifeContract


class TestWait(WaitContract):
    """On each backend."""


class TestWaitKey(WaitKeyContract):
    """On each backend."""


class TestWaiting(WaitingContract):
    """On each backend."""


class TestWaitLife(WaitLifeContract):
    """On each backend."""
