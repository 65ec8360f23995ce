"""The public contract of processes, their events, wakes, grants and leases on our own backends."""

from __future__ import annotations

from lash.testing.contract.event import EventContract, SignalContract
from lash.testing.contract.event_feed import ChangeFeedContract
from lash.testing.contract.event_wake import WakeContract
from lash.testing.contract.grant import DetachContract, GrantContract
from lash.testing.contract.process import ProcessContract
from lash.testing.contract.process_begin import ProcessBeginContract
from lash.testing.contract.process_end import ProcessEndContract
from lash.testing.contract.process_lease import FencedEndContract, ProcessLeaseContract
from lash.testing.contract.process_list import ProcessListContract
from lash.testing.contract.process_together import ProcessTogetherContract


class TestProcess(ProcessContract):
    """On each backend."""


class TestProcessList(ProcessListContract):
    """On each backend."""


class TestProcessEnd(ProcessEndContract):
    """On each backend."""


class TestEvent(EventContract):
    """On each backend."""


class TestSignal(SignalContract):
    """On each backend."""


class TestChangeFeed(ChangeFeedContract):
    """On each backend."""


class TestProcessLease(ProcessLeaseContract):
    """On each backend."""


class TestFencedEnd(FencedEndContract):
    """On each backend."""


class TestWake(WakeContract):
    """On each backend."""


class TestGrant(GrantContract):
    """On each backend."""


class TestDetach(DetachContract):
    """On each backend."""


class TestProcessBegin(ProcessBeginContract):
    """On each backend."""


class TestProcessTogether(ProcessTogetherContract):
    """On each backend."""
