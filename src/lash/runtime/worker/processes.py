"""Running processes: claims a process, runs it in a slot, and frees the slot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from lash.base.limits import check_identifier
from lash.model.process.process import (
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRefused,
    RefusalReason,
    Registration,
)
from lash.runtime.after_run import AfterRun
from lash.runtime.errors import STORAGE_TROUBLE
from lash.runtime.processes.run import ProcessRun
from lash.runtime.worker.backlog import Backlog
from lash.runtime.worker.renewal import LeaseRenewal
from lash.runtime.worker.slots import Slots
from lash.runtime.worker.state import WorkerState


class ProcessRunner:
    """The processes that one worker runs."""

    def __init__(
        self, state: WorkerState, slots: Slots[ProcessRun], backlog: Backlog[ProcessRun], renewal: LeaseRenewal
    ) -> None:
        self._state = state
        self._core = state.core
        self._slots = slots
        self._backlog = backlog
        self._renewal = renewal

    async def register_and_start(self, registration: Registration) -> None:
        """Register a process, and start it at once if there is a free slot and no process has waited longer for it.

        If the caller is cancelled, the process may or may not be registered; one that runs goes on.
        """
        process_id = check_identifier("process_id", registration.process_id)
        if self._leaves_to_others(registration) or not self._slots.take(process_id):
            await self._core.storage.processes.register(registration)
            return
        registered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def free_slot(_task: object) -> None:
            # A task that is cancelled before its first step does not even run its finally blocks.
            if not registered.done():
                self._slots.leave(process_id, in_vain=False)
                registered.set_result(False)

        self._state.spawn(self._register_and_run(registration, registered)).add_done_callback(free_slot)
        if not await registered:
            await self._core.storage.processes.register(registration)

    def _leaves_to_others(self, registration: Registration) -> bool:
        options, identity = self._core.options, registration.identity
        names = options.process_names
        is_served = names is None or (identity is not None and identity.label in names)
        # A poll compares the labels of the session.
        is_unknown = bool(options.labels)
        return self._state.is_stopping or self._backlog.may_be_longer or not is_served or is_unknown

    def start_found(self) -> int:
        """Start processes from the backlog while there are slots, and return how many were started."""
        started = 0
        for process_id in self._backlog.take():
            self._state.spawn(self._run(process_id))
            started += 1
        return started

    def start_assigned(self, process_id: str) -> bool:
        """Start a process that this worker was assigned; return False if it needs a poll or another worker."""
        if self._slots.is_running(process_id) or self._slots.has_just_left(process_id):
            # A claim would also wake a process that has parked itself since the hint was sent.
            return False
        if self._slots.take(process_id):
            self._state.spawn(self._run(process_id))
            return True
        return not self._slots.is_full

    def cancel(self, process_ids: Sequence[str]) -> None:
        """Cancel running processes that were asked to stop."""
        for process_id in process_ids:
            run = self._slots.get(process_id)
            if run is not None:
                run.cancel_once("it was asked to stop")

    async def _register_and_run(self, registration: Registration, registered: asyncio.Future[bool]) -> None:
        """Register a process with its lease and run it; ``registered`` gets whether it surely is registered."""
        process_id, answer, acquired = registration.process_id, None, None
        owner, ttl_ms = self._core.owner, self._core.options.ttl_ms
        try:
            leases = self._core.storage.process_leases
            answer = await leases.register_and_claim(registration, owner, ttl_ms=ttl_ms)
            acquired = answer if isinstance(answer, ProcessAcquired) else None
        except Exception as error:  # noqa: BLE001 (the caller that starts the process gets it)
            if not registered.done():
                registered.set_exception(error)
        finally:
            if acquired is None:
                self._slots.leave(process_id, in_vain=False)
            if not registered.done():
                # Without an answer, because the worker was stopped, it may or may not be registered.
                registered.set_result(answer is not None)
        if acquired is not None:
            await self._run(process_id, acquired)

    async def _run(self, process_id: str, claimed: ProcessLeaseOutcome | None = None) -> None:
        """Run a process in a slot that was taken; claim it first unless the caller has."""
        after, leases = AfterRun.BACK_OFF, self._core.storage.process_leases
        try:
            if claimed is None:
                claimed = await leases.claim(process_id, self._core.owner, ttl_ms=self._core.options.ttl_ms)
            if isinstance(claimed, ProcessAcquired) and self._state.is_stopping:
                await leases.release(claimed.lease.fence)
            elif isinstance(claimed, ProcessAcquired):
                run = ProcessRun(self._core, claimed, partial(self._share_slot, process_id))
                self._slots.fill(process_id, run)
                after = (await run.run()).after
        except STORAGE_TROUBLE as error:
            if isinstance(claimed, ProcessAcquired):
                self._slots.empty(process_id)
                await self._renewal.release(partial(leases.release, claimed.lease.fence))
            elif error.outcome_unknown:
                await self._renewal.release(partial(self._release_unanswered, process_id))
            raise
        finally:
            self._leave(process_id, after, claimed)

    async def _release_unanswered(self, process_id: str) -> None:
        """Release the lease that a claim without an answer may have taken; the process would wait for its expiry."""
        leases = self._core.storage.process_leases
        taken = await leases.claim(process_id, self._core.owner, ttl_ms=self._core.options.ttl_ms)
        if isinstance(taken, ProcessAcquired):
            await leases.release(taken.lease.fence)

    def _leave(self, process_id: str, after: AfterRun, claimed: ProcessLeaseOutcome | None) -> None:
        has_ended = after is AfterRun.FORGET
        self._slots.leave(process_id, in_vain=after is AfterRun.BACK_OFF, for_good=has_ended)
        if after is AfterRun.LEAVE:
            self._slots.avoid(process_id, 10 * self._core.options.poll_s)
        if isinstance(claimed, ProcessRefused) and claimed.reason is RefusalReason.BUSY:
            self._backlog.note_lost_claim()
        # A turn may be parked until the end of a process that its session started.
        may_wake = isinstance(claimed, ProcessAcquired) and claimed.record.wake_session_id is not None
        if not has_ended or may_wake:
            self._state.poll_now()
        self._start_more()

    def _share_slot(self, process_id: str) -> None:
        """Let another process start while this one only records its outcome."""
        self._slots.mark_finishing(process_id)
        self._start_more()

    def _start_more(self) -> None:
        """Give a free slot to the backlog; poll if the backlog is empty and there may be more."""
        if self._state.is_stopping:
            return
        self.start_found()
        if self._backlog.may_be_longer and not self._slots.is_full:
            self._state.poll_now()
