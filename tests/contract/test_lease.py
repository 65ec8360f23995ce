"""The public contract of session leases on our own backends."""

from __future__ import annotations

from lash.testing.contract.lease import LeaseContract
from lash.testing.contract.reclaim import ReclaimContract


class TestLease(LeaseContract):
    """On each backend."""


class TestReclaim(ReclaimContract):
    """On each backend."""
