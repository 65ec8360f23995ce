"""Schedules on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, LashError, OccurrenceConflict
from lash.model.trigger.schedule import Fired, FiredTick, RegisteredSchedule, Schedule, ScheduleDraft, SchedulePage
from lash.model.trigger.trigger import EmitReport, OccurrenceRequest, TriggerOwner
from lash.plan.session.session import check_limit
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
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.rows.session.lookup import find_meta
from lash.sqlite.rows.trigger.emit import emit_in
from lash.sqlkit.rows import Number
from lash.stores.hints import Hints

Plan: TypeAlias = Callable[[ScheduleRow | None, int], ScheduleChange | None]
"""Decides on a row and a time what to write."""


class SQLiteScheduleStore:
    """The schedules of one SQLite storage; the contract is `lash.stores.trigger.schedule.ScheduleStore`."""

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
        return await self._database.write(lambda transaction: delete_session_schedules(transaction, session_id))

    async def prune_deleted(self, *, before_ms: int, limit: int = 100) -> int:
        check_integer("before_ms", before_ms)
        size = check_limit(limit)
        return await self._database.write(
            lambda transaction: transaction.run("schedule_prune", before_ms=before_ms, limit=size)
        )

    async def get(self, owner: TriggerOwner, key: str) -> Schedule | None:
        target = check_target(owner, key)
        row = self._database.read(lambda reader: _find(reader, target))
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
        parameters: dict[str, SQLiteValue] = {
            "after_owner": after.owner_session_id,
            "after_key": after.key,
            "enabled": None if enabled is None else int(enabled),
            "limit": size + 1,
        }
        query = "schedule_page"
        if wanted is not None:
            query = "schedule_page_owner"
            parameters["owner_session_id"] = wanted
        rows = await self._database.read_in_thread(lambda reader: reader.all(ScheduleRow, query, **parameters))
        return decode_schedule_page(rows, size)

    async def next_fire_at_ms(self) -> int | None:
        found = self._database.read(lambda reader: reader.one(Number, "schedule_next_fire"))
        return None if found is None else found.number

    async def fire_due(self, *, limit: int = 100) -> tuple[Fired, ...]:
        size = check_limit(limit)
        due = self._database.read(lambda reader: reader.all(DueRow, "schedule_due", now_ms=reader.now_ms, limit=size))
        # Side by side, so that all of them share one commit.
        answers = await asyncio.gather(*(self._fire(row) for row in due), return_exceptions=True)
        if due:
            self._hints.notify()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return tuple(answer for answer in answers if isinstance(answer, Fired))

    async def _fire(self, due: DueRow) -> Fired | None:
        try:
            return await self._database.write(lambda transaction: _fire(transaction, due.schedule_key))
        except UNREADABLE as problem:
            return await self._postpone(due, problem)

    async def _postpone(self, due: DueRow, problem: LashError) -> Fired | None:
        def body(transaction: Transaction) -> Fired | None:
            now_ms = transaction.now_ms
            retry_at_ms = now_ms + RETRY_MS
            postponed = transaction.run(
                "schedule_postpone", schedule_key=due.schedule_key, now_ms=now_ms, retry_at_ms=retry_at_ms
            )
            return unreadable(due.target, problem, retry_at_ms) if postponed else None

        return await self._database.write(body)

    async def _switch(self, target: Target, revision: int, *, enabled: bool) -> Schedule:
        return await self._change(
            target, lambda row, now_ms: plan_switch(target, row, revision, now_ms, enabled=enabled)
        )

    async def _change(self, target: Target, plan: Plan) -> Schedule:
        row, _ = await self._write(target, plan)
        return found_schedule(row)

    async def _write(self, target: Target, plan: Plan) -> tuple[ScheduleRow, bool]:
        """Apply what is planned on the schedule as it is; return the row, and whether it was changed."""

        def body(transaction: Transaction) -> tuple[ScheduleRow, bool]:
            row = _find(transaction, target)
            change = plan(row, transaction.now_ms)
            if change is not None:
                return _apply(transaction, change), True
            if row is None:
                raise CorruptData(f"nothing is to be done about a schedule {target.key!r} that is not there")
            return row, False

        row, changed = await self._database.write(body)
        if changed:
            self._hints.notify()
        return row, changed


def delete_session_schedules(transaction: Transaction, session_id: str) -> int:
    """Delete the schedules of a session inside any write transaction, and return how many there were."""
    return transaction.run("schedule_delete_session", session_id=session_id, now_ms=transaction.now_ms)


def _find(reader: Reader, target: Target) -> ScheduleRow | None:
    return reader.one(ScheduleRow, "schedule_row", owner_session_id=target.owner_session_id, key=target.key)


def _apply(transaction: Transaction, change: ScheduleChange) -> ScheduleRow:
    if change.required_session_id is not None:
        find_meta(transaction, change.required_session_id)
    parameters: dict[str, SQLiteValue] = {
        "owner_session_id": change.owner_session_id,
        "key": change.key,
        "definition": change.definition,
        "enabled": int(change.enabled),
        "next_tick_ms": None if change.next is None else change.next.tick_ms,
        "next_fire_ms": None if change.next is None else change.next.fire_ms,
        "created_at_ms": change.created_at_ms,
        "now_ms": change.now_ms,
    }
    query = "schedule_insert"
    if change.expected_revision:
        query = "schedule_change"
        parameters["expected_revision"] = change.expected_revision
    row = transaction.one(ScheduleRow, query, **parameters)
    if row is None:
        raise CorruptData(f"schedule {change.key!r} changed while nobody else could write")
    return row


def _fire(transaction: Transaction, schedule_key: int) -> Fired | None:
    """Emit what is due of a schedule, unless somebody else did."""
    row = transaction.one(ScheduleRow, "schedule_take", schedule_key=schedule_key, now_ms=transaction.now_ms)
    plan = None if row is None else plan_ticks(row, transaction.now_ms)
    if plan is None:
        return None
    ticks = [FiredTick(tick_ms=tick_ms, report=_emit(transaction, request)) for tick_ms, request in plan.requests]
    transaction.run(
        "schedule_advance",
        schedule_key=schedule_key,
        last_tick_ms=plan.last_tick_ms,
        next_tick_ms=None if plan.next is None else plan.next.tick_ms,
        next_fire_ms=None if plan.next is None else plan.next.fire_ms,
    )
    return fired(plan, ticks)


def _emit(transaction: Transaction, request: OccurrenceRequest) -> EmitReport | None:
    try:
        return emit_in(transaction, request)
    except OccurrenceConflict:
        # The source has an occurrence of this moment, with other content: the tick is taken.
        return None
