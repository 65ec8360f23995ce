"""Observing a session from any process: its turns, commits, queue and processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from msgspec.structs import replace

from lash.base.limits import check_identifier
from lash.errors import Advice, SessionDeleted, SessionNotFound, StoreError
from lash.model.activity import ObserveCursor, Observed
from lash.model.gap import GapReason
from lash.plan.activity import ObserverStream, decode_cursor, encode_cursor, rebase
from lash.stores.storage import Storage

_FIRST_PAUSE_S: Final = 0.05
"""The pause before the first retry of a failed read; it doubles each time."""
_LONGEST_PAUSE_S: Final = 1.0


def observe(storage: Storage, session_id: str, cursor: str | None = None) -> AsyncGenerator[Observed, None]:
    """Yield what happens in a session, from now on or after a cursor, until the caller closes the generator.

    Without a cursor the stream starts when the first value is requested; `current_cursor` fixes the start earlier. If
    the session does not exist yet, the stream waits for it; when it is deleted, the stream ends. Every value has a
    cursor: another call with it, in any process, continues after that value without losing or repeating any, or yields
    a `Gap`. Raises InvalidInput at once if the cursor does not belong to this session.

    A slow observer does not slow others; nothing is buffered for it. It gets a `Gap` if values that it has not seen
    are no longer kept.
    """
    check_identifier("session_id", session_id)
    start = None if cursor is None else decode_cursor(session_id, cursor)
    return _observe(_Observer(storage, session_id, start))


async def current_cursor(storage: Storage, session_id: str) -> str:
    """Return the cursor of the current state of a session; a reader that loads it afterwards misses nothing."""
    check_identifier("session_id", session_id)
    try:
        newest = (await storage.activity.read(session_id)).newest
    except SessionNotFound:
        newest = ObserveCursor()
    return encode_cursor(session_id, newest)


async def oldest_cursor(storage: Storage, session_id: str) -> tuple[str, bool]:
    """Return the cursor before the oldest activity that is kept, and whether all activity of the session is kept.

    It is two reads. Commits and changes before now are not reported from it.
    """
    check_identifier("session_id", session_id)
    try:
        newest = (await storage.activity.read(session_id)).newest
        page = await storage.activity.read(session_id, replace(newest, position=0), limit=1)
    except SessionNotFound:
        return encode_cursor(session_id, ObserveCursor()), True
    if page.gap is None:
        return encode_cursor(session_id, replace(newest, position=0)), True
    position = newest.position if page.oldest is None else page.oldest - 1
    return encode_cursor(session_id, replace(newest, position=position)), False


async def _observe(observer: _Observer) -> AsyncGenerator[Observed, None]:
    with observer.storage.session_waiter.observing(observer.session_id) as watch:
        while True:
            if not await observer.read():
                return
            for observed in observer.observed:
                yield observed
            if not observer.behind:
                await watch.changed()


class _Observer:
    """One observer of a session: its cursor, and what to yield next."""

    def __init__(self, storage: Storage, session_id: str, cursor: ObserveCursor | None) -> None:
        self.storage = storage
        self.observed: list[Observed] = []
        self.behind = False
        self.session_id = session_id
        self._cursor = cursor

    async def read(self) -> bool:
        """Read what to yield next, with retries; return False if the session was deleted."""
        pause_s = _FIRST_PAUSE_S
        while True:
            self.observed, self.behind = [], False
            try:
                await self._read()
            except SessionDeleted:
                return False
            except SessionNotFound:
                # Once the session exists, report it from its first revision.
                self._cursor = self._cursor or ObserveCursor()
            except StoreError as error:
                if error.advice is not Advice.RETRY:
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            return True

    async def _read(self) -> None:
        page = await self.storage.session_waiter.read(self.session_id, self._cursor)
        stream = ObserverStream(self.session_id, rebase(self._cursor, page))
        stream.page(page)
        newest = page.newest.change
        if not page.more and stream.cursor.change != newest:
            seen = await self.storage.session_waiter.process_changes(self.session_id, stream.cursor.change)
            if seen is None:
                stream.gap(GapReason.TRIMMED, replace(stream.cursor, change=newest))
            else:
                stream.changes(seen)
        self.observed, self._cursor = stream.observed, stream.cursor
        self.behind = page.more or stream.cursor.change != newest
