"""Parking a process: what it waits for, and which signals its waits have taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lash.model.process.event import SIGNAL_PREFIX, ProcessEvent
from lash.model.process.process import ProcessAcquired, SignalWait
from lash.model.value import JSON
from lash.runtime.outage import HeldLease
from lash.runtime.processes.under_lease import UnderLease
from lash.runtime.steps.parking import Parking

if TYPE_CHECKING:
    from lash.runtime.core import Core


class ProcessParking(Parking[SignalWait | None]):
    """What the branches of one run of a process wait for; the contract is `lash.runtime.steps.waits.WaitingRun`."""

    def __init__(self, core: Core, acquired: ProcessAcquired, lease: HeldLease, writes: UnderLease) -> None:
        began_ms = acquired.lease.expires_at_ms - core.options.ttl_ms
        super().__init__(core.storage, lease, began_ms=began_ms, timer=None)
        self._process_id = acquired.record.process_id
        self.seed = f"{self._process_id}\0{acquired.record.created_at_ms}"
        self._writes = writes
        self._noted = acquired.record.projection.wait
        self._ordinals: dict[str, set[int]] = {}

    async def next_signal(self, name: str, due_ms: int | None) -> JSON:
        """Return the next signal of a name, or that the time for it is over; park until one of both."""
        ordinal, event = self._take_ordinal(name), None
        try:
            event = await self._signal_at(name, ordinal)
            while event is None and (due_ms is None or self.now_ms() < due_ms):
                await self.block(due_ms, SignalWait(name=name, ordinal=ordinal), lambda: self._came(name, ordinal))
                event = await self._signal_at(name, ordinal)
        finally:
            if event is None:
                self._ordinals[name].discard(ordinal)
        return {"timed_out": True} if event is None else {"ordinal": ordinal, "payload": event.payload}

    def give_back(self, name: str, found: JSON) -> None:
        """Leave a signal to the next wait: the one that found it has lost a race."""
        if isinstance(found, dict) and isinstance(found.get("ordinal"), int):
            self._ordinals[name].discard(found["ordinal"])

    async def resumed(self, name: str) -> None:
        """Note in the log that a signal has come, if the log has the wait for it."""
        if self._noted is not None and self._noted.name == name:
            noted, self._noted = self._noted, None
            await self._writes.clear_wait(noted)

    async def park(self) -> None:
        """Free the lease and park the process; its log has the first signal that it waits for."""
        signal = next((signal for signal in self.reasons if signal is not None), None)
        if signal is not None and self._noted != signal:
            await self._writes.set_wait(signal)
        elif signal is None and self._noted is not None:
            await self._writes.clear_wait(self._noted)
        await self._writes.park(self.due_ms)

    async def _signal_at(self, name: str, ordinal: int) -> ProcessEvent | None:
        signal_at = self.storage.events.signal_at
        return await self.lease.bridge(f"signal {name!r}", signal_at, self._process_id, name, ordinal)

    async def _came(self, name: str, ordinal: int) -> None:
        """Return once a signal may have come."""
        last = await self.storage.events.last_sequences((self._process_id,))
        if await self.storage.events.signal_at(self._process_id, name, ordinal) is None:
            wait_event_after = self.storage.waiter.wait_event_after
            await wait_event_after(self._process_id, f"{SIGNAL_PREFIX}{name}", last.get(self._process_id, 0))

    def _take_ordinal(self, name: str) -> int:
        """Return the number of the next signal of a name that no recorded or earlier wait has taken."""
        taken = self._ordinals.get(name)
        if taken is None:
            numbers = (each.get("ordinal") for each in self._journal.waited(f"signal:{name}") if isinstance(each, dict))
            taken = self._ordinals[name] = {number for number in numbers if isinstance(number, int)}
        ordinal = next(number for number in range(1, len(taken) + 2) if number not in taken)
        taken.add(ordinal)
        return ordinal
