"""The contract of processes: the registry and the right to run."""

from __future__ import annotations

from typing import Protocol

from lash.model.lease import Lease, LeaseFence, LeaseOwner
from lash.model.process.process import (
    Abandonment,
    ExternalRef,
    Outcome,
    ProcessAcquired,
    ProcessFilter,
    ProcessLeaseOutcome,
    ProcessPage,
    ProcessRecord,
    PrunedProcesses,
    Registered,
    Registration,
    SignalWait,
)


class ProcessStore(Protocol):
    """The processes of a storage. A record changes only by events of its log, in the same transaction.

    Methods that name a process raise ProcessNotFound if it was never registered, and ProcessPruned if it ended and was
    removed since.
    """

    async def register(self, registration: Registration) -> Registered:
        """Register a process, or return the stored record of an equal registration, whatever became of it since.

        Another registration under the same id raises RegistrationConflict. Concurrent equal ones all succeed.
        """
        ...

    async def get(self, process_id: str) -> ProcessRecord | None:
        """Return the record; None if the process was never registered or is no longer kept."""
        ...

    async def list(self, wanted: ProcessFilter = ..., *, limit: int = 100, cursor: str | None = None) -> ProcessPage:
        """Return processes that fit the filter, the newest first. Pages do not overlap."""
        ...

    async def runnable(self, *, limit: int = 100, after: str | None = None) -> tuple[ProcessRecord, ...]:
        """Return running processes that workers may run and that no live lease holds, by their ids.

        Waiting and parked ones are part of it, external ones are not. ``after`` goes on behind an id. It is for going
        through all of them; what a worker should claim next is told by `lash.stores.work.WorkStore.look`.
        """
        ...

    async def complete(self, process_id: str, outcome: Outcome) -> ProcessRecord:
        """End a process without a lease: an external one, or by the hand of an operator.

        The same outcome twice is one; another one raises EventConflict or ProcessTerminal. An Abandonment is refused
        here: ``abandon`` is for that.
        """
        ...

    async def abandon(self, process_id: str, outcome: Abandonment) -> ProcessRecord:
        """End a process whose outcome nobody will know, after an abandon request, once no live lease holds it.

        Raises Conflict while a lease is live or nobody asked for it.
        """
        ...

    async def request_cancel(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        """Ask a process to stop. It is a durable request: the process ends when its run sees it."""
        ...

    async def request_abandon(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        """Note that an operator gives the process up."""
        ...

    async def set_external_ref(self, process_id: str, reference: ExternalRef) -> ProcessRecord:
        """Note where else the process can be found; the last one counts."""
        ...

    async def set_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        """Park a running process until a signal; raise ProcessTerminal if it ended, LeaseLost as `append`."""
        ...

    async def clear_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        """Note that the process goes on after the signal; the fence is that of `set_wait`."""
        ...

    async def prune(self, *, ended_before_ms: int, through_cursor: str | None, limit: int = 100) -> PrunedProcesses:
        """Remove processes that ended before a moment, with their logs, and leave tombstones.

        ``through_cursor`` is how far the slowest reader of the change feed has come: nothing is removed that it has not
        seen. None says that nobody reads the feed.
        """
        ...

    async def prune_changes(self, *, before_ms: int, limit: int = 1_000) -> int:
        """Forget the oldest changes of the feed, at most so many, that happened before a moment; return how many.

        A reader whose cursor is further behind misses them, and so does the tail of events; the logs of the processes
        keep all their events.
        """
        ...


class ProcessLeaseStore(Protocol):
    """Expiring, fenced rights to run a process. Fencing numbers only grow.

    A process is on the work list (`lash.stores.work.WorkStore`) from its registration to its end, unless it is parked.
    It is woken by a signal, a cancel or an abandon request, and by the end of a process that it started, in the
    transaction of that event.
    """

    async def claim(self, process_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ProcessLeaseOutcome:
        """Take the right to run a process, if it is free or lapsed; the same holder re-enters.

        Refused, with the reason: a process that ended, an external one, one that another owner began and that is bound
        to it, and one whose lease is live. The first claim of an owner writes a ``process.started`` event.
        """
        ...

    async def register_and_claim(
        self, registration: Registration, owner: LeaseOwner, *, ttl_ms: int
    ) -> ProcessAcquired | Registered:
        """Register a process and take the right to run it, in one transaction: what `register` and `claim` leave.

        Takes nothing, and answers `Registered` as `register` does, if the process was registered before or is external.
        Whoever repeats it after an unknown outcome is answered so too; a lease that the first try took then lapses.
        """
        ...

    async def reclaim(self, process_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> ProcessLeaseOutcome:
        """Take the right from a holder that is provably a dead process of this machine; otherwise the same as claim."""
        ...

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        """Extend a live lease, never shorten it; raise LeaseLost if the fence does not hold."""
        ...

    async def release(self, fence: LeaseFence) -> bool:
        """Free the lease if this fence still holds it, and return whether it did. The process is then ready."""
        ...

    async def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None) -> bool:
        """Free a live lease and take the process off the work list until a moment, or (None) until it is woken.

        ``wake_seq`` is what the claim answered. If the process was woken since, it is left on the work list, and the
        answer is False: run it again. A process that ended meanwhile is not on the list anyway. A fence that does not
        hold raises LeaseLost and changes nothing. No event tells of parking: like the lease it is scheduling.
        """
        ...

    async def complete(self, fence: LeaseFence, outcome: Outcome) -> ProcessRecord:
        """End the process and free the lease, in one transaction, if the fence is live; else LeaseLost.

        Repeating it after an unknown outcome is safe: the stored outcome is recognised.
        """
        ...

    async def holder(self, process_id: str) -> Lease | None:
        """Return the lease as it stands, live or lapsed; None if it is free."""
        ...
