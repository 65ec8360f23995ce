"""The public contract about crashes and takeovers on our own backends."""

from __future__ import annotations

from lash.testing.contract.crash import CrashContract


class TestCrash(CrashContract):
    """On each backend."""
