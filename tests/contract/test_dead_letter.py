"""The public contract of dead letters on our own backends."""

from __future__ import annotations

from lash.testing.contract.dead_letter import DeadLetterContract, DeadLetterKeyContract


class TestDeadLetter(DeadLetterContract):
    """On each backend."""


class TestDeadLetterKey(DeadLetterKeyContract):
    """On each backend."""
