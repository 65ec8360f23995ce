"""The contracts of waiting: for events and ends of processes, and for replies and news of sessions."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol

from lash.model.activity import ActivityPage, ObserveCursor, SeenChanges
from lash.model.process.event import ProcessEvent
from lash.model.process.process import Outcome


class ProcessWaiter(Protocol):
    """Waits for events and ends of processes, without a query for each caller.

    A lost hint delays a wait by at most a second. A caller that is cancelled leaves nothing behind.
    """

    async def wait_event_after(
        self, process_id: str, event_type: str, sequence: int = 0, *, timeout_s: float | None = None
    ) -> ProcessEvent:
        """Return the first event of a type after a sequence, at once if it is in the log, else when it is appended.

        Raises WaitTimedOut if it is not in the log at the end of that time, ProcessNotFound or ProcessPruned if the
        process does not exist, and StorageClosed if the storage is closed meanwhile.
        """
        ...

    async def await_outcome(self, process_id: str, *, timeout_s: float | None = None) -> Outcome:
        """Return how a process ended, at once if it has, else when it does; raises like `wait_event_after`."""
        ...


class ReplyWatch(Protocol):
    """One caller's wait for the end of a message in the queue."""

    def set_batch(self, batch_id: str) -> None:
        """Set the batch of the message, once it is known."""
        ...

    async def changed(self) -> object:
        """Return once the message may have been answered or removed, also if that happened since the last call."""
        ...


class ObserverWatch(Protocol):
    """One observer's wait for news of a session."""

    async def changed(self) -> object:
        """Return once the session may have changed, also if that happened since the last call."""
        ...


class SessionWaiter(Protocol):
    """Waits for replies and news of sessions; reads are shared, so many callers cost few queries."""

    def awaiting_reply(self, session_id: str) -> AbstractContextManager[ReplyWatch]:
        """Watch a session from here on for the reply to a message. Hints about other sessions cause no read."""
        ...

    def observing(self, session_id: str) -> AbstractContextManager[ObserverWatch]:
        """Watch a session from here on for anything that an observer sees."""
        ...

    async def read(self, session_id: str, cursor: ObserveCursor | None) -> ActivityPage:
        """Read a session's activity; see `lash.stores.activity.ActivityStore.read`."""
        ...

    async def process_changes(self, session_id: str, cursor: str) -> SeenChanges | None:
        """Read changes of processes; see `lash.stores.activity.ActivityStore.process_changes`."""
        ...


class ReplyRows(Protocol):
    """The query that a backend supplies for a `SessionWaiter`."""

    async def queued(self, batches: Collection[tuple[str, str]]) -> set[str]:
        """Return the ids of the batches that are still queued, of pairs of a session and a batch, in one query."""
        ...
