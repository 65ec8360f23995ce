"""Live activity of sessions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.base.ids import new_id
from lash.plan.activity import (
    COUNTED,
    KEPT_BYTES,
    KEPT_ITEMS,
    KEPT_MS,
    ActivityRow,
    EncodedActivity,
    SeenChangeRow,
    SessionState,
)
from lash.plan.process.change import ChangeCursor
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Flag, Number


class _PageAnswer(SessionState, frozen=True, array_like=True):
    """The state of a session, and some of its activity."""

    rows: list[ActivityRow] = []  # noqa: RUF012 (msgspec makes a new list for each)


class _ChangesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Up to where the feed was pruned, and some of it."""

    floor_seq: int
    floor_transaction_id: int
    rows: list[SeenChangeRow]


class PostgresActivityRows:
    """The live activity of one PostgreSQL storage; the contract is `lash.stores.activity.ActivityRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        return answer, answer.rows

    async def process_changes(
        self, session_id: str, after: ChangeCursor, limit: int
    ) -> tuple[Sequence[SeenChangeRow], ChangeCursor]:
        arguments = (session_id, str(after.transaction_id), after.seq, limit)
        answer = await self._database.read_one(_ChangesAnswer, "activity_process_changes", *arguments)
        if answer is None:
            raise await missing(self._database, session_id)
        return answer.rows, ChangeCursor(answer.floor_transaction_id, answer.floor_seq)

    async def _append(self, session_id: str, activity: EncodedActivity) -> int | None:
        # Not retried after a lost connection: observers might get it twice.
        answer = await self._database.write_one(
            Number,
            "activity_append",
            *(session_id, activity.bodies, activity.sizes),
            *(KEPT_ITEMS, KEPT_BYTES, KEPT_MS, activity.front),
            repeatable=False,
        )
        return None if answer is None else answer.number
