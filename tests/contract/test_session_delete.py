"""The public contract of deleting a session on our own backends."""

from __future__ import annotations

from lash.testing.contract.session_delete import SessionDeleteContract


class TestSessionDelete(SessionDeleteContract):
    """On each backend."""
