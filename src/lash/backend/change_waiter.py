"""Waiting for changes: any number of waiting callers, one task, one query for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from lash.base.backoff import FIRST_PAUSE_S, backoff
from lash.errors import Advice, StorageClosed, StoreError
from lash.stores.hints import Hint, HintListener

SLOW_POLL_S: Final = 1.0
"""How long a caller waits at most if a hint is lost."""
_GAP_S: Final = 0.0001
"""The pause after a query for each caller it asked for: about the time of one read on SQLite."""
_LONGEST_GAP_S: Final = 0.025
"""The longest pause, however many callers wait: it delays every one of them."""

W = TypeVar("W", bound="Watch")

StateQuery: TypeAlias = Callable[[set[str]], Awaitable[Mapping[str, object]]]
"""One query for the states of any number of keys; keys that do not exist are left out."""


class Watch:
    """One caller's interest in one key, and the state of the key when the caller last read it (None: unknown)."""

    tag: str | None = None
    """The tag of the session that the key belongs to, if it belongs to one."""

    def __init__(self, query: StateQuery | None, key: str) -> None:
        """Watch a key. Without a query for its state every hint that concerns it wakes the caller."""
        self.query = query
        self.key = key
        self.state: object = None
        self._woken = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def has_key(self) -> bool:
        """Whether there is a key to ask for yet."""
        return True

    async def changed(self) -> object:
        """Return the state once it may be new, also if that happened since the last call."""
        await self._woken.wait()
        self._woken.clear()
        if self._failure is not None:
            raise self._failure
        return self.state

    def needs_query(self, hint: Hint) -> bool:  # noqa: ARG002 (subclasses use it)
        """Return whether the shared query must ask for this key after a hint; wake the caller if no query can help."""
        return True

    def update(self, state: object) -> None:
        """Wake the caller if the state differs from the last one it read; with no known state, wake once."""
        if state is None or state != self.state:
            self.state = state
            self._woken.set()

    def wake(self) -> None:
        """Let the caller read."""
        self._woken.set()

    def fail(self, failure: Exception) -> None:
        """End the wait with an error."""
        self._failure = failure
        self._woken.set()


class ChangeWaiter(Generic[W]):
    """One task that listens for hints on behalf of all waiting callers, whatever they wait for.

    A hint that names a session wakes the callers that wait for it. After any other hint, and every second without one,
    the task asks one query for each kind of key. It runs only while there are watches.
    """

    def __init__(
        self,
        listen: Callable[[], HintListener],
        *,
        poll_s: float = SLOW_POLL_S,
        keep_listening: bool = False,
        on_hint: Callable[[Hint], None] | None = None,
    ) -> None:
        """``keep_listening`` keeps the listener between watches; ``on_hint`` gets every hint before the watches."""
        self._listen = listen
        self._on_hint = on_hint
        self._poll_s = poll_s
        self._keep_listening = keep_listening
        self._listener: HintListener | None = None
        self._watches: set[W] = set()
        self._by_tag: dict[str, set[W]] = {}
        self._task: asyncio.Task[None] | None = None
        self._querying = False
        self._closed = False

    @property
    def is_listening(self) -> bool:
        """Whether every change from now on is a hint to the next watch."""
        return self._listener is not None

    @contextlib.contextmanager
    def watching(self, watch: W) -> Iterator[W]:
        """Take part: every change of the key from here on wakes the watch. Watches of one query are asked together."""
        if self._closed:
            raise StorageClosed
        # Before the caller's first read: what happens from here on is a hint.
        listener = self._listener = self._listener or self._listen()
        self._watches.add(watch)
        if watch.tag is not None:
            self._by_tag.setdefault(watch.tag, set()).add(watch)
        if self._task is None:
            self._task = asyncio.create_task(self._run(listener), name="lash-change-waiter")
        try:
            yield watch
        finally:
            self._remove(watch)

    def query_soon(self) -> None:
        """Query for all watches without waiting for a hint."""
        if self._listener is not None:
            self._listener.hint()

    async def close(self) -> None:
        """End every wait with StorageClosed."""
        self._closed = True
        task = self._task
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            # If the event loop of the waiting callers is gone, so are they.
            return
        for watch in self._watches:
            watch.fail(StorageClosed())
        self._task = None
        task.cancel()
        await asyncio.wait({task})

    def _remove(self, watch: W) -> None:
        self._watches.discard(watch)
        if watch.tag is not None:
            same = self._by_tag[watch.tag]
            same.discard(watch)
            if not same:
                del self._by_tag[watch.tag]
        # A query under way is not cancelled, since that costs more than its answer; the task ends after it.
        if self._task is not None and not self._watches and not self._querying:
            self._task.cancel()
            self._end()

    def _end(self) -> None:
        self._task = None
        if self._listener is not None and not self._keep_listening:
            self._listener.close()
            self._listener = None

    async def _run(self, listener: HintListener) -> None:
        try:
            await self._serve(listener)
        except Exception as error:  # noqa: BLE001 (the callers would wait forever if the task just ended)
            for watch in self._watches:
                # Each caller raises its own exception: a shared one would collect all their tracebacks.
                watch.fail(copy.copy(error))
        self._end()

    async def _serve(self, listener: HintListener) -> None:
        clock = asyncio.get_running_loop().time
        pending: set[W] = set()
        poll_at, query_at, failures = clock() + self._poll_s, 0.0, 0
        while self._watches:
            wake_at = max(query_at, clock()) if pending else poll_at
            hint = await listener.wait(max(0.0, min(wake_at, poll_at) - clock()))
            if self._on_hint is not None:
                self._on_hint(hint)
            pending.update(watch for watch in self._concerned(hint) if watch.needs_query(hint))
            began = clock()
            if began >= poll_at:
                pending, poll_at = self._all_due(), began + self._poll_s
            pending &= self._watches
            if not pending or began < query_at:
                continue
            if await self._query(pending):
                # However fast hints come and however many callers wait, queries take at most half of the time.
                query_at = clock() + max(clock() - began, min(_GAP_S * len(pending), _LONGEST_GAP_S))
                failures, pending = 0, set()
            else:
                longest_s = self._poll_s
                query_at = clock() + backoff(failures, first_s=min(FIRST_PAUSE_S, longest_s), longest_s=longest_s)
                failures += 1

    def _concerned(self, hint: Hint) -> Iterable[W]:
        """Return the watches that a hint may be about."""
        if hint.process or hint.queued is None or hint.changed is None:
            return self._watches
        return {watch for tag in hint.queued | hint.changed for watch in self._by_tag.get(tag, ())}

    def _all_due(self) -> set[W]:
        """Return the watches to ask for when it is time to poll; the others are woken to read."""
        for watch in self._watches:
            if watch.query is None:
                watch.wake()
        return {watch for watch in self._watches if watch.query is not None and watch.has_key}

    async def _query(self, watches: set[W]) -> bool:
        """Ask for the states and wake the callers whose state is new; return False if a retry may help."""
        kinds: dict[StateQuery, list[W]] = {}
        for watch in watches:
            if watch.query is not None:
                kinds.setdefault(watch.query, []).append(watch)
        self._querying = True
        try:
            for query, asked in kinds.items():
                states = await query({watch.key for watch in asked})
                # Not the watches that came during the query: it did not ask for them, and they have read since.
                for watch in asked:
                    watch.update(states.get(watch.key))
        except StoreError as error:
            if error.advice is not Advice.RETRY:
                raise
            return False
        finally:
            self._querying = False
        return True
