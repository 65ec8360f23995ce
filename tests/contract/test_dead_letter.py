"""The public contract of dead letters on our own backends."""

from __future__ import annotations

from lash.testing.contract.dead_letter import DeadLetterContract
from lash.testing.contract.dead_letter_key import DeadLetterKeyContract, DeadLetterWakeContract


class TestDeadLetter(DeadLetterContract):
    """On each backend."""


class TestDeadLetterKey(DeadLetterKeyContract):
    """On each backend."""


class TestDeadLetterWake(DeadLetterWakeContract):
    """On each backend."""
