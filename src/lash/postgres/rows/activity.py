"""Live activity of sessions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.base.ids import new_id
from lash.base.limits import check_identifier
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
    check_place,
    decode_seen_changes,
    encode_activity,
    plan_look,
    read_after,
)
from lash.plan.process.change import ChangeCursor, decode_change_cursor
from lash.plan.session.session import check_limit
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Flag, Number
from lash.stores.hints import Hints


class _LookAnswer(SessionRow, frozen=True, array_like=True):
    """Where a session stands, and some of its activity."""

    rows: list[ActivityRow] = []  # noqa: RUF012 (msgspec makes a new list for each)


class _ChangesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """How far the feed was pruned, and some of it."""

    floor_seq: int
    floor_transaction_id: int
    rows: list[SeenChangeRow]


class PostgresActivityStore:
    """The live activity of one PostgreSQL storage; the contract is `lash.stores.activity.ActivityStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def append(self, session_id: str, items: Sequence[ActivityDraft]) -> int:
        check_identifier("session_id", session_id)
        encoded = encode_activity(items)
        position = await self._append(session_id, encoded)
        if position is None:
            await self._database.write_one(Flag, "activity_begin", session_id, new_id(), repeatable=True)
            position = await self._append(session_id, encoded)
        if position is None:
            raise await missing(self._database, session_id)
        self._hints.notify(process=False, work=False, changed=session_id)
        return position

    async def read(self, session_id: str, place: Place | None = None, *, limit: int = 256) -> Look:
        check_identifier("session_id", session_id)
        size, after = check_limit(limit), read_after(check_place(place))
        answer = await self._database.read_one(_LookAnswer, "activity_look", session_id, after, size, COUNTED)
        if answer is None:
            raise await missing(self._database, session_id)
        return plan_look(place, answer, answer.rows)

    async def process_changes(self, session_id: str, cursor: str, *, limit: int = 256) -> SeenChanges | None:
        check_identifier("session_id", session_id)
        after, size = decode_change_cursor(cursor), check_limit(limit)
        answer = await self._database.read_one(
            _ChangesAnswer, "activity_process_changes", session_id, str(after.transaction_id), after.seq, size
        )
        if answer is None:
            raise await missing(self._database, session_id)
        floor = ChangeCursor(answer.floor_transaction_id, answer.floor_seq)
        return decode_seen_changes(answer.rows, after, floor)

    async def _append(self, session_id: str, encoded: EncodedActivity) -> int | None:
        # Not repeated after a lost connection: it might be shown twice.
        answer = await self._database.write_one(
            Number,
            "activity_append",
            *(session_id, encoded.bodies, encoded.sizes),
            *(KEPT_ITEMS, KEPT_BYTES, KEPT_MS, encoded.front),
            repeatable=False,
        )
        return None if answer is None else answer.number
