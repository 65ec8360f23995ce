"""The public contract about bad input on our own backends."""

from __future__ import annotations

from lash.testing.contract.input import InputContract


class TestInput(InputContract):
    """On each backend."""
