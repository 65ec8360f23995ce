"""The public contract of queued work on our own backends."""

from __future__ import annotations

from lash.testing.contract.queue import QueueContract
from lash.testing.contract.queue_begin import QueueBeginContract
from lash.testing.contract.queue_claim import QueueClaimContract
from lash.testing.contract.queue_commit import QueueCommitContract
from lash.testing.contract.queue_input import QueueInputContract
from lash.testing.contract.queue_life import QueueLifeContract


class TestQueue(QueueContract):
    """On each backend."""


class TestQueueClaim(QueueClaimContract):
    """On each backend."""


class TestQueueBegin(QueueBeginContract):
    """On each backend."""


class TestQueueLife(QueueLifeContract):
    """On each backend."""


class TestQueueCommit(QueueCommitContract):
    """On each backend."""


class TestQueueInput(QueueInputContract):
    """On each backend."""
