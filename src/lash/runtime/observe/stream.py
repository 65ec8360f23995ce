"""Observing a session from any process: its turns, commits, queue and processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from msgspec.structs import replace

from lash.base.limits import check_identifier
from lash.errors import Advice, SessionDeleted, SessionNotFound, StoreError
from lash.model.activity import GapReason, ObserveCursor, Observed
from lash.plan.activity import ObserverStream, decode_cursor, encode_cursor, rebase
from lash.stores.storage import Storage

_LOOK_EVERY_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.05


def observe(storage: Storage, session_id: str, cursor: str | None = None) -> AsyncGenerator[Observed, None]:
    """Return what happens in a session, from now on or from right behind a cursor, until the caller stops.

    Now is when the first value is asked for; `current_cursor` fixes it earlier. A session that does not exist yet is
    waited for; when it is deleted, the stream ends. Every value has the cursor with which another call, in any process,
    goes on behind it: without a hole, without a repetition, or with a `Gap` that says so. Raises InvalidInput at once
    for something that is no cursor of this session.

    A slow observer does not slow others; nothing is buffered for it. It gets a `Gap` once what it has not seen is no
    longer kept.
    """
    check_identifier("session_id", session_id)
    place = None if cursor is None else decode_cursor(session_id, cursor)
    return _observe(_Observer(storage, session_id, place))


async def current_cursor(storage: Storage, session_id: str) -> str:
    """Return the cursor of where a session stands now; a reader who loads it afterwards misses nothing."""
    check_identifier("session_id", session_id)
    try:
        place = (await storage.activity.read(session_id)).newest
    except SessionNotFound:
        place = ObserveCursor()
    return encode_cursor(session_id, place)


async def _observe(observer: _Observer) -> AsyncGenerator[Observed, None]:
    with observer.storage.session_waiter.observing(observer.session_id) as watch:
        while True:
            if not await observer.look():
                return
            for observed in observer.told:
                yield observed
            if not observer.behind:
                await watch.changed()


class _Observer:
    """One observer of a session: its cursor, and what to yield next."""

    def __init__(self, storage: Storage, session_id: str, place: ObserveCursor | None) -> None:
        self.storage = storage
        self.told: list[Observed] = []
        self.behind = False
        self.session_id = session_id
        self._place = place

    async def look(self) -> bool:
        """Find out what there is to tell, and return False if the session was deleted."""
        pause_s = _FIRST_PAUSE_S
        while True:
            self.told, self.behind = [], False
            try:
                await self._look()
            except SessionDeleted:
                return False
            except SessionNotFound:
                # Once the session exists, report it from its first revision.
                self._place = self._place or ObserveCursor()
            except StoreError as error:
                if error.advice is not Advice.RETRY:
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LOOK_EVERY_S)
                continue
            return True

    async def _look(self) -> None:
        look = await self.storage.session_waiter.read(self.session_id, self._place)
        telling = ObserverStream(self.session_id, rebase(self._place, look))
        telling.page(look)
        newest = look.newest.change
        if not look.more and telling.cursor.change != newest:
            seen = await self.storage.session_waiter.process_changes(self.session_id, telling.cursor.change)
            if seen is None:
                telling.gap(GapReason.TRIMMED, replace(telling.cursor, change=newest))
            else:
                telling.changes(seen)
        self.told, self._place = telling.observed, telling.cursor
        self.behind = look.more or telling.cursor.change != newest
