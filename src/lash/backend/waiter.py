"""Waiting for processes: any number of waiters, one query whenever something may have changed."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from lash.errors import Advice, InvalidInput, StorageClosed, StoreError, WaitTimedOut
from lash.model.process.event import ProcessEvent
from lash.model.process.process import Outcome, ProcessRecord
from lash.stores.hints import HintListener, Hints
from lash.stores.process.event import EventStore
from lash.stores.process.process import ProcessStore

_SLOW_POLL_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.05
_MANY_LEASES: Final = 1_000

T = TypeVar("T")

Ask: TypeAlias = Callable[[set[str]], Awaitable[Mapping[str, object]]]
"""One query about any number of things: how each of them stands. What is not there is left out."""


class ProcessWaiter:
    """Waits for events and ends of processes, without a query for each waiter.

    All waiters of a storage share one task, which runs only while there are any. It asks one query for all of them
    when a hint comes, and every second without one: a lost hint is a delay, never a hang. Whoever waits for the end of
    a process that this storage ends is told without a query. Others may share the task through ``hub``.
    """

    def __init__(
        self, events: EventStore, processes: ProcessStore, hints: Hints, *, poll_s: float = _SLOW_POLL_S
    ) -> None:
        self._events = events
        self._processes = processes
        self._hub = Hub(hints, poll_s)
        self._ends: dict[str, list[Watch]] = {}
        self._leases: dict[str, float] = {}

    @property
    def hub(self) -> Hub:
        """The task of all who wait for something in this storage."""
        return self._hub

    async def wait_event_after(
        self, process_id: str, event_type: str, sequence: int = 0, *, timeout_s: float | None = None
    ) -> ProcessEvent:
        """Return the first event of a type behind a number, at once if it is in the log, else when it is appended.

        Raises WaitTimedOut when it is not in the log at the end of that time, ProcessNotFound or ProcessPruned where
        there is no such process (any more), and StorageClosed when the storage is closed meanwhile. Whoever is
        cancelled leaves nothing behind.
        """

        async def look() -> _Look[ProcessEvent]:
            found = await self._events.after(process_id, sequence, event_type=event_type, limit=1)
            return _Look(found[0] if found else None, None)

        def watching() -> AbstractContextManager[Watch]:
            return self._hub.watching(self._events.last_sequences, process_id)

        return await self._wait(process_id, look, watching, f"event {event_type!r} after {sequence}", timeout_s)

    async def await_outcome(self, process_id: str, *, timeout_s: float | None = None) -> Outcome:
        """Return how a process ended, at once if it has, else when it does; the errors are those of the other wait."""

        async def look() -> _Look[Outcome]:
            record = await self._processes.get(process_id)
            if record is None:
                # It tells whether the process was removed or never there, by raising.
                await self._events.recent(process_id, 1)
                return _Look(None, None)
            return _Look(record.projection.outcome, record.last_sequence)

        def watching() -> AbstractContextManager[Watch]:
            return self._watching_end(process_id)

        known = _Look[Outcome](None, None) if self._runs_here(process_id) else None
        return await self._wait(process_id, look, watching, "end", timeout_s, known)

    def note_lease(self, process_id: str, ttl_ms: int) -> None:
        """Note that this storage runs a process: as long as its lease lives, `tell_end` tells of its end.

        Should somebody end it otherwise all the same, those who wait find out when they next look by themselves.
        """
        now = time.monotonic()
        if len(self._leases) >= _MANY_LEASES:
            self._leases = {each: until for each, until in self._leases.items() if until > now}
        self._leases[process_id] = now + ttl_ms / 1_000

    def note_free(self, process_id: str) -> None:
        """Note that this storage does not run a process any more."""
        self._leases.pop(process_id, None)

    def tell_end(self, record: ProcessRecord) -> None:
        """Let those who wait for the end of a process have it, which this storage has just written."""
        self.note_free(record.process_id)
        outcome = record.projection.outcome
        for watch in self._ends.get(record.process_id, ()):
            if outcome is not None:
                # Each has one of its own, as if it had read it.
                watch.tell(copy.deepcopy(outcome))

    async def close(self) -> None:
        """End every wait with StorageClosed, those of others who share the hub included."""
        await self._hub.close()

    async def _wait(
        self,
        process_id: str,
        look: Callable[[], Awaitable[_Look[T]]],
        watching: Callable[[], AbstractContextManager[Watch]],
        awaited: str,
        timeout_s: float | None,
        known: _Look[T] | None = None,
    ) -> T:
        """Wait for a fact; ``known`` is what a look would find, where that is known without one."""
        if timeout_s is not None and not timeout_s >= 0:
            raise InvalidInput(f"timeout_s must be a number of seconds from 0 on, not {timeout_s!r}")
        seen = known
        if seen is None:
            listening = self._hub.is_listening
            looked = await look()
            if looked.fact is not None:
                return looked.fact
            # What has happened since is a hint only to those who listened before they looked.
            seen = looked if listening else None
        if timeout_s is None:
            return await self._watch(look, watching, seen)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._watch(look, watching, seen)
        # The hint may have been lost: only what is not there now has not happened in time.
        fact = (await look()).fact
        if fact is None:
            raise WaitTimedOut(process_id, awaited, timeout_s)
        return fact

    async def _watch(
        self,
        look: Callable[[], Awaitable[_Look[T]]],
        watching: Callable[[], AbstractContextManager[Watch]],
        seen: _Look[T] | None,
    ) -> T:
        """Look, unless that was just done, and again each time the process has moved, until the fact is there."""
        with watching() as watch:
            while True:
                # What moves during the look wakes the waiter after it.
                looked, seen = seen or await look(), None
                if looked.fact is not None:
                    return looked.fact
                if looked.sequence is not None:
                    watch.state = looked.sequence
                await watch.changed()
                if watch.told is not None:
                    return cast("T", watch.told)

    def _runs_here(self, process_id: str) -> bool:
        return self._leases.get(process_id, 0.0) > time.monotonic()

    @contextlib.contextmanager
    def _watching_end(self, process_id: str) -> Iterator[Watch]:
        """Watch a process whose end this storage may write itself: while it runs it, hints are about nothing else."""

        def is_told() -> bool:
            return self._runs_here(process_id)

        with self._hub.watching(self._events.last_sequences, process_id, is_told) as watch:
            watches = self._ends.setdefault(process_id, [])
            watches.append(watch)
            try:
                yield watch
            finally:
                watches.remove(watch)
                if not watches:
                    self._ends.pop(process_id, None)


class _Look(NamedTuple, Generic[T]):
    """What a look found: the fact if it is there, and how far the log had come, where the look tells."""

    fact: T | None
    sequence: int | None


class Watch:
    """One waiter's interest in one thing, and how that stood when it was last looked at; None if it was not there."""

    def __init__(self, ask: Ask, key: str, is_told: Callable[[], bool] = lambda: False) -> None:
        """Watch a thing; ``is_told`` says whether the waiter is told of news without being asked for, as a rule."""
        self.ask = ask
        self.key = key
        self.is_told = is_told
        self.state: object = None
        self.told: object = None
        """What is waited for, if somebody who knows it has told so: there is nothing to look for any more."""
        self._woken = asyncio.Event()
        self._failure: Exception | None = None

    async def changed(self) -> object:
        """Return how the thing stands once that may be news, also if it became so since the last call."""
        await self._woken.wait()
        self._woken.clear()
        if self._failure is not None:
            raise self._failure
        return self.state

    def wake(self, state: object) -> None:
        """Let the waiter look if the thing is not where it was; a waiter who does not know looks once."""
        if state is None or state != self.state:
            self.state = state
            self._woken.set()

    def tell(self, fact: object) -> None:
        """End the wait with what is waited for."""
        self.told = fact
        self._woken.set()

    def fail(self, failure: Exception) -> None:
        """End the wait with an error."""
        self._failure = failure
        self._woken.set()


class Hub:
    """The one task that waits for hints on behalf of all waiters, whatever they wait for.

    At a hint, and every second without one, it asks one query for each kind of thing that somebody waits for.
    """

    def __init__(self, hints: Hints, poll_s: float = _SLOW_POLL_S) -> None:
        self._hints = hints
        self._listener: HintListener | None = None
        self._poll_s = poll_s
        self._watches: set[Watch] = set()
        self._task: asyncio.Task[None] | None = None
        self._asking = False
        self._closed = False

    @property
    def is_listening(self) -> bool:
        """Whether whatever changes from now on is a hint to the next who watches."""
        return self._listener is not None

    async def close(self) -> None:
        self._closed = True
        task = self._task
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            # The loop of the waiters is gone, and they with it.
            return
        for watch in self._watches:
            watch.fail(StorageClosed())
        self._task = None
        task.cancel()
        await asyncio.wait({task})

    @contextlib.contextmanager
    def watching(self, ask: Ask, key: str, is_told: Callable[[], bool] = lambda: False) -> Iterator[Watch]:
        """Take part: whatever changes about the thing from here on is news to the watch.

        Watches with an equal ``ask`` are asked for together. Hints let nobody ask for one that ``is_told``.
        """
        if self._closed:
            raise StorageClosed
        # Before the first look: what happens from then on is a hint.
        self._listener = self._listener or self._hints.listen()
        watch = Watch(ask, key, is_told)
        self._watches.add(watch)
        if self._task is None:
            self._task = asyncio.create_task(self._run(self._listener), name="lash-process-waiter")
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            self._end_if_alone()

    def _end_if_alone(self) -> None:
        # A query under way is not cut short, since that would cost more than its answer; the task ends after it.
        if self._task is not None and not self._watches and not self._asking:
            self._task.cancel()
            self._task = None

    async def _run(self, listener: HintListener) -> None:
        try:
            await self._serve(listener)
        except Exception as error:  # noqa: BLE001 (the waiters would wait for ever if the task just ended)
            for watch in self._watches:
                # Each waiter raises an exception of its own: a shared one would collect all their tracebacks.
                watch.fail(copy.copy(error))
        self._task = None

    async def _serve(self, listener: HintListener) -> None:
        clock = asyncio.get_running_loop().time
        poll_at = clock() + self._poll_s
        while self._watches:
            await listener.wait(max(0.0, poll_at - clock()))
            pause_s, began = min(_FIRST_PAUSE_S, self._poll_s), clock()
            is_due = began >= poll_at
            if not is_due and all(watch.is_told() for watch in self._watches):
                continue
            while not await self._ask(everybody=is_due):
                await asyncio.sleep(pause_s)
                pause_s, began = min(2 * pause_s, self._poll_s), clock()
            if is_due:
                poll_at = clock() + self._poll_s
            # However fast hints come and however many wait, asking takes at most half of the time.
            await asyncio.sleep(clock() - began)

    async def _ask(self, *, everybody: bool) -> bool:
        """Ask for the waiters and wake those for whom there is news; return False if it is worth another try."""
        kinds: dict[Ask, list[Watch]] = {}
        for watch in self._watches:
            if not everybody and watch.is_told():
                continue
            kinds.setdefault(watch.ask, []).append(watch)
        self._asking = True
        try:
            for ask, watches in kinds.items():
                states = await ask({watch.key for watch in watches})
                # Not those who came during the query: it did not ask for them, and they have looked since.
                for watch in watches:
                    watch.wake(states.get(watch.key))
        except StoreError as error:
            if error.advice is not Advice.RETRY:
                raise
            return False
        finally:
            self._asking = False
        return True
