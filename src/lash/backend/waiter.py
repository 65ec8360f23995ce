"""Waiting for events and ends of processes; the contract is `lash.stores.waiter.ProcessWaiter`."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, Generic, NamedTuple, TypeVar, cast

from lash.backend.change_waiter import SLOW_POLL_S, ChangeWaiter, StateQuery, Watch
from lash.backend.hints import process_tag
from lash.errors import InvalidInput, WaitTimedOut
from lash.model.process.event import ProcessEvent
from lash.model.process.process import Outcome, ProcessRecord
from lash.stores.hints import Hint, HintSource
from lash.stores.process.event import EventStore
from lash.stores.process.process import ProcessStore

_MANY_LEASES: Final = 1_000
"""From how many known leases on the expired ones are dropped."""

T = TypeVar("T")


class _Read(NamedTuple, Generic[T]):
    """What a read found: the fact if it is there, and the last sequence of the log, if the read included it."""

    fact: T | None
    sequence: int | None


class _EventWatch(Watch):
    """A watch on the log of a process."""

    def __init__(self, query: StateQuery, process_id: str) -> None:
        super().__init__(query, process_id)
        self._process_tag = process_tag(process_id)

    def needs_query(self, hint: Hint) -> bool:
        return hint.processes is None or self._process_tag in hint.processes


class _EndWatch(Watch):
    """A watch on the end of a process, which this storage may write itself."""

    def __init__(self, query: StateQuery, process_id: str, holds_lease: Callable[[str], bool]) -> None:
        super().__init__(query, process_id)
        self._process_tag = process_tag(process_id)
        self._holds_lease = holds_lease
        self.outcome: Outcome | None = None
        """How the process ended, if this storage wrote the end: no read is needed."""

    def needs_query(self, hint: Hint) -> bool:
        # While this storage holds the lease, ignore hints: the end is delivered without a query.
        if self._holds_lease(self.key):
            return False
        if hint.ended is None:
            return True
        if self._process_tag in hint.ended:
            # It has probably ended; reading it takes as long as the query.
            self.wake()
        return False

    def deliver(self, outcome: Outcome) -> None:
        """End the wait with the outcome."""
        self.outcome = outcome
        self.wake()


class SharedProcessWaiter:
    """Waits for events and ends of processes, without a query for each caller.

    After a hint, and every second without one, one query asks for all waiting callers: a lost hint is a delay, never a
    hang. A caller that waits for the end of a process that this storage runs gets the outcome without a query.
    """

    def __init__(
        self, events: EventStore, processes: ProcessStore, hints: HintSource, *, poll_s: float = SLOW_POLL_S
    ) -> None:
        self._events = events
        self._processes = processes
        self.changes: ChangeWaiter[Watch] = ChangeWaiter(
            hints.listen, poll_s=poll_s, keep_listening=True, on_hint=self._note_hint
        )
        """The task that serves all watches on processes; durable waits share it."""
        self._ends: dict[str, list[_EndWatch]] = {}
        self._leases: dict[str, float] = {}
        self._new: set[str] = set()

    async def wait_event_after(
        self, process_id: str, event_type: str, sequence: int = 0, *, timeout_s: float | None = None
    ) -> ProcessEvent:
        async def read() -> _Read[ProcessEvent]:
            found = await self._events.after(process_id, sequence, event_type=event_type, limit=1)
            return _Read(found[0] if found else None, None)

        def watching() -> AbstractContextManager[Watch]:
            return self.changes.watching(_EventWatch(self._events.last_sequences, process_id))

        return await self._wait(process_id, read, watching, f"event {event_type!r} after {sequence}", timeout_s)

    async def await_outcome(self, process_id: str, *, timeout_s: float | None = None) -> Outcome:
        async def read() -> _Read[Outcome]:
            record = await self._processes.get(process_id)
            if record is None:
                # This read raises: the process was pruned, or it never existed.
                await self._events.recent(process_id, 1)
                return _Read(None, None)
            return _Read(record.projection.outcome, record.last_sequence)

        def watching() -> AbstractContextManager[Watch]:
            return self._watching_end(process_id)

        is_running = self._holds_lease(process_id) or process_id in self._new
        self._new.discard(process_id)
        known = _Read[Outcome](None, None) if is_running else None
        return await self._wait(process_id, read, watching, "end", timeout_s, known)

    def note_lease(self, process_id: str, ttl_ms: int) -> None:
        """Note that this storage runs a process: as long as its lease lives, `deliver_end` delivers its end.

        If another worker ends it, waiters learn at the next poll.
        """
        now = time.monotonic()
        if len(self._leases) >= _MANY_LEASES:
            self._leases = {each: until for each, until in self._leases.items() if until > now}
        self._leases[process_id] = now + ttl_ms / 1_000

    def note_created(self, process_id: str, *, was_listening: bool) -> None:
        """Note that this storage registered a process: until a hint says that it may have ended, it has not.

        That holds only if this storage was listening before the registration.
        """
        if was_listening and len(self._new) < _MANY_LEASES:
            self._new.add(process_id)

    def note_free(self, process_id: str) -> None:
        """Note that this storage no longer runs a process."""
        self._leases.pop(process_id, None)

    def deliver_end(self, record: ProcessRecord) -> None:
        """Deliver the end of a process, which this storage has just written, to the callers that wait for it."""
        self.note_free(record.process_id)
        outcome = record.projection.outcome
        for watch in self._ends.get(record.process_id, ()):
            if outcome is not None:
                # Each caller gets its own copy, as if it had read it.
                watch.deliver(copy.deepcopy(outcome))

    async def close(self) -> None:
        """End every wait with StorageClosed, durable waits included."""
        await self.changes.close()

    async def _wait(
        self,
        process_id: str,
        read: Callable[[], Awaitable[_Read[T]]],
        watching: Callable[[], AbstractContextManager[Watch]],
        awaited: str,
        timeout_s: float | None,
        known: _Read[T] | None = None,
    ) -> T:
        """Wait for a fact; ``known`` is what a read would find, where that is known without one."""
        if timeout_s is not None and not timeout_s >= 0:
            raise InvalidInput(f"timeout_s: expected a number of seconds from 0 on, got {timeout_s!r}")
        seen = known
        if seen is None:
            was_listening = self.changes.is_listening
            seen = await read()
            if seen.fact is not None:
                return seen.fact
            if not was_listening:
                # Changes since the read gave no hint.
                seen = None
        if timeout_s is None:
            return await self._watch(read, watching, seen)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._watch(read, watching, seen)
        # A hint may have been lost: read once more before giving up.
        fact = (await read()).fact
        if fact is None:
            raise WaitTimedOut(process_id, awaited, timeout_s)
        return fact

    async def _watch(
        self,
        read: Callable[[], Awaitable[_Read[T]]],
        watching: Callable[[], AbstractContextManager[Watch]],
        seen: _Read[T] | None,
    ) -> T:
        """Read, unless ``seen`` is fresh, and again each time the log has grown, until the fact is there."""
        with watching() as watch:
            while True:
                # A change during the read wakes the caller after it.
                found, seen = seen or await read(), None
                if found.fact is not None:
                    return found.fact
                if found.sequence is not None:
                    watch.state = found.sequence
                await watch.changed()
                if isinstance(watch, _EndWatch) and watch.outcome is not None:
                    return cast("T", watch.outcome)

    @contextlib.contextmanager
    def _watching_end(self, process_id: str) -> Iterator[Watch]:
        """Watch the end of a process, so that `deliver_end` finds the caller."""
        with self.changes.watching(_EndWatch(self._events.last_sequences, process_id, self._holds_lease)) as watch:
            assert isinstance(watch, _EndWatch)
            watches = self._ends.setdefault(process_id, [])
            watches.append(watch)
            try:
                yield watch
            finally:
                watches.remove(watch)
                if not watches:
                    self._ends.pop(process_id, None)

    def _note_hint(self, hint: Hint) -> None:
        """Forget which new processes have not ended, as far as a hint may be about them."""
        if hint.process and self._new:
            ended = hint.ended
            self._new = set() if ended is None else {each for each in self._new if process_tag(each) not in ended}

    def _holds_lease(self, process_id: str) -> bool:
        """Return whether this storage runs the process, as far as it knows."""
        return self._leases.get(process_id, 0.0) > time.monotonic()
