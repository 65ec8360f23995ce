"""What a schedule's row means, how it changes, and which of its ticks are emitted when."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from lash.base.codec import canonical, decode, encode
from lash.base.limits import check_identifier, check_integer, check_text
from lash.errors import CorruptData, InvalidInput, LashError, ScheduleConflict, ScheduleNotFound
from lash.model.process.process import HOST
from lash.model.trigger.schedule import (
    CRON_SOURCE_TYPE,
    Fired,
    FiredTick,
    Schedule,
    ScheduleDraft,
    SchedulePage,
)
from lash.model.trigger.trigger import OccurrenceRequest
from lash.plan.trigger.cron import check_cron, instant
from lash.plan.trigger.tick import Moment, due_ticks, identity_of, moment_after
from lash.plan.trigger.trigger import HOST_OWNER, owner_column, owner_text

MAX_JITTER_MS: Final = 24 * 60 * 60 * 1000
MIN_GRACE_MS: Final = 1_000
MAX_PAYLOAD_LENGTH: Final = 65_536
RETRY_MS: Final = 60_000
"""After what time a schedule that could not be read is tried again."""
UNREADABLE: Final = (InvalidInput, CorruptData)
"""What a machine raises that cannot read a schedule, or the time zone of one."""
_SCHEDULED_AT: Final = "scheduled_at"


class Target(NamedTuple):
    """Which schedule is meant; the owner is empty for the host."""

    owner_session_id: str
    key: str


class ScheduleRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored schedule; the owner is empty for the host.

    One without a definition was deleted, and only its numbers are kept.
    """

    schedule_key: int
    owner_session_id: str
    key: str
    definition: str | None
    enabled: bool
    revision: int
    next_tick_ms: int | None
    next_fire_ms: int | None
    last_tick_ms: int | None
    created_at_ms: int
    updated_at_ms: int


class DueRow(msgspec.Struct, frozen=True, array_like=True):
    """A schedule that is due, as far as it takes to name it."""

    schedule_key: int
    owner_session_id: str
    key: str

    @property
    def target(self) -> Target:
        return Target(self.owner_session_id, self.key)


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is written about a schedule, provided that the row is still of this revision (0: there is none)."""

    owner_session_id: str
    key: str
    definition: str | None
    enabled: bool
    expected_revision: int
    expected_last_tick_ms: int | None
    next: Moment | None
    created_at_ms: int
    now_ms: int

    @property
    def required_session_id(self) -> str | None:
        """The session that must be there, because the schedule is or stays its own."""
        return None if self.definition is None or self.owner_session_id == HOST_OWNER else self.owner_session_id


class TickPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to emit of a schedule that is due, and what is next."""

    schedule: Schedule
    requests: tuple[tuple[int, OccurrenceRequest], ...]
    last_tick_ms: int
    next: Moment | None


def check_schedule(draft: object) -> ScheduleDraft:
    """Return the draft with members of enums where the caller gave their text, or raise InvalidInput."""
    if not isinstance(draft, ScheduleDraft):
        raise InvalidInput(f"a ScheduleDraft is needed, not {type(draft).__name__}")
    what = f"schedule {check_identifier('key', draft.key)!r}"
    body = encode(draft, ScheduleDraft, what)
    plain = decode(body, ScheduleDraft, what)
    owner_column(plain.owner)
    check_cron(plain.cron, plain.time_zone)
    check_integer(f"{what}: grace_ms", plain.grace_ms, at_least=MIN_GRACE_MS)
    if plain.jitter_ms > MAX_JITTER_MS:
        raise InvalidInput(f"{what}: jitter_ms must be at most {MAX_JITTER_MS:,}, one day")
    if len(body) > MAX_PAYLOAD_LENGTH:
        raise InvalidInput(f"{what} has {len(body):,} characters; at most {MAX_PAYLOAD_LENGTH:,} are allowed")
    if _SCHEDULED_AT in plain.payload:
        raise InvalidInput(f"{what}: payload has a key {_SCHEDULED_AT!r}, which is the time of the tick")
    if plain.source_key is not None:
        check_identifier(f"{what}: source_key", plain.source_key)
    return plain


def check_target(owner: object, key: object) -> Target:
    """Return which schedule is meant, or raise InvalidInput."""
    return Target(owner_column(owner), check_identifier("key", key))


def check_wanted_owner(owner: object) -> str | None:
    """Return whose schedules a list shows; None means everybody's."""
    return None if owner is None else owner_column(owner)


def check_revision(revision: object) -> int:
    """Return the revision if it can be one."""
    return check_integer("revision", revision, at_least=1)


def target_of(draft: ScheduleDraft) -> Target:
    """Return which schedule a checked draft defines."""
    return Target(owner_column(draft.owner), draft.key)


def decode_schedule(row: ScheduleRow) -> Schedule | None:
    """Return the schedule that the row means, None if it was deleted."""
    if row.definition is None:
        return None
    draft = decode(row.definition, ScheduleDraft, f"schedule {row.key!r} of {owner_text(row.owner_session_id)}")
    identity = identity_of(row.owner_session_id, row.key)
    return Schedule(
        schedule_id=identity,
        definition=draft,
        source_key=identity if draft.source_key is None else draft.source_key,
        enabled=row.enabled,
        revision=row.revision,
        next_tick_ms=row.next_tick_ms,
        next_fire_ms=row.next_fire_ms,
        last_tick_ms=row.last_tick_ms,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
    )


def found_schedule(row: ScheduleRow) -> Schedule:
    """Return the schedule that the row means, which is there."""
    schedule = decode_schedule(row)
    if schedule is None:
        raise ScheduleNotFound(owner_text(row.owner_session_id), row.key)
    return schedule


def plan_registration(draft: ScheduleDraft, row: ScheduleRow | None, now_ms: int) -> ScheduleChange | None:
    """Return what to write, None if the schedule is there already; another of the same key is a conflict."""
    if row is None or row.definition is None:
        return _change(draft, row, now_ms, enabled=True, created_at_ms=now_ms)
    if not _same(draft, row):
        owner = owner_text(row.owner_session_id)
        raise ScheduleConflict(owner, row.key, f"is there with another definition, at revision {row.revision}")
    return None


def plan_update(draft: ScheduleDraft, row: ScheduleRow | None, revision: int, now_ms: int) -> ScheduleChange | None:
    """Return how to give the schedule a new definition, None if it is no new one."""
    current = _expect(target_of(draft), row, revision)
    if _same(draft, current):
        return None
    return _change(draft, current, now_ms, enabled=current.enabled, created_at_ms=current.created_at_ms)


def plan_switch(
    target: Target, row: ScheduleRow | None, revision: int, now_ms: int, *, enabled: bool
) -> ScheduleChange | None:
    """Return how to enable or disable the schedule, None if it is so already."""
    current = _expect(target, row, revision)
    if current.enabled == enabled:
        return None
    draft = found_schedule(current).definition
    return _change(draft, current, now_ms, enabled=enabled, created_at_ms=current.created_at_ms)


def plan_deletion(target: Target, row: ScheduleRow | None, revision: int, now_ms: int) -> ScheduleChange:
    """Return how to delete the schedule; it need not be readable for that."""
    current = _expect(target, row, revision)
    return ScheduleChange(
        owner_session_id=target.owner_session_id,
        key=target.key,
        definition=None,
        enabled=False,
        expected_revision=current.revision,
        expected_last_tick_ms=current.last_tick_ms,
        next=None,
        created_at_ms=current.created_at_ms,
        now_ms=now_ms,
    )


def plan_ticks(row: ScheduleRow, now_ms: int) -> TickPlan | None:
    """Return what to emit now and what is next, None if nothing is due."""
    schedule = found_schedule(row)
    first = schedule.next_tick_ms
    if first is None or schedule.next_fire_ms is None or schedule.next_fire_ms > now_ms:
        return None
    ticks, last = due_ticks(schedule.definition, Moment(first, schedule.next_fire_ms), now_ms)
    return TickPlan(
        schedule=schedule,
        requests=tuple((tick, _occurrence(schedule, tick)) for tick in ticks),
        last_tick_ms=last,
        next=moment_after(schedule.definition, last),
    )


def fired(plan: TickPlan, ticks: Sequence[FiredTick]) -> Fired:
    """Return the report about a schedule that was due."""
    draft = plan.schedule.definition
    return Fired(
        schedule_id=plan.schedule.schedule_id,
        owner_session_id=owner_column(draft.owner) or None,
        key=draft.key,
        ticks=tuple(ticks),
        next_fire_ms=None if plan.next is None else plan.next.fire_ms,
    )


def unreadable(target: Target, problem: LashError, retry_at_ms: int) -> Fired:
    """Return the report about a schedule that this machine cannot read."""
    return Fired(
        schedule_id=identity_of(*target),
        owner_session_id=target.owner_session_id or None,
        key=target.key,
        next_fire_ms=retry_at_ms,
        problem=str(problem),
    )


def decode_schedule_page(rows: Sequence[ScheduleRow], limit: int) -> SchedulePage:
    """Return the page; the rows hold one more than the limit when there is a next page."""
    shown = [(Target(row.owner_session_id, row.key), row) for row in rows[:limit]]
    schedules: list[Schedule] = []
    damaged: list[str] = []
    for target, row in shown:
        try:
            schedules.append(found_schedule(row))
        except CorruptData:
            damaged.append(identity_of(*target))
    return SchedulePage(
        schedules=tuple(schedules),
        damaged=tuple(damaged),
        next_cursor=_encode_cursor(shown[-1][0]) if len(rows) > limit else None,
    )


def decode_schedule_cursor(cursor: object) -> Target:
    """Return the place behind which a page begins, or raise InvalidInput."""
    if cursor is None:
        return Target("", "")
    try:
        text = check_text("cursor", cursor)
        return Target(*msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[str, str]))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise InvalidInput(f"{cursor!r:.80} is not a cursor of a list of schedules") from None


def _encode_cursor(target: Target) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(target)).decode()


def _body(draft: ScheduleDraft) -> str:
    return canonical(draft).decode()


def _same(draft: ScheduleDraft, row: ScheduleRow) -> bool:
    """Say whether the definition is the stored one; the frame of its owner does not matter."""
    stored = found_schedule(row).definition
    return _body(msgspec.structs.replace(draft, owner=HOST)) == _body(msgspec.structs.replace(stored, owner=HOST))


def _expect(target: Target, row: ScheduleRow | None, revision: int) -> ScheduleRow:
    """Return the row if it is of the revision that the caller knows."""
    owner = owner_text(target.owner_session_id)
    if row is None or row.definition is None:
        raise ScheduleNotFound(owner, target.key)
    if row.revision != revision:
        raise ScheduleConflict(owner, target.key, f"is at revision {row.revision}, not {revision}")
    return row


def _change(
    draft: ScheduleDraft, row: ScheduleRow | None, now_ms: int, *, enabled: bool, created_at_ms: int
) -> ScheduleChange:
    last = None if row is None else row.last_tick_ms
    # A clock that was set back makes no tick come twice.
    after = now_ms if last is None else max(now_ms, last)
    return ScheduleChange(
        owner_session_id=owner_column(draft.owner),
        key=draft.key,
        definition=_body(draft),
        enabled=enabled,
        expected_revision=0 if row is None else row.revision,
        expected_last_tick_ms=last,
        next=moment_after(draft, after) if enabled else None,
        created_at_ms=created_at_ms,
        now_ms=now_ms,
    )


def _occurrence(schedule: Schedule, tick_ms: int) -> OccurrenceRequest:
    at = instant(tick_ms)
    return OccurrenceRequest(
        source_type=CRON_SOURCE_TYPE,
        source_key=schedule.source_key,
        payload={**schedule.definition.payload, _SCHEDULED_AT: at},
        idempotency_key=at,
    )
