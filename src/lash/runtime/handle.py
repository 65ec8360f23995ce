"""Handles on processes, for code outside of them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from lash.errors import ProcessNotFound
from lash.ids import new_id
from lash.model.event import ProcessEvent
from lash.model.process import ProcessRecord, ProcessStatus
from lash.model.value import JSON
from lash.runtime.definition import ProcessDefinition
from lash.runtime.process import read_outcome
from lash.runtime.values import UNTYPED, result_type
from lash.stores.storage import Storage

R = TypeVar("R")


class ProcessHandle(Generic[R]):
    """A process by its id. It holds no state: every call asks the storage."""

    def __init__(self, storage: Storage, process_id: str, process: ProcessDefinition[Any, R] | None = None) -> None:
        self._storage = storage
        self.process_id = process_id
        self._process = process

    def __repr__(self) -> str:
        return f"<process {self.process_id}>"

    async def record(self) -> ProcessRecord:
        """Return the process as it stands; raise ProcessNotFound if there is none (any more)."""
        record = await self._storage.processes.get(self.process_id)
        if record is None:
            raise ProcessNotFound(self.process_id)
        return record

    async def status(self) -> ProcessStatus:
        return (await self.record()).status

    async def result(self, *, timeout_s: float | None = None) -> R:
        """Return what the process returned, waiting for its end; raise ProcessFailed if it did not succeed.

        Raises WaitTimedOut when the time is over first; the process goes on.
        """
        outcome = await self._storage.waiter.await_outcome(self.process_id, timeout_s=timeout_s)
        declared = UNTYPED if self._process is None else result_type(self._process.function)
        value: R = read_outcome(self.process_id, outcome, declared)
        return value

    async def signal(self, name: str, payload: JSON = None, *, key: str | None = None) -> None:
        """Send a signal. The same key is one signal, however often it is sent."""
        await self._storage.events.signal(self.process_id, name, signal_id=key or new_id(), payload=payload)

    async def cancel(self, reason: str = "") -> None:
        """Ask the process to stop. It ends when its run sees the request, or at once if it is parked."""
        await self._storage.processes.request_cancel(self.process_id, reason=reason)

    async def events(self, after: int = 0) -> tuple[ProcessEvent, ...]:
        """Return the log behind a number."""
        return await self._storage.events.after(self.process_id, after)
