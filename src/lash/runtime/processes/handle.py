"""Handles on processes, for code outside of them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from lash.backend.liveness import current_owner
from lash.base.ids import new_id
from lash.errors import ProcessNotFound
from lash.model.effect import EffectError, EffectRecord
from lash.model.lease import ResourceKind
from lash.model.process.event import ProcessEvent
from lash.model.process.process import ProcessRecord, ProcessStatus
from lash.model.value import JSON
from lash.runtime.engine import Program
from lash.runtime.no_worker import warn_without_worker
from lash.runtime.processes.context import read_outcome
from lash.runtime.processes.rerun import rerun_registration
from lash.runtime.processes.unknown_steps import record_outcome, run_again, unknown_steps
from lash.runtime.steps.values import UNTYPED
from lash.stores.storage import Storage

R = TypeVar("R")


class ProcessHandle(Generic[R]):
    """A process by its id. The handle holds no state: every call reads the storage."""

    def __init__(self, storage: Storage, process_id: str, process: Program[Any, R] | None = None) -> None:
        self._storage = storage
        self.process_id = process_id
        self._process = process

    def __repr__(self) -> str:
        return f"<process {self.process_id}>"

    async def record(self) -> ProcessRecord:
        """Return the current record of the process; raise ProcessNotFound if it does not exist or was pruned."""
        record = await self._storage.processes.get(self.process_id)
        if record is None:
            raise ProcessNotFound(self.process_id)
        return record

    async def status(self) -> ProcessStatus:
        return (await self.record()).status

    async def result(self, *, timeout_s: float | None = None) -> R:
        """Wait for the end of the process and return its result; raise ProcessFailed if it did not succeed.

        Raises WaitTimedOut if the time is over first; the process continues.
        """
        with warn_without_worker(self._storage, ResourceKind.PROCESS, f"the result of process {self.process_id!r}"):
            outcome = await self._storage.waiter.await_outcome(self.process_id, timeout_s=timeout_s)
        declared = UNTYPED if self._process is None else self._process.result_type
        value: R = read_outcome(self.process_id, outcome, declared)
        return value

    async def signal(self, name: str, payload: JSON = None, *, key: str | None = None) -> None:
        """Send a signal. The same key is one signal, however often it is sent."""
        await self._storage.events.signal(self.process_id, name, signal_id=key or new_id(), payload=payload)

    async def cancel(self, reason: str = "") -> None:
        """Ask the process to stop. A running one is cancelled at its next await, a parked one is woken for it."""
        await self._storage.processes.request_cancel(self.process_id, reason=reason)

    async def rerun(self, process_id: str | None = None) -> ProcessHandle[R]:
        """Start the same process again, with the same input, under a new id, and return a handle on it.

        Nothing that this one recorded is used: every step runs again. The new one names this one in
        ``provenance.rerun_of``. It belongs to the same session and wakes the same one, and has no parent process. With
        an id the call is idempotent; another process of this id raises RegistrationConflict. Raises ProcessNotFound if
        this one was pruned, and InvalidInput if it is external.
        """
        registration = rerun_registration(
            (await self.record()).registration, new_id() if process_id is None else process_id
        )
        await self._storage.processes.register(registration)
        return ProcessHandle(self._storage, registration.process_id, self._process)

    async def events(self, after: int = 0, *, limit: int = 1_000) -> tuple[ProcessEvent, ...]:
        """Return the events after a sequence number, in order: at most ``limit``, which is at most 1,000.

        If there are as many, there may be more: pass the ``sequence`` of the last one as ``after``.
        """
        return await self._storage.events.after(self.process_id, after, limit=limit)

    async def unknown_steps(self) -> tuple[EffectRecord, ...]:
        """Return the ``once`` steps that started and have no outcome, including those of a live run."""
        return await unknown_steps(self._storage, self.process_id)

    async def record_outcome(self, step_key: str, outcome: JSON | EffectError) -> None:
        """Record the outcome of a step whose outcome is unknown; the process continues with it at once.

        ``step_key`` is the one that OutcomeUnknown and `unknown_steps` name. Raises EffectNotRecorded if no run
        started it, Conflict if it has an outcome or its runner may still be alive.
        """
        await record_outcome(self._storage, current_owner(), self.process_id, step_key, outcome)

    async def run_again(self, step_key: str) -> None:
        """Let a step whose outcome is unknown run again; the caller knows that it did not happen."""
        await run_again(self._storage, current_owner(), self.process_id, step_key)
