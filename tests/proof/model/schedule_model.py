"""The expected behaviour of schedules: each tick becomes one occurrence."""

from __future__ import annotations

import dataclasses
from itertools import islice, takewhile

from lash.model.process.process import HOST
from lash.model.trigger.schedule import (
    CatchUp,
    Fired,
    FiredTick,
    RegisteredSchedule,
    Schedule,
    ScheduleDraft,
)
from lash.model.trigger.trigger import OccurrenceRequest
from tests.proof.model.cron_tables import newest_tick, ticks_after, written
from tests.proof.model.kit import Refused
from tests.proof.model.trigger_model import Name, TriggerModel, name_of

MOST_TICKS = 100
"""How many ticks of one schedule one call emits."""


@dataclasses.dataclass(eq=False)
class Planned:
    """One schedule, deleted or not: a deleted one keeps its numbers."""

    number: int
    draft: ScheduleDraft | None
    revision: int
    created: int
    updated: int
    enabled: bool = True
    next: int | None = None
    last: int | None = None

    @property
    def line(self) -> tuple[str, str]:
        assert self.draft is not None
        return self.draft.cron, self.draft.time_zone

    def told(self) -> Schedule:
        assert self.draft is not None
        return Schedule(
            schedule_id="",
            definition=self.draft,
            source_key=self.draft.source_key or "",
            enabled=self.enabled,
            revision=self.revision,
            next_tick_ms=self.next,
            next_fire_ms=self.next,
            last_tick_ms=self.last,
            created_at_ms=self.created,
            updated_at_ms=self.updated,
        )


class ScheduleModel:
    """All schedules, and the occurrences that they make."""

    def __init__(self, triggers: TriggerModel) -> None:
        self.triggers = triggers
        self.schedules: dict[Name, Planned] = {}
        self._number = 0

    def get(self, name: Name) -> Planned | None:
        found = self.schedules.get(name)
        return found if found is not None and found.draft is not None else None

    def register(self, draft: ScheduleDraft, now: int) -> RegisteredSchedule:
        name = name_of(draft.owner, draft.key)
        found = self.get(name)
        if found is not None and found.draft is not None:
            if _definition(found.draft) != _definition(draft):
                raise Refused("ScheduleConflict")
            return RegisteredSchedule(schedule=found.told(), created=False)
        self._require_session(name[0])
        known = self.schedules.get(name)
        if known is None:
            self._number += 1
            known = self.schedules[name] = Planned(self._number, None, 0, now, now)
        known.created = now
        self._change(known, draft, now, enabled=True)
        return RegisteredSchedule(schedule=known.told(), created=True)

    def update(self, draft: ScheduleDraft, revision: int, now: int) -> Schedule:
        found = self._at(name_of(draft.owner, draft.key), revision)
        assert found.draft is not None
        if _definition(found.draft) != _definition(draft):
            self._change(found, draft, now, enabled=found.enabled)
        return found.told()

    def switch(self, name: Name, revision: int, now: int, *, enabled: bool) -> Schedule:
        found = self._at(name, revision)
        if found.enabled != enabled:
            assert found.draft is not None
            self._change(found, found.draft, now, enabled=enabled)
        return found.told()

    def delete(self, name: Name, revision: int, now: int) -> None:
        self._change(self._at(name, revision), None, now, enabled=False)

    def delete_owned(self, session_id: str, now: int) -> int:
        mine = [each for name, each in self.schedules.items() if name[0] == session_id and each.draft is not None]
        for each in mine:
            self._change(each, None, now, enabled=False)
        return len(mine)

    def prune(self, before: int) -> int:
        gone = [name for name, each in self.schedules.items() if each.draft is None and each.updated < before]
        for name in gone:
            del self.schedules[name]
        return len(gone)

    def listed(self, *, enabled: bool | None) -> list[Schedule]:
        return [
            each.told()
            for _, each in sorted(self.schedules.items())
            if each.draft is not None and enabled in (None, each.enabled)
        ]

    def next_fire(self) -> int | None:
        return min((each.next for each in self.schedules.values() if each.next is not None), default=None)

    def fire_due(self, limit: int, answer: tuple[Fired, ...] | None, now: int) -> tuple[Fired, ...]:
        """Emit due ticks; the ids of new rows are taken from the storage's result."""
        due = [
            (each.next, each.number, name, each)
            for name, each in self.schedules.items()
            if each.next is not None and each.next <= now
        ]
        due.sort(key=lambda each: each[:2])
        answers = (*(answer or ()), *([None] * len(due)))
        return tuple(
            self._fire(name, each, told, now) for (_, _, name, each), told in zip(due[:limit], answers, strict=False)
        )

    def _fire(self, name: Name, planned: Planned, answer: Fired | None, now: int) -> Fired:
        assert planned.draft is not None
        assert planned.next is not None
        emitted, last = _due(planned.draft, planned.line, planned.next, now)
        source_key = planned.draft.source_key
        told = (*(() if answer is None else answer.ticks), *([None] * len(emitted)))
        ticks: list[FiredTick] = []
        for tick, known in zip(emitted, told, strict=False):
            request = OccurrenceRequest(
                source_type="cron",
                source_key=f"schedule {name}" if source_key is None else source_key,
                idempotency_key=written(tick),
                payload={**planned.draft.payload, "scheduled_at": written(tick)},
            )
            try:
                report = self.triggers.emit(request, None if known is None else known.report, now)
            except Refused:
                report = None
            ticks.append(FiredTick(tick_ms=tick, report=report))
        planned.last, planned.next = last, next(ticks_after(planned.line, last))
        return Fired(
            schedule_id="", owner_session_id=name[0] or None, key=name[1], ticks=tuple(ticks), next_fire_ms=planned.next
        )

    def _change(self, planned: Planned, draft: ScheduleDraft | None, now: int, *, enabled: bool) -> None:
        planned.draft, planned.enabled, planned.updated = draft, enabled, now
        planned.revision += 1
        # A clock that was set back repeats no tick.
        after = now if planned.last is None else max(now, planned.last)
        planned.next = next(ticks_after(planned.line, after)) if enabled else None

    def _at(self, name: Name, revision: int) -> Planned:
        found = self.get(name)
        if found is None:
            raise Refused("ScheduleNotFound")
        if found.revision != revision:
            raise Refused("ScheduleConflict")
        return found

    def _require_session(self, session_id: str) -> None:
        if session_id and session_id not in self.triggers.sessions:
            raise Refused("SessionDeleted" if session_id in self.triggers.deleted_sessions else "SessionNotFound")


def _due(draft: ScheduleDraft, line: tuple[str, str], first: int, now: int) -> tuple[list[int], int]:
    """Return the ticks to emit, and the last tick that is done after them."""
    newest = newest_tick(line, now)
    if draft.catch_up is CatchUp.LAST:
        return [newest], newest
    if draft.catch_up is CatchUp.ALL:
        emitted = list(islice(takewhile(lambda tick: tick <= now, ticks_after(line, first - 1)), MOST_TICKS))
        return emitted, emitted[-1]
    in_time = max(first, now - draft.grace_ms)
    emitted = list(takewhile(lambda tick: tick <= now, ticks_after(line, in_time - 1)))
    return emitted, newest


def _definition(draft: ScheduleDraft) -> tuple[object, ...]:
    """Return what makes two definitions equal: all of it except the frame of the owner."""
    fields = {name: getattr(draft, name) for name in draft.__struct_fields__}
    fields["owner"] = HOST
    return tuple(sorted((name, repr(value)) for name, value in fields.items()))
