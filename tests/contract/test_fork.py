"""The public contract of forks on our own backends."""

from __future__ import annotations

from lash.testing.contract.fork import ForkContract
from lash.testing.contract.fork_delete import ForkDeleteContract


class TestFork(ForkContract):
    """On each backend."""


class TestForkDelete(ForkDeleteContract):
    """On each backend."""
