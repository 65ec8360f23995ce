"""Parking a process: what it waits for, and which signals its waits have taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lash.model.process.continuation import TakenSignals
from lash.model.process.event import SIGNAL_PREFIX, ProcessEvent
from lash.model.process.process import ProcessAcquired, SignalWait
from lash.model.value import JSON
from lash.runtime.outage import HeldLease
from lash.runtime.processes.under_lease import UnderLease
from lash.runtime.steps.parking import Parking

if TYPE_CHECKING:
    from lash.runtime.core import Core

_MOST_READ: Final = 1_000
"""The largest page of a log."""


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
        self.before: Mapping[str, TakenSignals] = {}
        """The signals that earlier runs have received, by name."""

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
        return {"timed_out": True} if event is None else _received(ordinal, event)

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
        """Free the lease and park the process; its log has one of the signals that it waits for."""
        signals = [signal for signal in self.reasons if signal is not None]
        signal = min(signals, key=lambda each: (each.name, each.ordinal), default=None)
        if signal is not None and self._noted != signal:
            await self._writes.set_wait(signal)
        elif signal is None and self._noted is not None:
            await self._writes.clear_wait(self._noted)
        await self._writes.park(self.due_ms)

    async def taken(self) -> dict[str, TakenSignals]:
        """Return the signals that this run and earlier ones have received, by name."""
        received: dict[str, dict[int, int]] = {}
        for key_id, outcome in self._journal.waited():
            kind, _, name = key_id.partition(":")
            if kind != "signal" or not isinstance(outcome, dict) or not isinstance(outcome.get("ordinal"), int):
                continue
            ordinal, sequence = outcome["ordinal"], outcome.get("sequence")
            if sequence is None:
                # Recorded by a version that did not keep the number.
                event = await self._signal_at(name, ordinal)
                sequence = 0 if event is None else event.sequence
            received.setdefault(name, {})[ordinal] = sequence
        return {**self.before, **{name: self._before(name).after(each) for name, each in received.items()}}

    def _before(self, name: str) -> TakenSignals:
        return self.before.get(name, TakenSignals())

    async def _signal_at(self, name: str, ordinal: int) -> ProcessEvent | None:
        events, what, process_id = self.storage.events, f"signal {name!r}", self._process_id
        before = self._before(name)
        count = ordinal - before.count
        if before.count == 0 or count > _MOST_READ:
            return await self.lease.bridge(what, events.signal_at, process_id, name, ordinal)
        # From the last signal of earlier runs on, so that the cost does not grow with the runs.
        event_type = f"{SIGNAL_PREFIX}{name}"
        found = await self.lease.bridge(
            what, events.after, process_id, before.sequence, event_type=event_type, limit=count
        )
        return found[-1] if len(found) == count else None

    async def _came(self, name: str, ordinal: int) -> None:
        """Return once a signal may have come."""
        last = await self.storage.events.last_sequences((self._process_id,))
        if await self._signal_at(name, ordinal) is None:
            wait_event_after = self.storage.waiter.wait_event_after
            await wait_event_after(self._process_id, f"{SIGNAL_PREFIX}{name}", last.get(self._process_id, 0))

    def _take_ordinal(self, name: str) -> int:
        """Return the number of the next signal of a name that no recorded or earlier wait has taken."""
        taken = self._ordinals.get(name)
        if taken is None:
            outcomes = (outcome for key_id, outcome in self._journal.waited() if key_id == f"signal:{name}")
            numbers = (outcome.get("ordinal") for outcome in outcomes if isinstance(outcome, dict))
            taken = self._ordinals[name] = {number for number in numbers if isinstance(number, int)}
        ordinal = self._before(name).next_place(taken)
        taken.add(ordinal)
        return ordinal


def _received(ordinal: int, event: ProcessEvent) -> JSON:
    return {"ordinal": ordinal, "sequence": event.sequence, "payload": event.payload}
