"""Triggers, and schedules with their next ticks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import htpy as h

from lash.cli.owner import owner_text
from lash.errors import InvalidInput
from lash.model.process.process import SessionOriginator
from lash.model.trigger.schedule import Schedule
from lash.model.trigger.trigger import TriggerOwner, TriggerSubscription
from lash.plan.trigger.cron import next_tick, zone_of
from lash.web.show import act, ago, badge, line, more_link, name_link, table
from lash.web.view import Visit, WebPage

_PAGE: Final = 100
_TICKS: Final = 3
"""How many of the next ticks are shown."""


async def triggers(visit: Visit) -> WebPage:
    """Two reads of one page each."""
    schedules, subscriptions = await asyncio.gather(
        visit.storage.schedules.list(limit=_PAGE, cursor=visit.parameter("schedules") or None),
        visit.storage.triggers.list(limit=_PAGE, cursor=visit.parameter("cursor") or None),
    )
    return WebPage(
        "Triggers",
        (
            h.section("#schedules")[
                h.h2["Schedules"],
                table(
                    ("schedule", "owner", "state", "cron", "next ticks", "last", ""),
                    (_schedule_row(visit, each) for each in schedules.schedules),
                    nothing="No schedules. Declare one with app.every() or app.cron().",
                ),
                more_link("triggers", visit.query, schedules.next_cursor, "schedules"),
            ],
            h.section("#triggers")[
                h.h2["Triggers"],
                table(
                    ("trigger", "owner", "state", "source", "changed"),
                    (_trigger_row(each) for each in subscriptions.subscriptions),
                    nothing="No triggers. Declare one with app.on().",
                ),
                more_link("triggers", visit.query, subscriptions.next_cursor, "cursor"),
            ],
        ),
    )


def _owner(owner: TriggerOwner) -> h.Node:
    return name_link("session", owner.scope.session_id) if isinstance(owner, SessionOriginator) else owner_text(owner)


def _ticks(schedule: Schedule) -> h.Node:
    """Return the next ticks of a schedule; only the stored one if this machine cannot read its time zone."""
    definition, ticks = schedule.definition, [schedule.next_tick_ms]
    with contextlib.suppress(InvalidInput):
        zone = zone_of(definition.time_zone)
        while len(ticks) < _TICKS and (last := ticks[-1]) is not None:
            ticks.append(next_tick(definition.cron, zone, last))
    shown = [ago(tick) for tick in ticks if tick is not None]
    return [(index > 0 and ", ", each) for index, each in enumerate(shown)] or ago(None)


def _schedule_row(visit: Visit, schedule: Schedule) -> tuple[h.Node, ...]:
    owner = schedule.owner
    fields = {
        "schedule": schedule.key,
        "revision": str(schedule.revision),
        "session": owner.scope.session_id if isinstance(owner, SessionOriginator) else "",
        "enable": "no" if schedule.enabled else "yes",
    }
    return (
        line(schedule.key, 80),
        _owner(owner),
        badge("enabled" if schedule.enabled else "disabled"),
        (h.code[line(schedule.definition.cron, 60)], h.span(".quiet")[" ", line(schedule.definition.time_zone, 40)]),
        _ticks(schedule),
        ago(schedule.last_tick_ms),
        act("set-schedule", "Disable" if schedule.enabled else "Enable", fields) if visit.may_act else None,
    )


def _trigger_row(subscription: TriggerSubscription) -> tuple[h.Node, ...]:
    return (
        line(subscription.key, 80),
        _owner(subscription.owner),
        badge("enabled" if subscription.enabled else "disabled"),
        line(subscription.definition.source_type, 80),
        ago(subscription.updated_at_ms),
    )
