"""One process: what it does, its timeline, its log, its children."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import htpy as h

from lash.errors import InvalidInput, ProcessNotFound
from lash.model.act import Act
from lash.model.causal import ProcessCause
from lash.model.effect import EffectRecord, ProcessScope
from lash.model.failure import traceback_in
from lash.model.lease import Lease
from lash.model.process.event import ATTEMPT_FAILED, CONTINUED, SIGNAL_PREFIX, STARTED, ProcessEvent
from lash.model.process.process import Failure, ProcessFilter, ProcessPage, ProcessRecord, Recovery, SessionOriginator
from lash.model.wait import WaitRecord
from lash.stores.storage import Storage
from lash.web.forms import FORM_KEY
from lash.web.pages.acts import acts_about
from lash.web.pages.log import events_before, process_log, steps_of
from lash.web.pages.processes import process_badge, process_name, process_table
from lash.web.pages.program import program
from lash.web.show import act, ago, badge, block, facts, json_block, line, link, name_link, text_field
from lash.web.steps import effect_bar, effect_marks, this_second_ms, tone_of, wait_bars
from lash.web.timeline import TimelineBar, timeline
from lash.web.view import Visit, WebPage
from lash.web.waiting import waits_here

_CHILDREN: Final = 50
"""How many of the processes that it started are shown, the newest."""
_WAITS: Final = 50
_ACTS: Final = 10
_MARKS: Final = (STARTED, ATTEMPT_FAILED, CONTINUED)


async def process(visit: Visit) -> WebPage:
    """A fixed number of reads, however long the log is."""
    process_id = visit.parameter("id")
    if not process_id:
        raise InvalidInput("expected the id of a process in the address, got none")
    storage, scope = visit.storage, ProcessScope(process_id=process_id)
    (listed, holder, started), (events, effects, waits, acts) = await asyncio.gather(
        _read_process(storage, process_id),
        _read_log(visit, scope),
    )
    if not listed.processes:
        raise ProcessNotFound(process_id)
    record = listed.processes[0]
    pieces = (
        _facts(visit, record, holder),
        waits_here(visit, waits),
        _timeline(visit, record, events, effects, started.processes, waits),
        _outcome(visit, record),
        _children(visit, record, started),
        await program(visit, record),
        _acts(visit, record),
        process_log(visit, process_id, events, effects),
        acts_about(acts, _ACTS, process=process_id),
    )
    return WebPage(f"{process_name(record)} {process_id}".strip(), pieces)


async def _read_process(storage: Storage, process_id: str) -> tuple[ProcessPage, Lease | None, ProcessPage]:
    """Return the process, the lease under which it runs, and the processes that it started."""
    return await asyncio.gather(
        storage.processes.list(ProcessFilter(process_id=process_id), with_state=True, limit=1),
        storage.process_leases.holder(process_id),
        storage.processes.list(ProcessFilter(parent_process_id=process_id), with_state=True, limit=_CHILDREN),
    )


async def _read_log(
    visit: Visit, scope: ProcessScope
) -> tuple[tuple[ProcessEvent, ...], tuple[EffectRecord, ...], tuple[WaitRecord, ...], tuple[Act, ...]]:
    """Return the events, the steps, the open waits, and what operators did."""
    return await asyncio.gather(
        events_before(visit.storage, scope.process_id, visit.number("before")),
        steps_of(visit, scope),
        visit.storage.waits.pending(scope=scope, limit=_WAITS),
        visit.storage.acts.list(process_id=scope.process_id, limit=_ACTS),
    )


def _facts(visit: Visit, record: ProcessRecord, holder: Lease | None) -> h.Element:
    originator = record.registration.provenance.originator
    cause = record.registration.provenance.caused_by
    started = name_link("session", originator.scope.session_id) if isinstance(originator, SessionOriginator) else "host"
    if isinstance(cause, ProcessCause):
        started = name_link("process", cause.process_id)
    wakes, repeated = record.wake_session_id, record.registration.provenance.rerun_of
    reason = record.projection.cancel_reason
    return h.section("#facts", aria_label="Facts")[
        facts(
            (
                ("id", h.code[line(record.process_id)]),
                ("state", process_badge(record)),
                ("worker", None if holder is None else line(holder.owner.owner_id, 80)),
                ("fencing number", None if holder is None else f"{holder.fencing:,}"),
                ("started by", started),
                ("rerun of", None if repeated is None else name_link("process", repeated)),
                ("wakes", None if wakes is None else name_link("session", wakes)),
                ("created", ago(record.created_at_ms)),
                ("changed", ago(record.updated_at_ms)),
                ("events", f"{record.last_sequence:,}"),
                ("reason to cancel", line(visit.redact(reason)) if reason else None),
            )
        ),
        h.details[h.summary["Input"], json_block(record.registration.input, visit.redact)],
    ]


def _timeline(
    visit: Visit,
    record: ProcessRecord,
    events: Sequence[ProcessEvent],
    effects: Sequence[EffectRecord],
    started: Sequence[ProcessRecord],
    waits: Sequence[WaitRecord],
) -> h.Element:
    bars = [
        _process_bar(record),
        *(_event_bar(event) for event in events if _is_mark(event)),
        *map(effect_bar, effects),
        *effect_marks(effects, _how_lost(events)),
        *(_process_bar(each, link("process", id=each.process_id)) for each in started),
        *wait_bars(waits),
    ]
    return h.section("#timeline")[
        h.h2["Timeline"],
        h.div(".scroll.card", tabindex="0", role="region", aria_label="Timeline")[timeline(bars, visit.redact)],
    ]


def _how_lost(events: Sequence[ProcessEvent]) -> str:
    """Return how attempts without a record ended: one that failed has an event."""
    return "ended" if any(event.event_type == ATTEMPT_FAILED for event in events) else "crashed"


def _is_mark(event: ProcessEvent) -> bool:
    return event.event_type in _MARKS or event.event_type.startswith(SIGNAL_PREFIX)


def _event_bar(event: ProcessEvent) -> TimelineBar:
    tone, name = "bad" if event.event_type == ATTEMPT_FAILED else "mark", event.event_type.removeprefix("process.")
    return TimelineBar(name, event.occurred_at_ms, event.occurred_at_ms, tone, is_mark=True)


def _process_bar(record: ProcessRecord, address: str | None = None) -> TimelineBar:
    """Return the life of a process as a bar; that of a child is a link to it."""
    ended = record.updated_at_ms if record.is_terminal else this_second_ms()
    name, status = process_name(record) or "process", record.status.value
    label = name if address is None else f"child: {name}"
    began = record.created_at_ms
    return TimelineBar(label, began, max(ended, began), tone_of(status), status, address)


def _children(visit: Visit, record: ProcessRecord, started: ProcessPage) -> h.Element:
    if not started.processes:
        return h.section("#children", hidden=True)
    address = link("processes", parent=record.process_id)
    return h.section("#children")[
        h.h2["Processes that it started"],
        process_table(visit, started.processes, nothing="None."),
        started.next_cursor is not None and h.p(".more")[h.a(href=address)["All of them"]],
    ]


def _outcome(visit: Visit, record: ProcessRecord) -> h.Element:
    outcome = record.projection.outcome
    if outcome is None:
        return h.section("#outcome", hidden=True)
    trace = traceback_in(outcome.raw) if isinstance(outcome, Failure) else None
    body = json_block(outcome, visit.redact) if trace is None else h.pre[block(visit.redact(trace))]
    return h.section("#outcome")[h.h2["Outcome ", badge(record.status.value)], h.div(".card")[body]]


def _acts(visit: Visit, record: ProcessRecord) -> h.Element:
    if not visit.may_act:
        return h.section("#acts", hidden=True)
    fields = {"process": record.process_id}
    if record.is_terminal:
        again = record.registration.recovery is not Recovery.EXTERNAL
        return h.section("#acts", hidden=not again)[
            h.h2["Act"], again and act("rerun", "Run again", {**fields, "key": FORM_KEY})
        ]
    inputs = (text_field("name", "signal", ""), text_field("payload", "payload (JSON)", "", wide=True))
    return h.section("#acts")[
        h.h2["Act"],
        h.div(".answers")[
            act("signal", "Send the signal", {**fields, "key": FORM_KEY}, *inputs),
            act("cancel-process", "Cancel the process", fields, danger=True),
        ],
    ]
