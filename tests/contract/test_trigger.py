"""The public contract of triggers on our own backends."""

from __future__ import annotations

from lash.testing.contract.emit import EmitContract
from lash.testing.contract.emit_retry import OccurrencePruneContract, RetryContract, TriggerEnvironmentContract
from lash.testing.contract.trigger import TriggerContract, TriggerReceiptContract
from lash.testing.contract.trigger_input import TriggerInputContract
from lash.testing.contract.trigger_list import TriggerListContract


class TestTrigger(TriggerContract):
    """On each backend."""


class TestTriggerReceipt(TriggerReceiptContract):
    """On each backend."""


class TestEmit(EmitContract):
    """On each backend."""


class TestRetry(RetryContract):
    """On each backend."""


class TestOccurrencePrune(OccurrencePruneContract):
    """On each backend."""


class TestTriggerList(TriggerListContract):
    """On each backend."""


class TestTriggerInput(TriggerInputContract):
    """On each backend."""


class TestTriggerEnvironment(TriggerEnvironmentContract):
    """On each backend."""
