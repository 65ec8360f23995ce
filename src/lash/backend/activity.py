"""The live activity of a storage, over the rows of either database."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.limits import check_identifier, check_limit
from lash.model.activity import ActivityDraft, ActivityPage, ObserveCursor, SeenChanges
from lash.plan.activity import check_cursor, decode_seen_changes, encode_activity, plan_page, read_after
from lash.plan.process.change import decode_change_cursor
from lash.stores.activity import ActivityRows
from lash.stores.hints import Hints


class Activities:
    """The live activity of one storage; the contract is `lash.stores.activity.ActivityStore`."""

    def __init__(self, rows: ActivityRows, hints: Hints) -> None:
        self._rows = rows
        self._hints = hints

    async def append(self, session_id: str, items: Sequence[ActivityDraft]) -> int:
        check_identifier("session_id", session_id)
        position = await self._rows.append(session_id, encode_activity(items))
        self._hints.notify(process=False, work=False, changed=session_id)
        return position

    async def read(self, session_id: str, cursor: ObserveCursor | None = None, *, limit: int = 256) -> ActivityPage:
        check_identifier("session_id", session_id)
        size, after = check_limit(limit), read_after(check_cursor(cursor))
        session, rows = await self._rows.read(session_id, after, size)
        return plan_page(cursor, session, rows)

    async def process_changes(self, session_id: str, cursor: str, *, limit: int = 256) -> SeenChanges | None:
        check_identifier("session_id", session_id)
        after, size = decode_change_cursor(cursor), check_limit(limit)
        rows, feed = await self._rows.process_changes(session_id, after, size)
        return decode_seen_changes(rows, after, feed)
