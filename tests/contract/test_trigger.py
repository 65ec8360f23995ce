"""The public contract of triggers on our own backends."""

from __future__ import annotations

from lash.testing.contract.trigger import TriggerContract, TriggerReceiptContract


class TestTrigger(TriggerContract):
    """On each backend."""


class TestTriggerReceipt(TriggerReceiptContract):
    """On each backend."""
