"""Schedules on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, LashError, OccurrenceConflict, StoreUnavailable
from lash.model.trigger.schedule import Fired, FiredTick, RegisteredSchedule, Schedule, ScheduleDraft, SchedulePage
from lash.model.trigger.trigger import EmitReport, OccurrenceRequest, TriggerOwner
from lash.plan.session.session import MetaRow, check_limit
from lash.plan.trigger.schedule import (
    RETRY_MS,
    UNREADABLE,
    DueRow,
    ScheduleChange,
    ScheduleRow,
    Target,
    check_revision,
    check_schedule,
    check_target,
    check_wanted_owner,
    decode_schedule,
    decode_schedule_cursor,
    decode_schedule_page,
    fired,
    found_schedule,
    plan_deletion,
    plan_registration,
    plan_switch,
    plan_ticks,
    plan_update,
    target_of,
    unreadable,
)
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.lookup import missing
from lash.postgres.rows.trigger.emit import emit_in
from lash.sqlkit.rows import Number
from lash.stores.hints import Hints

Plan: TypeAlias = Callable[[ScheduleRow | None, int], ScheduleChange | None]
"""Decides on a row and a time what to write."""

_MAX_PLANS: Final = 100


class _Facts(msgspec.Struct, frozen=True, array_like=True):
    """The server's time, and a schedule if there is one."""

    now_ms: int
    row: ScheduleRow | None


class PostgresScheduleStore:
    """The schedules of one PostgreSQL storage; the contract is `lash.stores.trigger.schedule.ScheduleStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def register(self, draft: ScheduleDraft) -> RegisteredSchedule:
        checked = check_schedule(draft)
        row, created = await self._write(
            target_of(checked), lambda row, now_ms: plan_registration(checked, row, now_ms)
        )
        return RegisteredSchedule(schedule=found_schedule(row), created=created)

    async def update(self, draft: ScheduleDraft, *, revision: int) -> Schedule:
        checked = check_schedule(draft)
        check_revision(revision)
        return await self._change(target_of(checked), lambda row, now_ms: plan_update(checked, row, revision, now_ms))

    async def enable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        return await self._switch(check_target(owner, key), check_revision(revision), enabled=True)

    async def disable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        return await self._switch(check_target(owner, key), check_revision(revision), enabled=False)

    async def delete(self, owner: TriggerOwner, key: str, *, revision: int) -> None:
        target = check_target(owner, key)
        check_revision(revision)
        await self._write(target, lambda row, now_ms: plan_deletion(target, row, revision, now_ms))

    async def delete_session(self, session_id: str) -> int:
        check_identifier("session_id", session_id)
        # A repeat after a success would find nothing, and count nothing.
        gone = await self._database.write_one(Number, "schedule_delete_session", session_id, repeatable=False)
        return 0 if gone is None else gone.number

    async def prune_deleted(self, *, before_ms: int, limit: int = 100) -> int:
        check_integer("before_ms", before_ms)
        pruned = await self._database.write_one(
            Number, "schedule_prune", before_ms, check_limit(limit), repeatable=True
        )
        return 0 if pruned is None else pruned.number

    async def get(self, owner: TriggerOwner, key: str) -> Schedule | None:
        row = (await self._facts(check_target(owner, key))).row
        return None if row is None else decode_schedule(row)

    async def list(
        self,
        owner: TriggerOwner | None = None,
        *,
        enabled: bool | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SchedulePage:
        wanted, size, after = check_wanted_owner(owner), check_limit(limit), decode_schedule_cursor(cursor)
        arguments = (*after, enabled, size + 1)
        if wanted is None:
            rows = await self._database.read_all(ScheduleRow, "schedule_page", *arguments)
        else:
            rows = await self._database.read_all(ScheduleRow, "schedule_page_owner", *arguments, wanted)
        return decode_schedule_page(rows, size)

    async def next_fire_at_ms(self) -> int | None:
        found = await self._database.read_one(Number, "schedule_next_fire")
        return None if found is None else found.number

    async def fire_due(self, *, limit: int = 100) -> tuple[Fired, ...]:
        due = await self._database.read_all(DueRow, "schedule_due", check_limit(limit))
        answers = [await self._fire(row) for row in due]
        return tuple(answer for answer in answers if answer is not None)

    async def _fire(self, due: DueRow) -> Fired | None:
        try:
            async with self._database.transaction() as transaction:
                answer = await _fire(transaction, due.schedule_key)
        except UNREADABLE as problem:
            return await self._postpone(due, problem)
        self._hints.notify()
        return answer

    async def _postpone(self, due: DueRow, problem: LashError) -> Fired | None:
        retry = await self._database.write_one(Number, "schedule_postpone", due.schedule_key, RETRY_MS, repeatable=True)
        return None if retry is None else unreadable(due.target, problem, retry.number)

    async def _switch(self, target: Target, revision: int, *, enabled: bool) -> Schedule:
        return await self._change(
            target, lambda row, now_ms: plan_switch(target, row, revision, now_ms, enabled=enabled)
        )

    async def _change(self, target: Target, plan: Plan) -> Schedule:
        row, _ = await self._write(target, plan)
        return found_schedule(row)

    async def _write(self, target: Target, plan: Plan) -> tuple[ScheduleRow, bool]:
        """Apply what is planned on the schedule as it is; return the row, and whether it was changed."""
        for _ in range(_MAX_PLANS):
            facts = await self._facts(target)
            change = plan(facts.row, facts.now_ms)
            if change is None and facts.row is not None:
                return facts.row, False
            if change is not None:
                row = await self._apply(change)
                if row is not None:
                    self._hints.notify()
                    return row, True
        raise StoreUnavailable(f"schedule {target.key!r} changed {_MAX_PLANS} times while it was being written")

    async def _apply(self, change: ScheduleChange) -> ScheduleRow | None:
        """Write the change, unless the schedule is not as it was read any more."""
        arguments = (
            *(change.owner_session_id, change.key, change.definition, change.enabled),
            *((None, None) if change.next is None else change.next),
            *(change.created_at_ms, change.now_ms),
        )
        if change.required_session_id is not None:
            await self._require_session(change.required_session_id)
        if not change.expected_revision:
            return await self._database.write_one(ScheduleRow, "schedule_insert", *arguments, repeatable=True)
        expected = (change.expected_revision, change.expected_last_tick_ms)
        # After a success, a repeat would find another revision and blame somebody else for it.
        return await self._database.write_one(ScheduleRow, "schedule_change", *arguments, *expected, repeatable=False)

    async def _require_session(self, session_id: str) -> None:
        if await self._database.read_one(MetaRow, "session_meta", session_id) is None:
            raise await missing(self._database, session_id)

    async def _facts(self, target: Target) -> _Facts:
        facts = await self._database.read_one(_Facts, "schedule_row", *target)
        if facts is None:
            raise CorruptData("the server does not tell the time")
        return facts


async def _fire(transaction: Transaction, schedule_key: int) -> Fired | None:
    """Emit what is due of a schedule, unless somebody else does."""
    facts = await transaction.one(_Facts, "schedule_take", schedule_key)
    plan = None if facts is None or facts.row is None else plan_ticks(facts.row, facts.now_ms)
    if plan is None:
        return None
    ticks: list[FiredTick] = []
    # In the order of time, as every schedule of the source does: so no two of them can wait for each other.
    for tick_ms, request in plan.requests:
        ticks.append(FiredTick(tick_ms=tick_ms, report=await _emit(transaction, request)))
    following = (None, None) if plan.next is None else plan.next
    await transaction.run("schedule_advance", schedule_key, plan.last_tick_ms, *following)
    return fired(plan, ticks)


async def _emit(transaction: Transaction, request: OccurrenceRequest) -> EmitReport | None:
    try:
        return await emit_in(transaction, request)
    except OccurrenceConflict:
        # The source has an occurrence of this moment, with other content: the tick is taken.
        return None
