"""The process events of every backend, their wakes, and the feed of changes."""

from __future__ import annotations

from collections.abc import Collection

from lash.backend.process.process import notify_change
from lash.base.limits import check_identifier, check_integer, check_limit
from lash.model.gap import GapReason
from lash.model.lease import LeaseFence
from lash.model.process.event import SIGNAL_PREFIX, Appended, EventDraft, EventPage, ProcessEvent, WakeRecord
from lash.model.process.process import ChangePage
from lash.model.value import JSON
from lash.plan.process.append import AppendConditions, append_request
from lash.plan.process.change import (
    decode_change_cursor,
    decode_changes,
    decode_tail,
    encode_change_cursor,
    feed_gap,
)
from lash.plan.process.event import decode_event
from lash.plan.process.event_draft import check_signal_name, signal_draft
from lash.plan.process.grant import check_process_ids
from lash.plan.process.wake import decode_lost_wake, decode_wake, woken_session
from lash.stores.hints import Hints
from lash.stores.process.event import EventRows


class Events:
    """The logs of one storage; the contract is `lash.stores.process.event.EventStore`."""

    def __init__(self, rows: EventRows, hints: Hints) -> None:
        self._rows = rows
        self._hints = hints

    async def append(self, process_id: str, draft: EventDraft, *, fence: LeaseFence | None = None) -> Appended:
        result = await self._rows.append(append_request(process_id, draft, AppendConditions(fence=fence)))
        notify_change(self._hints, result.record)
        woken = woken_session(result.appended.wake)
        if woken is not None:
            self._hints.notify(process=False, session_id=woken)
        return result.appended

    async def signal(self, process_id: str, name: str, *, signal_id: str, payload: JSON = None) -> Appended:
        check_identifier("process_id", process_id)
        return await self.append(process_id, signal_draft(process_id, name, signal_id, payload))

    async def signal_at(self, process_id: str, name: str, ordinal: int) -> ProcessEvent | None:
        check_identifier("process_id", process_id)
        event_type = SIGNAL_PREFIX + check_signal_name(name)
        skip = check_integer("ordinal", ordinal, at_least=1) - 1
        row = await self._rows.nth_of_type(process_id, event_type, skip)
        return None if row is None else decode_event(row, process_id)

    async def after(
        self, process_id: str, sequence: int = 0, *, event_type: str | None = None, limit: int = 1_000
    ) -> tuple[ProcessEvent, ...]:
        check_identifier("process_id", process_id)
        check_integer("sequence", sequence, at_least=0)
        if event_type is not None:
            check_identifier("event_type", event_type)
        rows = await self._rows.after(process_id, sequence, event_type, check_limit(limit))
        return tuple(decode_event(row, process_id) for row in rows)

    async def recent(self, process_id: str, count: int) -> tuple[ProcessEvent, ...]:
        check_identifier("process_id", process_id)
        rows = await self._rows.recent(process_id, check_limit(count))
        return tuple(decode_event(row, process_id) for row in reversed(rows))

    async def count_through(self, process_id: str, event_type: str, sequence: int) -> int:
        check_identifier("process_id", process_id)
        check_identifier("event_type", event_type)
        check_integer("sequence", sequence, at_least=0)
        return await self._rows.count_through(process_id, event_type, sequence)

    async def last_sequences(self, process_ids: Collection[str]) -> dict[str, int]:
        rows = await self._rows.last_sequences(check_process_ids(process_ids))
        return {row.process_id: row.last_sequence for row in rows}

    async def wakes_after(self, process_id: str, sequence: int = 0) -> tuple[WakeRecord, ...]:
        check_identifier("process_id", process_id)
        check_integer("sequence", sequence, at_least=0)
        rows = await self._rows.open_wakes(process_id, sequence)
        return tuple(decode_wake(row, process_id) for row in rows)

    async def acknowledge_wake(self, process_id: str, sequence: int) -> bool:
        check_identifier("process_id", process_id)
        check_integer("sequence", sequence, at_least=1)
        return await self._rows.acknowledge_wake(process_id, sequence)

    async def undeliverable_wakes(self, *, limit: int = 100, after: WakeRecord | None = None) -> tuple[WakeRecord, ...]:
        last = ("", 0) if after is None else (after.process_id, after.sequence)
        return tuple(decode_lost_wake(row) for row in await self._rows.undeliverable_wakes(check_limit(limit), last))

    async def tail(self, cursor: str | None = None, *, limit: int = 100) -> EventPage:
        after = decode_change_cursor(cursor)
        rows, feed = await self._rows.tail(after, check_limit(limit))
        if feed_gap(after, feed) is GapReason.UNAVAILABLE:
            return EventPage(events=(), cursor=await self._end(), gap=GapReason.UNAVAILABLE)
        return decode_tail(rows, after, feed)

    async def changes(self, cursor: str | None = None, *, limit: int = 100) -> ChangePage:
        after = decode_change_cursor(cursor)
        rows, feed = await self._rows.changes(after, check_limit(limit))
        if feed_gap(after, feed) is GapReason.UNAVAILABLE:
            return ChangePage(changes=(), cursor=await self._end(), gap=GapReason.UNAVAILABLE)
        return decode_changes(rows, after, feed)

    async def _end(self) -> str:
        return encode_change_cursor(await self._rows.feed_end())
