"""Rules of schedules: how a row is read and changed, and which of its ticks are emitted."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from lash.base.codec import canonical, decode, encode
from lash.base.limits import check_identifier, check_integer, check_text
from lash.base.shapes import read_json
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
from lash.plan.sealed import SCHEDULE
from lash.plan.trigger.cron import check_cron, instant
from lash.plan.trigger.emit import EncodedOccurrence, encode_occurrence
from lash.plan.trigger.tick import Moment, due_ticks, identity_of, moment_after
from lash.plan.trigger.trigger import HOST_OWNER, owner_column, owner_text

MAX_JITTER_MS: Final = 24 * 60 * 60 * 1000
"""One day: more would be another schedule."""
MIN_GRACE_MS: Final = 1_000
"""A shorter grace would drop ticks whenever a worker is busy for a moment."""
MAX_PAYLOAD_LENGTH: Final = 65_536
"""The most characters of a definition: each tick copies its payload into every process that it starts."""
RETRY_MS: Final = 60_000
"""The time after which an unreadable schedule is tried again."""
UNREADABLE: Final = (InvalidInput, CorruptData)
"""The errors of a machine that cannot read a schedule or its time zone."""
_SCHEDULED_AT: Final = "scheduled_at"


class Target(NamedTuple):
    """The name of a schedule; the owner is empty for the host."""

    owner_session_id: str
    key: str


class ScheduleRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored schedule; the owner is empty for the host.

    A row without a definition is a deleted schedule, of which only the numbers are kept.
    """

    schedule_key: int
    owner_session_id: str
    key: str
    definition: Annotated[str | None, SCHEDULE]
    enabled: bool
    revision: int
    next_tick_ms: int | None
    next_fire_ms: int | None
    last_tick_ms: int | None
    created_at_ms: int
    updated_at_ms: int


class DueRow(msgspec.Struct, frozen=True, array_like=True):
    """The key and name of a due schedule."""

    schedule_key: int
    owner_session_id: str
    key: str

    @property
    def target(self) -> Target:
        return Target(self.owner_session_id, self.key)


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A write of a schedule, if its row still has the expected revision (0: there is no row)."""

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
        """The session that must exist because it owns the schedule; None for the host and for a deletion."""
        return None if self.definition is None or self.owner_session_id == HOST_OWNER else self.owner_session_id


class TickPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The occurrences to emit for a due schedule, and its next tick."""

    schedule: Schedule
    occurrences: tuple[tuple[int, EncodedOccurrence], ...]
    last_tick_ms: int
    next: Moment | None


def check_schedule(draft: object) -> ScheduleDraft:
    """Return the draft, with enum members where the caller gave their text, or raise InvalidInput."""
    if not isinstance(draft, ScheduleDraft):
        raise InvalidInput(f"expected a ScheduleDraft, got {type(draft).__name__}")
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
        raise InvalidInput(f"{what}: payload key {_SCHEDULED_AT!r} is reserved for the time of the tick")
    if plain.source_key is not None:
        check_identifier(f"{what}: source_key", plain.source_key)
    return plain


def check_target(owner: object, key: object) -> Target:
    """Return the name of a schedule, or raise InvalidInput."""
    return Target(owner_column(owner), check_identifier("key", key))


def check_wanted_owner(owner: object) -> str | None:
    """Return the owner column of a list's filter; None lists the schedules of all owners."""
    return None if owner is None else owner_column(owner)


def check_revision(revision: object) -> int:
    """Return the revision, or raise InvalidInput unless it is a positive integer."""
    return check_integer("revision", revision, at_least=1)


def target_of(draft: ScheduleDraft) -> Target:
    """Return the name of the schedule that a checked draft defines."""
    return Target(owner_column(draft.owner), draft.key)


def decode_schedule(row: ScheduleRow) -> Schedule | None:
    """Return the schedule of a row, or None if it was deleted; raise CorruptData if it is unreadable."""
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
    """Return the schedule of a row, or raise ScheduleNotFound if it was deleted."""
    schedule = decode_schedule(row)
    if schedule is None:
        raise ScheduleNotFound(owner_text(row.owner_session_id), row.key)
    return schedule


def plan_registration(draft: ScheduleDraft, row: ScheduleRow | None, now_ms: int) -> ScheduleChange | None:
    """Return the write, or None if an equal schedule exists; raise ScheduleConflict if another one does."""
    if row is None or row.definition is None:
        return _change(draft, row, now_ms, enabled=True, created_at_ms=now_ms)
    if not _same(draft, row):
        owner = owner_text(row.owner_session_id)
        raise ScheduleConflict(owner, row.key, f"has another definition, at revision {row.revision}")
    return None


def plan_update(draft: ScheduleDraft, row: ScheduleRow | None, revision: int, now_ms: int) -> ScheduleChange | None:
    """Return the write of a new definition, or None if it is equal."""
    current = _expect(target_of(draft), row, revision)
    if _same(draft, current):
        return None
    return _change(draft, current, now_ms, enabled=current.enabled, created_at_ms=current.created_at_ms)


def plan_switch(
    target: Target, row: ScheduleRow | None, revision: int, now_ms: int, *, enabled: bool
) -> ScheduleChange | None:
    """Return the write that enables or disables the schedule, or None if it already is."""
    current = _expect(target, row, revision)
    if current.enabled == enabled:
        return None
    draft = found_schedule(current).definition
    return _change(draft, current, now_ms, enabled=enabled, created_at_ms=current.created_at_ms)


def plan_deletion(target: Target, row: ScheduleRow | None, revision: int, now_ms: int) -> ScheduleChange:
    """Return the write that deletes the schedule; it need not be readable."""
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
    """Return the due occurrences and the next tick, or None if nothing is due."""
    schedule = found_schedule(row)
    first = schedule.next_tick_ms
    if first is None or schedule.next_fire_ms is None or schedule.next_fire_ms > now_ms:
        return None
    ticks, last = due_ticks(schedule.definition, Moment(first, schedule.next_fire_ms), now_ms)
    return TickPlan(
        schedule=schedule,
        occurrences=tuple((tick, encode_occurrence(tick_occurrence(schedule, tick))) for tick in ticks),
        last_tick_ms=last,
        next=moment_after(schedule.definition, last),
    )


def fired(plan: TickPlan, ticks: Sequence[FiredTick]) -> Fired:
    """Return the report of a schedule that fired."""
    draft = plan.schedule.definition
    return Fired(
        schedule_id=plan.schedule.schedule_id,
        owner_session_id=owner_column(draft.owner) or None,
        key=draft.key,
        ticks=tuple(ticks),
        next_fire_ms=None if plan.next is None else plan.next.fire_ms,
    )


def unreadable(target: Target, problem: LashError, retry_at_ms: int) -> Fired:
    """Return the report of a schedule that this machine cannot read."""
    return Fired(
        schedule_id=identity_of(*target),
        owner_session_id=target.owner_session_id or None,
        key=target.key,
        next_fire_ms=retry_at_ms,
        problem=str(problem),
    )


def decode_schedule_page(rows: Sequence[ScheduleRow], limit: int) -> SchedulePage:
    """Return the page. One row more than the limit means that there is a next page."""
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
    """Return the name after which a page starts, or raise InvalidInput."""
    if cursor is None:
        return Target("", "")
    try:
        text = check_text("cursor", cursor)
        return Target(*read_json(base64.urlsafe_b64decode(text), tuple[str, str]))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise InvalidInput(f"expected a cursor of a list of schedules, got {cursor!r:.80}") from None


def _encode_cursor(target: Target) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(target)).decode()


def _body(draft: ScheduleDraft) -> str:
    return canonical(draft).decode()


def _same(draft: ScheduleDraft, row: ScheduleRow) -> bool:
    """Return whether the definition equals the stored one; the frame of its owner does not matter."""
    stored = found_schedule(row).definition
    return _body(msgspec.structs.replace(draft, owner=HOST)) == _body(msgspec.structs.replace(stored, owner=HOST))


def _expect(target: Target, row: ScheduleRow | None, revision: int) -> ScheduleRow:
    """Return the row, or raise unless it has the revision that the caller expects."""
    owner = owner_text(target.owner_session_id)
    if row is None or row.definition is None:
        raise ScheduleNotFound(owner, target.key)
    if row.revision != revision:
        message = f"is at revision {row.revision}, the caller expected {revision}; read it and decide again"
        raise ScheduleConflict(owner, target.key, message)
    return row


def _change(
    draft: ScheduleDraft, row: ScheduleRow | None, now_ms: int, *, enabled: bool, created_at_ms: int
) -> ScheduleChange:
    last = None if row is None else row.last_tick_ms
    # After the clock was set back, no tick comes twice.
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


def tick_occurrence(schedule: Schedule, tick_ms: int) -> OccurrenceRequest:
    """Return the occurrence of a tick."""
    at = instant(tick_ms)
    return OccurrenceRequest(
        source_type=CRON_SOURCE_TYPE,
        source_key=schedule.source_key,
        payload={**schedule.definition.payload, _SCHEDULED_AT: at},
        idempotency_key=at,
    )
