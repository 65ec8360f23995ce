"""The store of schedules on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lash.base.limits import check_identifier, check_integer, check_limit
from lash.model.trigger.schedule import Fired, RegisteredSchedule, Schedule, ScheduleDraft, SchedulePage
from lash.model.trigger.trigger import TriggerOwner
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
    found_schedule,
    plan_deletion,
    plan_registration,
    plan_switch,
    plan_ticks,
    plan_update,
    target_of,
    unreadable,
)
from lash.stores.hints import Hints
from lash.stores.trigger.schedule import ScheduleRows

Decide: TypeAlias = Callable[[ScheduleRow | None, int], ScheduleChange | None]
"""Decides what to write, from a row and the time."""


class Schedules:
    """The schedules of one storage; the contract is `lash.stores.trigger.schedule.ScheduleStore`."""

    def __init__(self, rows: ScheduleRows, hints: Hints) -> None:
        self._rows = rows
        self._hints = hints

    async def register(self, draft: ScheduleDraft) -> RegisteredSchedule:
        checked = check_schedule(draft)
        row, created = await self._change(
            target_of(checked), lambda row, now_ms: plan_registration(checked, row, now_ms)
        )
        return RegisteredSchedule(schedule=found_schedule(row), created=created)

    async def update(self, draft: ScheduleDraft, *, revision: int) -> Schedule:
        checked = check_schedule(draft)
        check_revision(revision)
        row, _ = await self._change(target_of(checked), lambda row, now_ms: plan_update(checked, row, revision, now_ms))
        return found_schedule(row)

    async def enable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        return await self._switch(check_target(owner, key), check_revision(revision), enabled=True)

    async def disable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        return await self._switch(check_target(owner, key), check_revision(revision), enabled=False)

    async def delete(self, owner: TriggerOwner, key: str, *, revision: int) -> None:
        target = check_target(owner, key)
        check_revision(revision)
        await self._change(target, lambda row, now_ms: plan_deletion(target, row, revision, now_ms))

    async def delete_session(self, session_id: str) -> int:
        return await self._rows.delete_session(check_identifier("session_id", session_id))

    async def prune_deleted(self, *, before_ms: int, limit: int = 100) -> int:
        return await self._rows.prune(check_integer("before_ms", before_ms), check_limit(limit))

    async def get(self, owner: TriggerOwner, key: str) -> Schedule | None:
        row = await self._rows.row(check_target(owner, key))
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
        return decode_schedule_page(await self._rows.page(wanted, enabled, after, size + 1), size)

    async def next_fire_at_ms(self) -> int | None:
        return await self._rows.next_fire_ms()

    async def fire_due(self, *, limit: int = 100) -> tuple[Fired, ...]:
        due = await self._rows.due(check_limit(limit))
        answers = await self._rows.fire_each(due, self._fire)
        return tuple(answer for answer in answers if answer is not None)

    async def _fire(self, due: DueRow) -> Fired | None:
        try:
            answer = await self._rows.fire(due, plan_ticks)
        except UNREADABLE as problem:
            retry_at_ms = await self._rows.postpone(due, RETRY_MS)
            return None if retry_at_ms is None else unreadable(due.target, problem, retry_at_ms)
        if answer is not None:
            self._hints.notify()
        return answer

    async def _switch(self, target: Target, revision: int, *, enabled: bool) -> Schedule:
        row, _ = await self._change(
            target, lambda row, now_ms: plan_switch(target, row, revision, now_ms, enabled=enabled)
        )
        return found_schedule(row)

    async def _change(self, target: Target, decide: Decide) -> tuple[ScheduleRow, bool]:
        """Apply a decision; return the row and whether it was changed."""
        row, changed = await self._rows.change(target, decide)
        if changed:
            self._hints.notify()
        return row, changed
