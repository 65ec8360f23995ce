"""Hints, processes and a waiter over them, made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import cast

from lash.backend.change_waiter import ChangeWaiter, Watch
from lash.backend.hints import LocalHints, LocalListener
from lash.backend.waiter import SharedProcessWaiter
from lash.errors import ProcessNotFound, ProcessPruned
from lash.model.process.event import ProcessEvent
from lash.model.process.process import ExternalInput, ProcessRecord, ProcessStatus, Projection, Registration, Success
from lash.stores.hints import ANYTHING, Hint
from lash.stores.process.event import EventStore
from lash.stores.process.process import ProcessStore
from lash.stores.storage import Storage

DONE = Success(value="done")
_NEVER_S = 3_600.0


class ManualHints:
    """Hints that only the test gives; without ``minds_time`` no poll happens."""

    def __init__(self, *, minds_time: bool = False) -> None:
        self.waits = 0
        self.resting = asyncio.Event()
        self._minds_time = minds_time
        self._hint = asyncio.Event()

    def listen(self, *, everything: bool = False, work: bool = False, by_session: bool = False) -> ManualListener:
        assert not everything
        assert not work
        assert not by_session
        return ManualListener(self)

    async def rest(self, timeout_s: float) -> None:
        self.waits += 1
        if not self._hint.is_set():
            self.resting.set()
        try:
            async with asyncio.timeout(timeout_s if self._minds_time or timeout_s < _NEVER_S / 2 else None):
                await self._hint.wait()
        except TimeoutError:
            pass
        self._hint.clear()
        self.resting.clear()

    def notify(
        self,
        *,
        process: bool = True,
        work: bool = True,
        session_id: str | None = None,
        changed: str | None = None,
        later: bool = False,
    ) -> None:
        assert process
        assert work
        assert session_id is None
        assert changed is None
        self._hint.set()
        self.resting.clear()

    async def close(self) -> None: ...


class ManualListener(LocalListener):
    """A listener for the hints that the test gives."""

    def __init__(self, hints: ManualHints) -> None:
        super().__init__(LocalHints(), everything=False)
        self._manual = hints

    async def wait(self, timeout_s: float) -> Hint:
        await self._manual.rest(timeout_s)
        return ANYTHING


class Log:
    """Processes in memory, as far as waiting needs them, with hooks for the test."""

    def __init__(self, hints: ManualHints, *process_ids: str) -> None:
        self.hints = hints
        self.logs: dict[str, list[ProcessEvent]] = {each: [] for each in process_ids}
        self.ended: set[str] = set()
        self.pruned: set[str] = set()
        self.looks = 0
        self.queries: list[set[str]] = []
        self.failures: list[Exception] = []
        self.during_look: Callable[[int], Awaitable[None]] = _nothing
        self.after_query: Callable[[int], None] = lambda _number: None

    def append(self, process_id: str, *, hint: bool = True) -> None:
        """Append an event that is also the end, with or without a hint."""
        events = self.logs[process_id]
        events.append(
            ProcessEvent(process_id=process_id, sequence=len(events) + 1, event_type="tick", occurred_at_ms=0)
        )
        self.ended.add(process_id)
        if hint:
            self.hints.notify()

    def prune(self, process_id: str) -> None:
        del self.logs[process_id]
        self.pruned.add(process_id)
        self.hints.notify()

    async def after(
        self, process_id: str, sequence: int = 0, *, event_type: str | None = None, limit: int = 1_000
    ) -> tuple[ProcessEvent, ...]:
        found = [each for each in self._log(process_id) if each.sequence > sequence and each.event_type == event_type]
        await self._looked()
        return tuple(found[:limit])

    async def recent(self, process_id: str, count: int) -> tuple[ProcessEvent, ...]:
        return tuple(self._log(process_id)[-count:])

    async def get(self, process_id: str) -> ProcessRecord | None:
        if process_id not in self.logs:
            return None
        ended = process_id in self.ended
        projection = Projection(status=ProcessStatus.COMPLETED, outcome=DONE) if ended else Projection()
        record = ProcessRecord(
            process_id=process_id,
            registration_hash="",
            registration=Registration(process_id=process_id, input=ExternalInput()),
            projection=projection,
            wake_session_id=None,
            last_sequence=len(self.logs[process_id]),
            created_at_ms=0,
            updated_at_ms=0,
        )
        await self._looked()
        return record

    async def last_sequences(self, process_ids: Collection[str]) -> dict[str, int]:
        self.queries.append(set(process_ids))
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        answer = {each: len(self.logs[each]) for each in process_ids if each in self.logs}
        self.after_query(len(self.queries))
        return answer

    def _log(self, process_id: str) -> list[ProcessEvent]:
        if process_id in self.pruned:
            raise ProcessPruned(process_id)
        if process_id not in self.logs:
            raise ProcessNotFound(process_id)
        return self.logs[process_id]

    async def _looked(self) -> None:
        """Count a read, and let the test act before its answer, already made, arrives."""
        self.looks += 1
        await self.during_look(self.looks)


async def _nothing(_number: int) -> None: ...


def made(*process_ids: str, minds_time: bool = False, poll_s: float | None = None) -> tuple[SharedProcessWaiter, Log]:
    """Return a waiter and the log under it; without ``minds_time`` only hints make it query."""
    pace_s = (0.001 if minds_time else _NEVER_S) if poll_s is None else poll_s
    hints = ManualHints(minds_time=minds_time)
    log = Log(hints, *process_ids)
    waiter = SharedProcessWaiter(cast(EventStore, log), cast(ProcessStore, log), hints, poll_s=pace_s)
    return waiter, log


def changes_of(storage: Storage) -> ChangeWaiter[Watch]:
    """Return what serves the waits for processes of a storage."""
    waiter = storage.waiter
    assert isinstance(waiter, SharedProcessWaiter)
    return waiter.changes
