"""Waiting for replies and news of sessions; the contract is `lash.stores.waiter.SessionWaiter`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from lash.backend.change_waiter import SLOW_POLL_S, ChangeWaiter, StateQuery, Watch
from lash.backend.hints import session_tag
from lash.backend.shared_reads import SharedReads
from lash.model.activity import ActivityPage, ObserveCursor, SeenChanges
from lash.stores.activity import ActivityStore
from lash.stores.hints import Hint, Hints
from lash.stores.waiter import ReplyRows

_UNSENT: Final = ""
"""The key of a watch before its message is sent."""
_QUEUED: Final = True
"""The state of a message that is still queued; one that is not has no state."""


class _ReplyWatch(Watch):
    """Wakes a caller when its message may have been answered: a hint names its session, or it left the queue."""

    def __init__(self, query: StateQuery, session_id: str, query_soon: Callable[[], None]) -> None:
        super().__init__(query, _UNSENT)
        self.tag: str = session_tag(session_id)
        self._session_id = session_id
        self._query_soon = query_soon
        self._missed_query = False
        self.state = _QUEUED

    @property
    def has_key(self) -> bool:
        return self.key != _UNSENT

    def set_batch(self, batch_id: str) -> None:
        self.key = f"{self._session_id} {batch_id}"
        if self._missed_query:
            self._missed_query = False
            self._query_soon()

    def needs_query(self, hint: Hint) -> bool:
        if hint.changed is None:
            # While the message is being sent there is nothing to ask for, but the change may already be its reply.
            self._missed_query = not self.has_key
            return self.has_key
        if self.tag in hint.changed:
            self.wake()
        return False


class _ObserverWatch(Watch):
    """Wakes an observer for each hint that may be about its session, or about processes, which it may see."""

    def __init__(self, session_id: str) -> None:
        super().__init__(None, session_id)
        self.tag: str = session_tag(session_id)

    def needs_query(self, hint: Hint) -> bool:
        if hint.process or hint.names_session(self.tag):
            self.wake()
        return False


class SharedSessionWaiter:
    """All callers that wait for sessions of one storage."""

    def __init__(self, rows: ReplyRows, activity: ActivityStore, hints: Hints, *, poll_s: float = SLOW_POLL_S) -> None:
        self._rows = rows
        self._reads = SharedReads()
        self._activity = activity
        self._replies: ChangeWaiter[_ReplyWatch] = ChangeWaiter(partial(hints.listen, by_session=True), poll_s=poll_s)
        self._observers: ChangeWaiter[_ObserverWatch] = ChangeWaiter(
            partial(hints.listen, everything=True), poll_s=poll_s
        )

    def awaiting_reply(self, session_id: str) -> AbstractContextManager[_ReplyWatch]:
        return self._replies.watching(_ReplyWatch(self._queued, session_id, self._replies.query_soon))

    def observing(self, session_id: str) -> AbstractContextManager[_ObserverWatch]:
        return self._observers.watching(_ObserverWatch(session_id))

    async def read(self, session_id: str, cursor: ObserveCursor | None) -> ActivityPage:
        return await self._reads.share((session_id, cursor), lambda: self._activity.read(session_id, cursor))

    async def process_changes(self, session_id: str, cursor: str) -> SeenChanges | None:
        return await self._reads.share((session_id, cursor), lambda: self._activity.process_changes(session_id, cursor))

    async def close(self) -> None:
        """End every wait with StorageClosed."""
        await self._replies.close()
        await self._observers.close()

    async def _queued(self, keys: set[str]) -> Mapping[str, object]:
        # Ids of batches contain no space.
        sent = {batch_id: session_id for session_id, _, batch_id in (key.rpartition(" ") for key in keys - {_UNSENT})}
        queued = await self._rows.queued([(session_id, batch_id) for batch_id, session_id in sent.items()])
        return dict.fromkeys((_UNSENT, *(f"{sent[batch_id]} {batch_id}" for batch_id in queued)), _QUEUED)
