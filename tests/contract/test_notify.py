"""The public contract of hints on our own backends."""

from __future__ import annotations

from lash.testing.contract.notify import NotifyContract


class TestNotify(NotifyContract):
    """On each backend."""
