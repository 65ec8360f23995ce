"""The contract of processes: the registry and the right to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lash.model.lease import Lease, LeaseFence, LeaseOwner
from lash.model.process.continuation import Continuation
from lash.model.process.process import (
    Abandonment,
    ExternalRef,
    Outcome,
    ProcessAcquired,
    ProcessFilter,
    ProcessLeaseOutcome,
    ProcessPage,
    ProcessRecord,
    ProcessVersion,
    PrunedProcesses,
    Registered,
    Registration,
    SignalWait,
)

if TYPE_CHECKING:
    from lash.plan.key_range import KeyRange
    from lash.plan.lease import DecideRenewal, LeaseRow
    from lash.plan.process.change import ChangeCursor
    from lash.plan.process.lease import RunClaim
    from lash.plan.process.process import (
        EncodedRegistration,
        ListedProcessRow,
        ProcessPageQuery,
        ProcessRow,
        RegisteredRow,
        VersionRow,
    )


class ProcessStore(Protocol):
    """The processes of a storage. A record changes only by events of its log, in the same transaction.

    Methods that name a process raise ProcessNotFound if it was never registered, and ProcessPruned if it ended and was
    removed since.
    """

    async def register(self, registration: Registration) -> Registered:
        """Register a process, or return the stored record of an equal registration, whatever happened to it since.

        Another registration under the same id raises RegistrationConflict. Concurrent equal ones all succeed.
        """
        ...

    async def get(self, process_id: str) -> ProcessRecord | None:
        """Return the record; None if the process was never registered or was pruned."""
        ...

    async def list(
        self,
        wanted: ProcessFilter = ...,
        *,
        with_state: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ProcessPage:
        """Return processes that match the filter, the newest first. Pages do not overlap.

        ``with_state`` brings the `ProcessState` of each in the same read.
        """
        ...

    async def ids(self, prefix: str = "", *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        """Return at most ``limit`` ids that begin with a text, in the order of their characters; ended ones included.

        ``after`` is the last id of the previous page; a page with fewer than ``limit`` is the last. An id that equals
        the text is the first. It is one statement, which reads no more ids than it returns.
        """
        ...

    async def runnable(self, *, limit: int = 100, after: str | None = None) -> tuple[ProcessRecord, ...]:
        """Return at most ``limit`` running processes that workers can run and that no live lease holds, by id.

        Waiting and parked processes are included, external ones are not. ``after`` is the last id of the previous page;
        a page with fewer than ``limit`` is the last. Use it to walk through all of them;
        `lash.stores.work.WorkStore.poll` returns what a worker should claim next.
        """
        ...

    async def versions(self) -> tuple[ProcessVersion, ...]:
        """Return how many processes have not ended, by the definition under which they were started; by name.

        External processes are left out. It is one statement, which reads an index entry for each of them.
        """
        ...

    async def complete(self, process_id: str, outcome: Outcome) -> ProcessRecord:
        """End a process without a lease: an external one, or by an operator.

        Repeating the same outcome is idempotent; another one raises EventConflict or ProcessTerminal. An Abandonment is
        refused: use ``abandon``.
        """
        ...

    async def abandon(self, process_id: str, outcome: Abandonment) -> ProcessRecord:
        """End a process whose outcome is unknown, after an abandon request and once no live lease holds it.

        Raises Conflict while a lease is live, and if abandonment was not requested.
        """
        ...

    async def request_cancel(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        """Ask a process to stop. The request is durable: the process ends when its run sees it."""
        ...

    async def request_abandon(self, process_id: str, *, reason: str = "") -> ProcessRecord:
        """Record that an operator abandons the process; ``abandon`` requires it."""
        ...

    async def set_external_ref(self, process_id: str, reference: ExternalRef) -> ProcessRecord:
        """Record where else the process can be found; the last reference counts."""
        ...

    async def set_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        """Park a running process until a signal; raise ProcessTerminal if it ended, LeaseLost as `append` does."""
        ...

    async def clear_wait(self, process_id: str, wait: SignalWait, *, fence: LeaseFence | None = None) -> ProcessRecord:
        """Record that the process continues after the signal; the fence is checked as by `set_wait`."""
        ...

    async def prune(self, *, ended_before_ms: int, through_cursor: str | None, limit: int = 100) -> PrunedProcesses:
        """Remove at most ``limit`` processes that ended before a moment, with their logs, and leave tombstones.

        ``through_cursor`` is the position of the slowest reader of the change feed: nothing that it has not read is
        removed. Pass None if the feed has no reader. A cursor of another epoch of the feed removes nothing.
        """
        ...

    async def prune_changes(self, *, before_ms: int, limit: int = 1_000) -> int:
        """Remove the oldest changes of the feed, at most ``limit``, that happened before a moment; return how many.

        A reader whose cursor is older gets a gap, and so does the tail of events. The logs of the processes keep all
        their events.
        """
        ...


class ProcessLeaseStore(Protocol):
    """Expiring, fenced rights to run a process. Fencing numbers only grow.

    A process is on the work list (`lash.stores.work.WorkStore`) from its registration to its end, unless it is parked.
    A signal, a cancel or abandon request, and the end of a process that it started wake it, in the transaction of that
    event.
    """

    async def claim(self, process_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ProcessLeaseOutcome:
        """Acquire the right to run a process if its lease is free or expired; the same holder re-enters.

        The refusal says why: the process ended, is external, is bound to another owner, or has a live lease. The first
        claim of an owner appends a ``process.started`` event.
        """
        ...

    async def register_and_claim(
        self, registration: Registration, owner: LeaseOwner, *, ttl_ms: int
    ) -> ProcessAcquired | Registered:
        """Register a process and acquire the right to run it, in one transaction, with the rows of both calls.

        Acquires nothing, and returns `Registered` as `register` does, if the process was registered before or is
        external. So does a repetition after an unknown outcome; the lease that the first call acquired then expires.
        """
        ...

    async def reclaim(self, process_id: str, owner: LeaseOwner, *, observed: Lease, ttl_ms: int) -> ProcessLeaseOutcome:
        """Acquire the right from a holder that is provably a dead process of this machine; otherwise as ``claim``."""
        ...

    async def renew(self, fence: LeaseFence, *, ttl_ms: int) -> Lease:
        """Extend a lease, never shorten it; raise LeaseLost if the fence does not hold it.

        An expired lease is extended too, if it was neither released nor taken by another owner.
        """
        ...

    async def release(self, fence: LeaseFence) -> bool:
        """Free the lease if this fence still holds it, and return whether it did. The process is then ready."""
        ...

    async def park(self, fence: LeaseFence, *, wake_seq: int, until_ms: int | None) -> bool:
        """Free a live lease and take the process off the work list until a moment, or (None) until it is woken.

        ``wake_seq`` comes from the claim. If the process was woken since, it stays on the work list and the method
        returns False: run it again. A process that ended meanwhile is not on the list anyway. A fence that does not
        hold raises LeaseLost and changes nothing. No event is appended: like the lease, parking is scheduling state.
        """
        ...

    async def continue_as_new(self, fence: LeaseFence, continuation: Continuation) -> ProcessRecord:
        """End this run of the process and begin the next one, in one transaction, if the fence is live.

        The record has the number of the new run; the log has the event ``process.continued`` with the continuation. The
        effects of the last run are deleted. Signals, waits, children, requests and the lease stay as they are.
        Repeating it is idempotent. Raises InvalidInput unless the number of the run is the next one, EventConflict if
        that run began with another continuation, ProcessTerminal if the process ended, LeaseLost as `append` does.
        """
        ...

    async def complete(self, fence: LeaseFence, outcome: Outcome) -> ProcessRecord:
        """End the process and free the lease, in one transaction, if the fence is live; otherwise raise LeaseLost.

        Repeating it after an unknown outcome is safe: the stored outcome is recognised.
        """
        ...

    async def holder(self, process_id: str) -> Lease | None:
        """Return the lease as it is stored, live or expired; None if it is free."""
        ...


class ProcessRows(Protocol):
    """The rows of processes in one database; `lash.backend.process.process.Processes` makes a `ProcessStore` of them.

    Events are appended through `lash.stores.process.event.EventRows`.
    """

    async def register(self, encoded: EncodedRegistration) -> RegisteredRow:
        """Insert a process unless its id is taken; return the row that is then stored."""
        ...

    async def row(self, process_id: str) -> ProcessRow | None: ...

    async def page(self, wanted: ProcessPageQuery) -> list[ListedProcessRow]:
        """Return at most ``wanted.limit`` processes, the newest first."""
        ...

    async def ids(self, within: KeyRange, limit: int) -> list[str]: ...

    async def runnable(self, limit: int, after: str) -> list[ProcessRow]: ...

    async def versions(self) -> list[VersionRow]: ...

    async def prune(self, ended_before_ms: int, through: ChangeCursor | None, limit: int) -> PrunedProcesses:
        """Remove processes and their changes up to a position of the feed; None: all processes, but no changes."""
        ...

    async def prune_changes(self, before_ms: int, limit: int) -> int: ...


class ProcessLeaseRows(Protocol):
    """The lease rows of processes; `lash.backend.process.lease.ProcessLeases` makes a `ProcessLeaseStore` of them.

    Methods that name a process, or have its fence, raise ProcessNotFound or ProcessPruned if it does not exist.
    """

    async def row(self, process_id: str) -> LeaseRow:
        """Return the lease row of a process."""
        ...

    async def claim(self, run: RunClaim) -> ProcessLeaseOutcome:
        """Read process and lease, decide, and write the acquisition with the event of the start, all atomically.

        PostgreSQL tries the acquisition first, in one statement whose condition is that of `lash.plan.lease.plan_claim`
        (the query ``process_lease_acquire``); ``run.decide`` then explains a refusal.
        """
        ...

    async def register_and_claim(self, encoded: EncodedRegistration, run: RunClaim) -> ProcessAcquired | RegisteredRow:
        """Insert a process with its lease and the event of its start; only return its row if the id is taken.

        An external process is inserted without a holder.
        """
        ...

    async def renew(self, fence: LeaseFence, ttl_ms: int, decide: DecideRenewal) -> Lease:
        """Extend the lease if the fence holds; else ``decide`` raises LeaseLost."""
        ...

    async def release(self, fence: LeaseFence) -> bool: ...

    async def park(self, fence: LeaseFence, wake_seq: int, until_ms: int | None, decide: DecideRenewal) -> bool:
        """Free the lease and park the process if the fence holds; else ``decide`` raises LeaseLost.

        Return False, and leave the process on the work list, if it was woken since ``wake_seq``.
        """
        ...
