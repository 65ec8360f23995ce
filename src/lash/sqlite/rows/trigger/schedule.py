"""The rows of schedules on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from lash.errors import CorruptData, OccurrenceConflict
from lash.model.trigger.schedule import Fired, FiredTick
from lash.model.trigger.trigger import EmitReport
from lash.plan.sealed import SCHEDULE
from lash.plan.trigger.emit import EncodedOccurrence
from lash.plan.trigger.schedule import DueRow, ScheduleChange, ScheduleRow, Target, TickPlan, fired
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.rows.session.lookup import find_meta
from lash.sqlite.rows.trigger.emit import emit_in
from lash.sqlkit.rows import Number


class SQLiteScheduleRows:
    """The schedules of one SQLite storage; the contract is `lash.stores.trigger.schedule.ScheduleRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(
        self, target: Target, decide: Callable[[ScheduleRow | None, int], ScheduleChange | None]
    ) -> tuple[ScheduleRow, bool]:
        def body(transaction: Transaction) -> tuple[ScheduleRow, bool]:
            row = _find(transaction, target)
            change = decide(row, transaction.now_ms)
            if change is not None:
                return _apply(transaction, change), True
            if row is None:
                raise CorruptData(f"schedule {target.key!r} has no row to keep")
            return row, False

        return await self._database.write(body)

    async def row(self, target: Target) -> ScheduleRow | None:
        return self._database.read(lambda reader: _find(reader, target))

    async def page(self, owner: str | None, enabled: bool | None, after: Target, limit: int) -> list[ScheduleRow]:  # noqa: FBT001 (a filter, not a switch)
        parameters: dict[str, SQLiteValue] = {
            "after_owner": after.owner_session_id,
            "after_key": after.key,
            "enabled": enabled,
            "limit": limit,
        }
        query = "schedule_page"
        if owner is not None:
            query = "schedule_page_owner"
            parameters["owner_session_id"] = owner
        return await self._database.read_in_thread(lambda reader: reader.all(ScheduleRow, query, **parameters))

    async def next_fire_ms(self) -> int | None:
        found = self._database.read(lambda reader: reader.one(Number, "schedule_next_fire"))
        return None if found is None else found.number

    async def due(self, limit: int) -> list[DueRow]:
        return self._database.read(lambda reader: reader.all(DueRow, "schedule_due", now_ms=reader.now_ms, limit=limit))

    async def fire_each(
        self, due: Sequence[DueRow], fire: Callable[[DueRow], Awaitable[Fired | None]]
    ) -> Sequence[Fired | None]:
        fires = await asyncio.gather(*(fire(row) for row in due), return_exceptions=True)
        answers: list[Fired | None] = []
        for answer in fires:
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
        return answers

    async def fire(self, due: DueRow, decide: Callable[[ScheduleRow, int], TickPlan | None]) -> Fired | None:
        def body(transaction: Transaction) -> Fired | None:
            key, now_ms = due.schedule_key, transaction.now_ms
            row = transaction.one(ScheduleRow, "schedule_take", schedule_key=key, now_ms=now_ms)
            plan = None if row is None else decide(row, now_ms)
            return None if plan is None else _emit(transaction, key, plan)

        return await self._database.write(body)

    async def postpone(self, due: DueRow, delay_ms: int) -> int | None:
        def body(transaction: Transaction) -> int | None:
            now_ms, retry_at_ms = transaction.now_ms, transaction.now_ms + delay_ms
            postponed = transaction.run(
                "schedule_postpone", schedule_key=due.schedule_key, now_ms=now_ms, retry_at_ms=retry_at_ms
            )
            return retry_at_ms if postponed else None

        return await self._database.write(body)

    async def delete_session(self, session_id: str) -> int:
        return await self._database.write(lambda transaction: delete_session_schedules(transaction, session_id))

    async def prune(self, before_ms: int, limit: int) -> int:
        return await self._database.write(
            lambda transaction: transaction.run("schedule_prune", before_ms=before_ms, limit=limit)
        )


def delete_session_schedules(transaction: Transaction, session_id: str) -> int:
    """Delete the schedules of a session inside any write transaction, and return their number."""
    return transaction.run("schedule_delete_session", session_id=session_id, now_ms=transaction.now_ms)


def _find(reader: Reader, target: Target) -> ScheduleRow | None:
    return reader.one(ScheduleRow, "schedule_row", owner_session_id=target.owner_session_id, key=target.key)


def _apply(transaction: Transaction, change: ScheduleChange) -> ScheduleRow:
    if change.required_session_id is not None:
        find_meta(transaction, change.required_session_id)
    parameters: dict[str, SQLiteValue] = {
        "owner_session_id": change.owner_session_id,
        "key": change.key,
        "definition": transaction.seals.text(SCHEDULE, change.definition, change.owner_session_id, change.key),
        "enabled": change.enabled,
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
        raise CorruptData(f"schedule {change.key!r} changed inside the transaction that reads and writes it")
    return row


def _emit(transaction: Transaction, schedule_key: int, plan: TickPlan) -> Fired:
    ticks = [FiredTick(tick_ms=tick, report=_emit_tick(transaction, each)) for tick, each in plan.occurrences]
    transaction.run(
        "schedule_advance",
        schedule_key=schedule_key,
        last_tick_ms=plan.last_tick_ms,
        next_tick_ms=None if plan.next is None else plan.next.tick_ms,
        next_fire_ms=None if plan.next is None else plan.next.fire_ms,
    )
    return fired(plan, ticks)


def _emit_tick(transaction: Transaction, encoded: EncodedOccurrence) -> EmitReport | None:
    """Emit a tick; None if the source has another occurrence at this moment, which replaces the tick."""
    try:
        return emit_in(transaction, encoded)
    except OccurrenceConflict:
        return None
