"""Rules of ticks: which ticks of a schedule are emitted, and when."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from lash.base.codec import canonical, content_hash
from lash.model.trigger.schedule import CatchUp, ScheduleDraft
from lash.plan.trigger.cron import newest_tick, next_tick, zone_of
from lash.plan.trigger.trigger import owner_column

MAX_TICKS: Final = 100
"""The most ticks of one schedule that one transaction emits."""


class Moment(NamedTuple):
    """A tick, and the moment from which it may be emitted."""

    tick_ms: int
    fire_ms: int


def identity_of(owner_session_id: str, key: str) -> str:
    """Return the id of a schedule; the owner is empty for the host."""
    return "schedule:" + content_hash(b"lash.schedule.v1\0" + canonical([owner_session_id, key]))


def moment_after(draft: ScheduleDraft, after_ms: int) -> Moment | None:
    """Return the first tick after a moment, or None."""
    tick = next_tick(draft.cron, zone_of(draft.time_zone), after_ms)
    return None if tick is None else _moment(draft, tick)


def _moment(draft: ScheduleDraft, tick_ms: int) -> Moment:
    """Return the tick and the moment to emit it, which is always before the next tick."""
    if draft.jitter_ms == 0:
        return Moment(tick_ms, tick_ms)
    following = next_tick(draft.cron, zone_of(draft.time_zone), tick_ms)
    most = draft.jitter_ms if following is None else min(draft.jitter_ms, following - tick_ms - 1)
    seed = f"lash.schedule.jitter.v1\0{identity_of(owner_column(draft.owner), draft.key)}\0{tick_ms}"
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    return Moment(tick_ms, tick_ms + number % (most + 1))


def due_ticks(draft: ScheduleDraft, first: Moment, now_ms: int) -> tuple[tuple[int, ...], int]:
    """Return the ticks to emit, and the last tick that is done with; ``first`` is the first due tick."""
    zone = zone_of(draft.time_zone)
    if draft.catch_up is CatchUp.ALL:
        due = tuple(moment.tick_ms for moment in _due_from(draft, first, now_ms))
        return due, due[-1]
    if draft.catch_up is CatchUp.LAST:
        last = _newest_due(draft, zone, first.tick_ms, now_ms)
        return (last,), last
    return _ticks_in_time(draft, zone, first, now_ms)


def _newest_due(draft: ScheduleDraft, zone: ZoneInfo, first_ms: int, now_ms: int) -> int:
    newest = newest_tick(draft.cron, zone, first_ms, now_ms)
    if _moment(draft, newest).fire_ms <= now_ms:
        return newest
    return newest_tick(draft.cron, zone, first_ms, newest - 1)


def _ticks_in_time(draft: ScheduleDraft, zone: ZoneInfo, first: Moment, now_ms: int) -> tuple[tuple[int, ...], int]:
    """Return the due ticks within the grace period, and the last tick that is done with."""
    in_time, done = now_ms - draft.grace_ms, first.tick_ms
    newest = newest_tick(draft.cron, zone, first.tick_ms, in_time)
    if newest > first.tick_ms:
        # Earlier ticks had to be emitted before this one was due, which is too long ago.
        first = _moment(draft, newest)
        done = newest_tick(draft.cron, zone, done, newest - 1)
    due = tuple(_due_from(draft, first, now_ms))
    return tuple(moment.tick_ms for moment in due if moment.fire_ms >= in_time), due[-1].tick_ms if due else done


def _due_from(draft: ScheduleDraft, first: Moment, now_ms: int) -> Iterator[Moment]:
    """Yield the ticks from ``first`` on that are due, at most as many as one transaction emits."""
    moment: Moment | None = first
    for _ in range(MAX_TICKS):
        if moment is None or moment.fire_ms > now_ms:
            return
        yield moment
        moment = moment_after(draft, moment.tick_ms)
