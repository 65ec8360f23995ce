"""Live activity of sessions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.ids import new_id
from lash.plan.activity import (
    COUNTED,
    KEPT_BYTES,
    KEPT_ITEMS,
    KEPT_MS,
    ActivityRow,
    EncodedActivity,
    SessionState,
)
from lash.plan.process.change import ChangeCursor, FeedState, SeenChangeRow
from lash.plan.sealed import ACTIVITY
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.change import ChangeFeed
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Flag, Number


class _PageAnswer(SessionState, frozen=True, array_like=True):
    """The state of a session, the transaction that holds the change feed back, and some of its activity."""

    held_by: str | None = None
    rows: list[ActivityRow] = []  # noqa: RUF012 (msgspec makes a new list for each)


class PostgresActivityRows:
    """The live activity of one PostgreSQL storage; the contract is `lash.stores.activity.ActivityRows`."""

    def __init__(self, database: Database, feed: ChangeFeed) -> None:
        self._database = database
        self._feed = feed

    async def append(self, session_id: str, activity: EncodedActivity) -> int:
        position = await self._append(session_id, activity)
        if position is None:
            await self._database.write_one(Flag, "activity_start", session_id, new_id(), repeatable=True)
            position = await self._append(session_id, activity)
        if position is None:
            raise await missing(self._database, session_id)
        return position

    async def read(self, session_id: str, after: int | None, limit: int) -> tuple[SessionState, Sequence[ActivityRow]]:
        answer = await self._database.read_one(_PageAnswer, "activity_read", session_id, after, limit, COUNTED)
        if answer is None:
            raise await missing(self._database, session_id)
        await self._feed.note(answer.held_by)
        return answer, answer.rows

    async def process_changes(
        self, session_id: str, after: ChangeCursor, limit: int
    ) -> tuple[Sequence[SeenChangeRow], FeedState]:
        found = await self._feed.seen(session_id, after, limit)
        if found is None:
            raise await missing(self._database, session_id)
        return found

    async def _append(self, session_id: str, activity: EncodedActivity) -> int | None:
        bodies = [self._database.seals.text(ACTIVITY, body) for body in activity.bodies]
        # Not retried after a lost connection: observers might get it twice.
        answer = await self._database.write_one(
            Number,
            "activity_append",
            *(session_id, bodies, activity.sizes),
            *(KEPT_ITEMS, KEPT_BYTES, KEPT_MS, activity.front),
            repeatable=False,
        )
        return None if answer is None else answer.number
