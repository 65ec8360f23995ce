"""Live activity of sessions on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.ids import new_id
from lash.errors import CorruptData
from lash.plan.activity import (
    COUNTED,
    KEPT_BYTES,
    KEPT_ITEMS,
    KEPT_MS,
    ActivityRow,
    ActivityTailRow,
    EncodedActivity,
    SessionState,
)
from lash.plan.process.change import ChangeCursor, FeedState, SeenChangeRow
from lash.plan.sealed import ACTIVITY
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.rows.process.change import read_feed
from lash.sqlite.rows.session.lookup import find_head, missing


class SQLiteActivityRows:
    """The live activity of one SQLite storage; the contract is `lash.stores.activity.ActivityRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, session_id: str, activity: EncodedActivity) -> int:
        epoch = new_id()
        return await self._database.write(lambda transaction: _append(transaction, session_id, activity, epoch))

    async def read(self, session_id: str, after: int | None, limit: int) -> tuple[SessionState, Sequence[ActivityRow]]:
        def body(reader: Reader) -> tuple[SessionState, Sequence[ActivityRow]]:
            session = reader.one(SessionState, "activity_session", session_id=session_id, counted=COUNTED)
            if session is None:
                raise missing(reader, session_id)
            if after is None or after >= (session.position or 0):
                return session, []
            key = session.session_key
            return session, reader.all(ActivityRow, "activity_after", session_key=key, position=after, limit=limit)

        return self._database.read(body)

    async def process_changes(
        self, session_id: str, after: ChangeCursor, limit: int
    ) -> tuple[Sequence[SeenChangeRow], FeedState]:
        def body(reader: Reader) -> tuple[Sequence[SeenChangeRow], FeedState]:
            find_head(reader, session_id)
            rows = reader.all(
                SeenChangeRow, "activity_process_changes", session_id=session_id, after=after.seq, limit=limit
            )
            return rows, read_feed(reader, after)

        return self._database.read(body)


def _append(transaction: Transaction, session_id: str, activity: EncodedActivity, epoch: str) -> int:
    head, now_ms = find_head(transaction, session_id), transaction.now_ms
    key, count, size = head.session_key, len(activity.bodies), activity.sizes[-1]
    tail = transaction.one(ActivityTailRow, "activity_move_tail", session_key=key, epoch=epoch, count=count, size=size)
    if tail is None:
        raise CorruptData(f"query activity_move_tail returned no row for session {session_id!r}")
    transaction.run(
        "activity_trim",
        session_key=key,
        front=activity.front,
        position_floor=tail.position - KEPT_ITEMS,
        bytes_floor=tail.written_bytes - KEPT_BYTES,
        before_ms=now_ms - KEPT_MS,
    )
    transaction.run_many(
        "activity_insert",
        (
            {
                "session_key": key,
                "position": tail.position - count + ordinal,
                "revision": head.revision,
                "written_bytes": tail.written_bytes - size + bytes_so_far,
                "now_ms": now_ms,
                "body": transaction.seals.text(ACTIVITY, body),
            }
            for ordinal, (body, bytes_so_far) in enumerate(zip(activity.bodies, activity.sizes, strict=True), start=1)
        ),
    )
    return tail.position
