"""The rows of schedules on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from lash.errors import CorruptData, OccurrenceConflict, StoreUnavailable
from lash.model.trigger.schedule import Fired, FiredTick
from lash.plan.sealed import SCHEDULE
from lash.plan.session.meta import MetaRow
from lash.plan.trigger.schedule import DueRow, ScheduleChange, ScheduleRow, Target, TickPlan, fired
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.lookup import missing
from lash.postgres.rows.trigger.emit import ScheduleStep, emit_alone, emit_in
from lash.sqlkit.rows import Number

_MAX_PLANS: Final = 100
"""More concurrent changes of one schedule are a fault, not a race."""
_LOCKED_NOTED_S: Final = 1.0
"""How long another transaction may hold a schedule that is due before that is reported."""
_LOCKED_FORGOTTEN_S: Final = 5.0
"""A worker tries a due schedule at least this often."""


class _ScheduleFacts(msgspec.Struct, frozen=True, array_like=True):
    """The server's time, and a schedule if there is one."""

    now_ms: int
    row: ScheduleRow | None


class PostgresScheduleRows:
    """The schedules of one PostgreSQL storage; the contract is `lash.stores.trigger.schedule.ScheduleRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._locked: dict[int, tuple[float, float]] = {}
        """Since when, and when last, a schedule that was due was locked by another transaction, by its key."""

    async def change(
        self, target: Target, decide: Callable[[ScheduleRow | None, int], ScheduleChange | None]
    ) -> tuple[ScheduleRow, bool]:
        for _ in range(_MAX_PLANS):
            facts = await self._facts(target)
            change = decide(facts.row, facts.now_ms)
            if change is None and facts.row is not None:
                return facts.row, False
            written = None if change is None else await self._apply(change)
            if written is not None:
                return written, True
        raise StoreUnavailable(f"schedule {target.key!r} changed {_MAX_PLANS} times while it was being written")

    async def row(self, target: Target) -> ScheduleRow | None:
        return (await self._facts(target)).row

    async def page(self, owner: str | None, enabled: bool | None, after: Target, limit: int) -> list[ScheduleRow]:  # noqa: FBT001 (a filter, not a switch)
        arguments = (*after, enabled, limit)
        if owner is None:
            return await self._database.read_all(ScheduleRow, "schedule_page", *arguments)
        return await self._database.read_all(ScheduleRow, "schedule_page_owner", *arguments, owner)

    async def next_fire_ms(self) -> int | None:
        found = await self._database.read_one(Number, "schedule_next_fire")
        return None if found is None else found.number

    async def due(self, limit: int) -> list[DueRow]:
        return await self._database.read_all(DueRow, "schedule_due", limit)

    async def fire_each(
        self, due: Sequence[DueRow], fire: Callable[[DueRow], Awaitable[Fired | None]]
    ) -> Sequence[Fired | None]:
        return [await fire(row) for row in due]

    async def fire(self, due: DueRow, decide: Callable[[ScheduleRow, int], TickPlan | None]) -> Fired | None:
        """Fire a tick in three round trips; in a transaction if several are due, or if a fact changes meanwhile."""
        facts = await self._database.read_one(_ScheduleFacts, "schedule_at", due.schedule_key)
        plan = None if facts is None or facts.row is None else decide(facts.row, facts.now_ms)
        if plan is None or facts is None or facts.row is None:
            return None
        if len(plan.occurrences) == 1:
            ((tick_ms, encoded),) = plan.occurrences
            emitted = await emit_alone(self._database, encoded, _step(facts.row, plan))
            self._note_taken(due, taken=emitted.expected)
            if emitted.report is not None:
                return fired(plan, [FiredTick(tick_ms=tick_ms, report=emitted.report)])
            if not emitted.expected:
                return None
        return await self._fire_in_transaction(due, decide)

    async def postpone(self, due: DueRow, delay_ms: int) -> int | None:
        retry = await self._database.write_one(Number, "schedule_postpone", due.schedule_key, delay_ms, repeatable=True)
        return None if retry is None else retry.number

    async def delete_session(self, session_id: str) -> int:
        # A repetition after a success would find and count nothing.
        gone = await self._database.write_one(Number, "schedule_delete_session", session_id, repeatable=False)
        return 0 if gone is None else gone.number

    async def prune(self, before_ms: int, limit: int) -> int:
        pruned = await self._database.write_one(Number, "schedule_prune", before_ms, limit, repeatable=True)
        return 0 if pruned is None else pruned.number

    async def _fire_in_transaction(
        self, due: DueRow, decide: Callable[[ScheduleRow, int], TickPlan | None]
    ) -> Fired | None:
        async with self._database.transaction() as transaction:
            facts = await transaction.one(_ScheduleFacts, "schedule_take", due.schedule_key)
            self._note_taken(due, taken=facts is not None)
            plan = None if facts is None or facts.row is None else decide(facts.row, facts.now_ms)
            return None if plan is None else await _emit(transaction, due.schedule_key, plan)

    def _note_taken(self, due: DueRow, *, taken: bool) -> None:
        """Report a schedule that stays due because another transaction holds it; nothing waits for that lock."""
        now = time.monotonic()
        # An older entry is from a tick that another worker fired.
        self._locked = {key: times for key, times in self._locked.items() if now - times[1] < _LOCKED_FORGOTTEN_S}
        if taken:
            self._locked.pop(due.schedule_key, None)
            return
        since, _ = self._locked.get(due.schedule_key, (now, now))
        self._locked[due.schedule_key] = (since, now)
        if now - since >= _LOCKED_NOTED_S:
            self._database.report_locks(f"schedule {due.key!r} is due and locked")

    async def _apply(self, change: ScheduleChange) -> ScheduleRow | None:
        """Write the change; None if the schedule differs from the facts by now."""
        name = change.owner_session_id, change.key
        arguments = (
            *(*name, self._database.seals.text(SCHEDULE, change.definition, *name), change.enabled),
            *((None, None) if change.next is None else change.next),
            *(change.created_at_ms, change.now_ms),
        )
        if change.required_session_id is not None:
            await self._require_session(change.required_session_id)
        if not change.expected_revision:
            return await self._database.write_one(ScheduleRow, "schedule_insert", *arguments, repeatable=True)
        expected = (change.expected_revision, change.expected_last_tick_ms)
        # A repetition after a success would find its own revision and report a conflict.
        return await self._database.write_one(ScheduleRow, "schedule_change", *arguments, *expected, repeatable=False)

    async def _require_session(self, session_id: str) -> None:
        if await self._database.read_one(MetaRow, "session_meta", session_id) is None:
            raise await missing(self._database, session_id)

    async def _facts(self, target: Target) -> _ScheduleFacts:
        facts = await self._database.read_one(_ScheduleFacts, "schedule_row", *target)
        if facts is None:
            raise CorruptData("query schedule_row returned no row")
        return facts


def _step(row: ScheduleRow, plan: TickPlan) -> ScheduleStep:
    following = (None, None) if plan.next is None else plan.next
    known = (row.schedule_key, row.revision, row.last_tick_ms, row.next_tick_ms)
    return ScheduleStep(*known, plan.last_tick_ms, *following)


async def _emit(transaction: Transaction, schedule_key: int, plan: TickPlan) -> Fired:
    ticks: list[FiredTick] = []
    # In the order of time, like every schedule of the source, so that no two of them deadlock.
    for tick_ms, encoded in plan.occurrences:
        try:
            ticks.append(FiredTick(tick_ms=tick_ms, report=await emit_in(transaction, encoded)))
        except OccurrenceConflict:
            # The source has another occurrence at this moment, which replaces the tick.
            ticks.append(FiredTick(tick_ms=tick_ms, report=None))
    following = (None, None) if plan.next is None else plan.next
    await transaction.run("schedule_advance", schedule_key, plan.last_tick_ms, *following)
    return fired(plan, ticks)
