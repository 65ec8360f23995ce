"""The log of a process: its events and recorded steps, newest first, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import htpy as h

from lash.cli.effect import status_of
from lash.model.effect import EffectRecord, ProcessScope
from lash.model.failure import traceback_in
from lash.model.process.event import ATTEMPT_FAILED, FAILED, ProcessEvent
from lash.stores.storage import Storage
from lash.web.show import Column, ago, badge, block, json_block, line, link, table
from lash.web.steps import began_at_ms, ended_at_ms
from lash.web.timeline import duration
from lash.web.view import Visit

_EVENTS: Final = 200
_STEPS: Final = 300
_COLUMNS: Final = (
    "when",
    "what",
    "name",
    Column("took", is_number=True),
    Column("attempt", is_number=True),
    "worker",
    "content",
)


async def events_before(storage: Storage, process_id: str, before: int | None) -> tuple[ProcessEvent, ...]:
    """Return the last events of a process, or the last ones before a number, in order."""
    if before is None:
        return await storage.events.recent(process_id, _EVENTS)
    first = max(before - 1 - _EVENTS, 0)
    found = await storage.events.after(process_id, first, limit=_EVENTS)
    return tuple(event for event in found if event.sequence < before)


async def steps_of(visit: Visit, scope: ProcessScope) -> tuple[EffectRecord, ...]:
    """Return the last steps of a process, or a page of all in the order of their keys if the address asks for it."""
    if not visit.parameter("all"):
        return await visit.storage.effects.recent(scope, _STEPS)
    return await visit.storage.effects.list(scope, limit=_STEPS, after=visit.parameter("steps") or None)


def process_log(
    visit: Visit, process_id: str, events: Sequence[ProcessEvent], effects: Sequence[EffectRecord]
) -> h.Element:
    """Return events and steps as one table, with links to further ones."""
    rows = [(event.occurred_at_ms, _event_row(visit, event)) for event in events]
    rows += [(effect.updated_at_ms, _effect_row(visit, effect)) for effect in effects]
    ordered = [row for _, row in sorted(rows, key=lambda each: each[0], reverse=True)]
    first, before, everything = events[0].sequence if events else 0, visit.number("before"), visit.parameter("all")
    last = effects[-1].replay_key if everything and len(effects) == _STEPS else None
    more = (
        first > 1 and h.a(href=link("process", id=process_id, before=first))["Earlier events"],
        not everything
        and len(effects) == _STEPS
        and h.a(href=link("process", id=process_id, all="steps"))["All steps, in the order of their keys"],
        last and h.a(href=link("process", id=process_id, all="steps", steps=last))["Next steps"],
        (everything or before is not None) and h.a(href=link("process", id=process_id))["Back to the newest"],
    )
    return h.section("#log")[
        h.h2["Log, newest first"],
        table(_COLUMNS, ordered, nothing="No events yet."),
        any(more) and h.p(".offers")[((each, " ") for each in more if each)],
    ]


def _event_row(visit: Visit, event: ProcessEvent) -> tuple[h.Node, ...]:
    trace = traceback_in(event.payload) if event.event_type in (ATTEMPT_FAILED, FAILED) else None
    body = json_block(event.payload, visit.redact) if trace is None else h.pre[block(visit.redact(trace))]
    return (
        ago(event.occurred_at_ms),
        f"event {event.sequence}",
        line(event.event_type, 80),
        None,
        None,
        None,
        None if event.payload is None else h.details[h.summary["show"], body],
    )


def _effect_row(visit: Visit, effect: EffectRecord) -> tuple[h.Node, ...]:
    shown = effect.outcome if effect.error is None else effect.error
    return (
        ago(effect.updated_at_ms),
        badge(status_of(effect)),
        line(visit.redact(effect.replay_key), 80),
        duration(ended_at_ms(effect) - began_at_ms(effect)),
        None if effect.attempt is None else str(effect.attempt),
        line(effect.worker or "", 60),
        None if shown is None else h.details[h.summary["show"], json_block(shown, visit.redact)],
    )
