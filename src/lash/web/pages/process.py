"""One process: what it does, its timeline, its log, its children."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import htpy as h

from lash.cli.effect import status_of
from lash.errors import InvalidInput, ProcessNotFound
from lash.model.causal import ProcessCause
from lash.model.effect import EffectRecord, ProcessScope
from lash.model.failure import traceback_in
from lash.model.process.event import ATTEMPT_FAILED, CONTINUED, FAILED, STARTED, ProcessEvent
from lash.model.process.process import Failure, ProcessFilter, ProcessPage, ProcessRecord, Recovery, SessionOriginator
from lash.web.forms import FORM_KEY
from lash.web.pages.processes import process_badge, process_name, process_table
from lash.web.pages.program import program
from lash.web.show import act, ago, badge, block, facts, json_block, line, link, name_link, now_ms, table, text_field
from lash.web.timeline import TimelineBar, timeline
from lash.web.view import Visit, WebPage

_EVENTS: Final = 200
_EFFECTS: Final = 300
_CHILDREN: Final = 50
"""How many of the processes that it started are shown, the newest."""


async def process(visit: Visit) -> WebPage:
    """A fixed number of reads, however long the log is."""
    process_id = visit.parameter("id")
    if not process_id:
        raise InvalidInput("expected the id of a process in the address, got none")
    listed, events, effects, holder, started = await asyncio.gather(
        visit.storage.processes.list(ProcessFilter(process_id=process_id), with_state=True, limit=1),
        visit.storage.events.recent(process_id, _EVENTS),
        visit.storage.effects.list(ProcessScope(process_id=process_id), limit=_EFFECTS),
        visit.storage.process_leases.holder(process_id),
        visit.storage.processes.list(ProcessFilter(parent_process_id=process_id), with_state=True, limit=_CHILDREN),
    )
    if not listed.processes:
        raise ProcessNotFound(process_id)
    record = listed.processes[0]
    runs_at = None if holder is None else holder.owner.owner_id
    pieces = (
        _facts(visit, record, runs_at),
        _timeline(record, events, effects, started.processes),
        _children(visit, record, started),
        _failure(visit, record),
        await program(visit, record),
        _acts(visit, record),
        _log(visit, events, effects),
    )
    return WebPage(f"{process_name(record)} {process_id}".strip(), pieces)


def _facts(visit: Visit, record: ProcessRecord, runs_at: str | None) -> h.Element:
    originator = record.registration.provenance.originator
    cause = record.registration.provenance.caused_by
    started = name_link("session", originator.scope.session_id) if isinstance(originator, SessionOriginator) else "host"
    if isinstance(cause, ProcessCause):
        started = name_link("process", cause.process_id)
    wakes, repeated = record.wake_session_id, record.registration.provenance.rerun_of
    return h.section("#facts", aria_label="Facts")[
        facts(
            (
                ("id", h.code[line(record.process_id)]),
                ("state", process_badge(record)),
                ("worker", None if runs_at is None else line(runs_at, 80)),
                ("started by", started),
                ("rerun of", None if repeated is None else name_link("process", repeated)),
                ("wakes", None if wakes is None else name_link("session", wakes)),
                ("created", ago(record.created_at_ms)),
                ("changed", ago(record.updated_at_ms)),
                ("events", f"{record.last_sequence:,}"),
                (
                    "reason to cancel",
                    line(record.projection.cancel_reason) if record.projection.cancel_reason else None,
                ),
            )
        ),
        h.details[h.summary["Input"], json_block(record.registration.input, visit.redact)],
    ]


def _timeline(
    record: ProcessRecord,
    events: Sequence[ProcessEvent],
    effects: Sequence[EffectRecord],
    started: Sequence[ProcessRecord],
) -> h.Element:
    bars = [_event_bar(event) for event in events if event.event_type in (STARTED, ATTEMPT_FAILED, CONTINUED)]
    bars += [_effect_bar(effect) for effect in effects]
    bars += [_process_bar(each, link("process", id=each.process_id)) for each in started]
    bars.append(_process_bar(record))
    return h.section("#timeline")[
        h.h2["Timeline"],
        h.div(".scroll", tabindex="0", role="region", aria_label="Timeline")[timeline(bars)],
    ]


def _process_bar(record: ProcessRecord, address: str | None = None) -> TimelineBar:
    """Return the life of a process as a bar; that of a child is a link to it."""
    ended = record.updated_at_ms if record.is_terminal else now_ms() // 1_000 * 1_000
    name, status = process_name(record) or "process", record.status.value
    label = name if address is None else f"child: {name}"
    began = record.created_at_ms
    return TimelineBar(label, began, max(ended, began), _tone(status), status, address)


def _children(visit: Visit, record: ProcessRecord, started: ProcessPage) -> h.Element:
    if not started.processes:
        return h.section("#children", hidden=True)
    address = link("processes", parent=record.process_id)
    return h.section("#children")[
        h.h2["Processes that it started"],
        process_table(visit, started.processes, nothing="None."),
        started.next_cursor is not None and h.p(".more")[h.a(href=address)["All of them"]],
    ]


def _event_bar(event: ProcessEvent) -> TimelineBar:
    tone = "bad" if event.event_type == ATTEMPT_FAILED else "mark"
    return TimelineBar(event.event_type.removeprefix("process."), event.occurred_at_ms, event.occurred_at_ms, tone)


def _effect_bar(effect: EffectRecord) -> TimelineBar:
    status = status_of(effect)
    until = effect.updated_at_ms if effect.due_at_ms is None else max(effect.due_at_ms, effect.updated_at_ms)
    ended = min(until, now_ms() // 1_000 * 1_000) if status == "running" else effect.updated_at_ms
    began = effect.created_at_ms if effect.began_at_ms is None else effect.began_at_ms
    ran = f"attempt {effect.attempt} on {effect.worker}" if effect.attempt is not None else ""
    note = f"{status} · {ran}" if ran else status
    return TimelineBar(effect.replay_key, began, max(ended, began), _tone(status), note)


def _tone(status: str) -> str:
    if status in ("failed", "abandoned", "unknown"):
        return "bad"
    return "warn" if status in ("running", "cancelled") else "good"


def _failure(visit: Visit, record: ProcessRecord) -> h.Element:
    outcome = record.projection.outcome
    if outcome is None:
        return h.section("#outcome", hidden=True)
    trace = traceback_in(outcome.raw) if isinstance(outcome, Failure) else None
    body = json_block(outcome, visit.redact) if trace is None else h.pre[block(visit.redact(trace))]
    return h.section("#outcome")[h.h2["Outcome"], badge(record.status.value), body]


def _acts(visit: Visit, record: ProcessRecord) -> h.Element:
    if not visit.may_act:
        return h.section("#acts", hidden=True)
    fields = {"process": record.process_id}
    if record.is_terminal:
        again = record.registration.recovery is not Recovery.EXTERNAL
        return h.section("#acts", hidden=not again)[
            h.h2["Act"], again and act("rerun", "Run again", {**fields, "key": FORM_KEY})
        ]
    inputs = (text_field("name", "name", ""), text_field("payload", "payload (JSON)", "", wide=True))
    return h.section("#acts")[
        h.h2["Act"],
        act("signal", "Send the signal", {**fields, "key": FORM_KEY}, *inputs),
        act("cancel-process", "Cancel the process", fields, danger=True),
    ]


def _log(visit: Visit, events: Sequence[ProcessEvent], effects: Sequence[EffectRecord]) -> h.Element:
    rows = [(event.occurred_at_ms, _event_row(visit, event)) for event in events]
    rows += [(effect.updated_at_ms, _effect_row(visit, effect)) for effect in effects]
    ordered = [row for _, row in sorted(rows, key=lambda each: each[0], reverse=True)]
    return h.section("#log")[
        h.h2["Log, newest first"],
        table(("when", "what", "name", "content"), ordered, nothing="No events yet."),
    ]


def _event_row(visit: Visit, event: ProcessEvent) -> tuple[h.Node, ...]:
    trace = traceback_in(event.payload) if event.event_type in (ATTEMPT_FAILED, FAILED) else None
    body = json_block(event.payload, visit.redact) if trace is None else h.pre[block(visit.redact(trace))]
    return (
        ago(event.occurred_at_ms),
        f"event {event.sequence}",
        line(event.event_type, 80),
        None if event.payload is None else h.details[h.summary["show"], body],
    )


def _effect_row(visit: Visit, effect: EffectRecord) -> tuple[h.Node, ...]:
    shown = effect.outcome if effect.error is None else effect.error
    return (
        ago(effect.updated_at_ms),
        badge(status_of(effect)),
        line(effect.replay_key, 80),
        None if shown is None else h.details[h.summary["show"], json_block(shown, visit.redact)],
    )
