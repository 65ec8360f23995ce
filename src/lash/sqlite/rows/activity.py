"""Live activity of sessions on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.ids import new_id
from lash.base.limits import check_identifier
from lash.errors import CorruptData
from lash.model.activity import ActivityDraft, Look, Place, SeenChanges
from lash.plan.activity import (
    COUNTED,
    KEPT_BYTES,
    KEPT_ITEMS,
    KEPT_MS,
    ActivityRow,
    EncodedActivity,
    SeenChangeRow,
    SessionRow,
    TailRow,
    check_place,
    decode_seen_changes,
    encode_activity,
    plan_look,
    read_after,
)
from lash.plan.process.change import ChangeCursor, decode_change_cursor
from lash.plan.session.session import check_limit, missing_session
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.rows.session.lookup import find_head, is_deleted
from lash.sqlkit.rows import Number
from lash.stores.hints import Hints


class SQLiteActivityStore:
    """The live activity of one SQLite storage; the contract is `lash.stores.activity.ActivityStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def append(self, session_id: str, items: Sequence[ActivityDraft]) -> int:
        check_identifier("session_id", session_id)
        encoded, epoch = encode_activity(items), new_id()
        position = await self._database.write(lambda transaction: _append(transaction, session_id, encoded, epoch))
        self._hints.notify(process=False, work=False, changed=session_id)
        return position

    async def read(self, session_id: str, place: Place | None = None, *, limit: int = 256) -> Look:
        check_identifier("session_id", session_id)
        size, after = check_limit(limit), read_after(check_place(place))

        def body(reader: Reader) -> tuple[SessionRow, list[ActivityRow]]:
            session = reader.one(SessionRow, "activity_session", session_id=session_id, counted=COUNTED)
            if session is None:
                raise missing_session(session_id, deleted=is_deleted(reader, session_id))
            if after is None or after >= (session.position or 0):
                return session, []
            key = session.session_key
            return session, reader.all(ActivityRow, "activity_after", session_key=key, position=after, limit=size)

        return plan_look(place, *self._database.read(body))

    async def process_changes(self, session_id: str, cursor: str, *, limit: int = 256) -> SeenChanges | None:
        check_identifier("session_id", session_id)
        after, size = decode_change_cursor(cursor), check_limit(limit)

        def body(reader: Reader) -> tuple[list[SeenChangeRow], Number | None]:
            find_head(reader, session_id)
            rows = reader.all(
                SeenChangeRow, "activity_process_changes", session_id=session_id, after=after.seq, limit=size
            )
            return rows, reader.one(Number, "activity_change_floor")

        rows, floor = self._database.read(body)
        return decode_seen_changes(rows, after, ChangeCursor(0, 0 if floor is None else floor.number))


def _append(transaction: Transaction, session_id: str, encoded: EncodedActivity, epoch: str) -> int:
    head, now_ms = find_head(transaction, session_id), transaction.now_ms
    key, count, size = head.session_key, len(encoded.bodies), encoded.sizes[-1]
    tail = transaction.one(TailRow, "activity_move_tail", session_key=key, epoch=epoch, count=count, size=size)
    if tail is None:
        raise CorruptData(f"the activity of session {session_id!r} has no end")
    transaction.run(
        "activity_trim",
        session_key=key,
        front=encoded.front,
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
                "body": body,
            }
            for ordinal, (body, bytes_so_far) in enumerate(zip(encoded.bodies, encoded.sizes, strict=True), start=1)
        ),
    )
    return tail.position
