"""What one run of a process reads and writes under its lease; each call is repeated through an outage."""

from __future__ import annotations

from typing import Final

from lash.base.shapes import convert
from lash.errors import LeaseLost
from lash.model.lease import LeaseFence
from lash.model.process.continuation import Continuation
from lash.model.process.event import ATTEMPT_FAILED, CONTINUED, EventDraft, ProcessEvent
from lash.model.process.process import Outcome, ProcessRecord, SignalWait
from lash.model.value import JSON
from lash.runtime.errors import error_code, error_text
from lash.runtime.outage import HeldLease
from lash.stores.storage import Storage

_ALL: Final = 1_000
"""The largest page of a log; no process fails more often."""


class UnderLease:
    """The process of one run. Repeating a write whose answer was lost changes nothing more."""

    def __init__(self, storage: Storage, fence: LeaseFence, lease: HeldLease, *, wake_seq: int) -> None:
        self._storage = storage
        self._fence = fence
        self._lease = lease
        self._process_id = fence.resource.id
        self._wake_seq = wake_seq
        self.ended_as: str | None = None
        """The status of the process after its end."""

    async def complete(self, outcome: Outcome) -> None:
        """End the process and free the lease."""
        record = await self._lease.bridge("the end", self._storage.process_leases.complete, self._fence, outcome)
        self.ended_as = record.status.value

    async def park(self, until_ms: int | None) -> None:
        """Free the lease, and park the process until a moment, or (None) until it is woken."""
        leases = self._storage.process_leases
        try:
            wake_seq = self._wake_seq
            await self._lease.bridge("parking", leases.park, self._fence, wake_seq=wake_seq, until_ms=until_ms)
        except LeaseLost:
            # Without a holder it was parked, by a try whose answer was lost.
            if await self._lease.bridge("parking", leases.holder, self._process_id) is not None:
                raise

    async def release(self) -> None:
        """Free the lease; the process is ready."""
        await self._lease.bridge("the release", self._storage.process_leases.release, self._fence)

    async def set_wait(self, wait: SignalWait) -> ProcessRecord:
        """Note in the log that the process waits for a signal."""
        set_wait = self._storage.processes.set_wait
        return await self._lease.bridge("the wait", set_wait, self._process_id, wait, fence=self._fence)

    async def clear_wait(self, wait: SignalWait) -> ProcessRecord:
        """Note in the log that the process no longer waits for a signal."""
        clear_wait = self._storage.processes.clear_wait
        return await self._lease.bridge("the end of the wait", clear_wait, self._process_id, wait, fence=self._fence)

    async def note_failure(self, error: BaseException, name: str, *, trace: str | None = None) -> None:
        """Note in the log that an attempt failed, once under each name."""
        payload: dict[str, JSON] = {"code": error_code(error), "message": error_text(error)}
        if trace is not None:
            payload["traceback"] = trace
        draft = EventDraft(event_type=ATTEMPT_FAILED, payload=payload, replay_key=f"attempt:{name}")
        append = self._storage.events.append
        await self._lease.bridge("the failed attempt", append, self._process_id, draft, fence=self._fence)

    async def events(self, event_type: str, *, after: int = 0, limit: int = _ALL) -> tuple[ProcessEvent, ...]:
        """Return the first events of a type after a number."""
        read = self._storage.events.after
        return await self._lease.bridge(
            "reading the log", read, self._process_id, after, event_type=event_type, limit=limit
        )

    async def continuation(self, sequence: int) -> Continuation:
        """Return how the run began that the event of this number began."""
        (event,) = await self.events(CONTINUED, after=sequence - 1, limit=1)
        return convert(event.payload, Continuation)

    async def continue_as_new(self, continuation: Continuation) -> None:
        """End this run of the process, and begin the next one."""
        leases = self._storage.process_leases
        await self._lease.bridge("the next run", leases.continue_as_new, self._fence, continuation)

    async def record(self) -> ProcessRecord | None:
        """Return the record as it is stored."""
        return await self._lease.bridge("reading the process", self._storage.processes.get, self._process_id)
