"""Process events on PostgreSQL, their wakes, and the feed of changes."""

from __future__ import annotations

from collections.abc import Collection

from lash.base.limits import check_identifier, check_integer
from lash.model.lease import LeaseFence
from lash.model.process.event import SIGNAL_PREFIX, Appended, EventDraft, EventPage, ProcessEvent, WakeRecord
from lash.model.process.process import ChangePage
from lash.model.value import JSON
from lash.plan.process.change import ChangeRow, TailRow, decode_change_cursor, decode_changes, decode_tail
from lash.plan.process.event import SequenceRow, decode_event
from lash.plan.process.event_draft import check_signal_name, signal_draft
from lash.plan.process.grant import check_process_ids
from lash.plan.process.wake import LostWakeRow, decode_lost_wake, decode_wake, woken_session
from lash.plan.session.session import check_limit
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.append import fenced, missing_record, run_append
from lash.postgres.rows.process.rows import EventsAnswer, WakesAnswer
from lash.sqlkit.rows import Flag, Number
from lash.stores.hints import Hints


class PostgresEventStore:
    """The logs of one PostgreSQL storage; the contract is `lash.stores.process.event.EventStore`."""

    def __init__(self, database: Database, seen: ProcessCache, hints: Hints) -> None:
        self._database = database
        self._seen = seen
        self._hints = hints

    async def append(self, process_id: str, draft: EventDraft, *, fence: LeaseFence | None = None) -> Appended:
        result = await run_append(self._database, self._seen, process_id, draft, fenced(fence))
        self._hints.notify(session_id=woken_session(result.appended.wake))
        return result.appended

    async def signal(self, process_id: str, name: str, *, signal_id: str, payload: JSON = None) -> Appended:
        check_identifier("process_id", process_id)
        return await self.append(process_id, signal_draft(process_id, name, signal_id, payload))

    async def signal_at(self, process_id: str, name: str, ordinal: int) -> ProcessEvent | None:
        event_type = SIGNAL_PREFIX + check_signal_name(name)
        skip = check_integer("ordinal", ordinal, at_least=1) - 1
        found = await self._events("event_nth_of_type", process_id, event_type, skip)
        return found[0] if found else None

    async def after(
        self, process_id: str, sequence: int = 0, *, event_type: str | None = None, limit: int = 1_000
    ) -> tuple[ProcessEvent, ...]:
        place, size = check_integer("sequence", sequence, at_least=0), check_limit(limit)
        if event_type is None:
            return await self._events("event_after", process_id, place, size)
        check_identifier("event_type", event_type)
        return await self._events("event_after_of_type", process_id, place, size, event_type)

    async def recent(self, process_id: str, count: int) -> tuple[ProcessEvent, ...]:
        newest_first = await self._events("event_recent", process_id, check_limit(count))
        return newest_first[::-1]

    async def count_through(self, process_id: str, event_type: str, sequence: int) -> int:
        check_identifier("process_id", process_id)
        check_identifier("event_type", event_type)
        check_integer("sequence", sequence, at_least=0)
        found = await self._database.read_one(Number, "event_count_through", process_id, event_type, sequence)
        if found is None:
            raise await missing_record(self._database, self._seen, process_id)
        return found.number

    async def last_sequences(self, process_ids: Collection[str]) -> dict[str, int]:
        wanted = list(check_process_ids(process_ids))
        rows = await self._database.read_all(SequenceRow, "event_last_sequences", wanted)
        return {row.process_id: row.last_sequence for row in rows}

    async def wakes_after(self, process_id: str, sequence: int = 0) -> tuple[WakeRecord, ...]:
        check_identifier("process_id", process_id)
        check_integer("sequence", sequence, at_least=0)
        answer = await self._database.read_one(WakesAnswer, "event_open_wakes", process_id, sequence)
        if answer is None:
            raise await missing_record(self._database, self._seen, process_id)
        return tuple(decode_wake(row, process_id) for row in answer.wakes)

    async def acknowledge_wake(self, process_id: str, sequence: int) -> bool:
        check_identifier("process_id", process_id)
        check_integer("sequence", sequence, at_least=1)
        acknowledged = await self._database.write_one(
            Flag, "event_acknowledge_wake", process_id, sequence, repeatable=False
        )
        if acknowledged is None:
            raise await missing_record(self._database, self._seen, process_id)
        return acknowledged.value

    async def undeliverable_wakes(self, *, limit: int = 100) -> tuple[WakeRecord, ...]:
        rows = await self._database.read_all(LostWakeRow, "event_undeliverable_wakes", check_limit(limit))
        return tuple(decode_lost_wake(row) for row in rows)

    async def tail(self, cursor: str | None = None, *, limit: int = 100) -> EventPage:
        after, size = decode_change_cursor(cursor), check_limit(limit)
        rows = await self._database.read_all(TailRow, "event_tail", str(after.transaction_id), after.seq, size)
        return decode_tail(rows, after)

    async def changes(self, cursor: str | None = None, *, limit: int = 100) -> ChangePage:
        after, size = decode_change_cursor(cursor), check_limit(limit)
        rows = await self._database.read_all(
            ChangeRow, "process_changes_after", str(after.transaction_id), after.seq, size
        )
        return decode_changes(rows, after)

    async def _events(self, query: str, process_id: str, *arguments: object) -> tuple[ProcessEvent, ...]:
        check_identifier("process_id", process_id)
        answer = await self._database.read_one(EventsAnswer, query, process_id, *arguments)
        if answer is None:
            raise await missing_record(self._database, self._seen, process_id)
        return tuple(decode_event(row, process_id) for row in answer.events)
