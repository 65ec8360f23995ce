"""Queued work of all sessions, and dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import htpy as h

from lash.cli.failure import where
from lash.cli.queue import content_of, kind_of, state_of
from lash.cli.text import plural
from lash.model.failure import traceback_in
from lash.model.queue import DeadLetter, QueuedBatch, QueuedState
from lash.web.show import (
    Column,
    act,
    ago,
    badge,
    block,
    choice_field,
    line,
    link,
    more_link,
    name_link,
    search_form,
    table,
    text_field,
)
from lash.web.view import Visit, WebPage

_PAGE: Final = 50
_COLUMNS: Final = ("session", "state", "kind", Column("attempts", is_number=True), "queued", "content", "")
_DEAD_COLUMNS: Final = ("session", Column("attempts", is_number=True), "died", "reason", "content", "")


async def queue(visit: Visit) -> WebPage:
    """One read of one page; the count of dead letters is a second."""
    tabs = h.section("#tabs", aria_label="Lists")[
        h.nav(".tabs")[
            h.a(href=link("queue"), aria_current=None if visit.parameter("show") == "dead" else "true")["Queued"],
            h.a(href=link("queue", show="dead"), aria_current="true" if visit.parameter("show") == "dead" else None)[
                "Dead letters"
            ],
        ],
        _filters(visit),
    ]
    found = await (_dead(visit) if visit.parameter("show") == "dead" else _queued(visit))
    return WebPage("Queue", (tabs, found))


def _filters(visit: Visit) -> h.Element:
    is_dead = visit.parameter("show") == "dead"
    return search_form(
        "queue",
        text_field("prefix", "session begins with", visit.parameter("prefix"), key=True),
        h.input(type="hidden", name="show", value="dead")
        if is_dead
        else choice_field("state", "state", visit.parameter("state"), list(QueuedState)),
    )


async def _queued(visit: Visit) -> h.Element:
    state = visit.parameter("state")
    found = await visit.storage.queue.list_all(
        prefix=visit.parameter("prefix") or None,
        state=QueuedState(state) if state in list(QueuedState) else None,
        limit=_PAGE,
        after=visit.number("cursor"),
    )
    cursor = str(found[-1].batch.seq) if len(found) == _PAGE else None
    return h.section("#found")[
        queue_table(visit, found, nothing="Nothing is queued."), more_link("queue", visit.query, cursor, "cursor")
    ]


def queue_table(visit: Visit, found: Iterable[QueuedBatch], *, nothing: str) -> h.Renderable:
    return table(_COLUMNS, (_row(visit, each) for each in found), nothing=nothing)


def _row(visit: Visit, item: QueuedBatch) -> tuple[h.Node, ...]:
    batch = item.batch
    cancel = {"session": batch.session_id, "batch": batch.batch_id}
    return (
        name_link("session", batch.session_id),
        badge(item.state.value, state_of(item)),
        kind_of(batch.payloads[0]),
        f"{batch.attempts:,}",
        ago(batch.enqueued_at_ms),
        h.span(".text")[line(visit.redact(content_of(batch)), 120)],
        act("cancel-turn", "Cancel", cancel, danger=True) if visit.may_act else None,
    )


async def _dead(visit: Visit) -> h.Element:
    prefix = visit.parameter("prefix") or None
    found = await visit.storage.queue.dead(prefix=prefix, limit=_PAGE, after=visit.number("cursor"))
    total = (await visit.storage.counts()).dead if prefix is None and visit.may_act else 0
    cursor = str(found[-1].position) if len(found) == _PAGE else None
    return h.section("#found")[
        total and act("requeue-all", f"Queue all {plural(total, 'dead letter')} again", {"prefix": ""}),
        table(_DEAD_COLUMNS, (_dead_row(visit, each) for each in found), nothing="No dead letters."),
        more_link("queue", visit.query, cursor, "cursor"),
    ]


def _dead_row(visit: Visit, letter: DeadLetter) -> tuple[h.Node, ...]:
    batch, trace = letter.batch, traceback_in(letter.error)
    fields = {"session": batch.session_id, "batch": batch.batch_id}
    reason = line(visit.redact(f"{letter.reason}{where(letter.error)}"), 160)
    buttons = (act("requeue", "Queue again", fields), act("discard", "Discard", fields, danger=True))
    return (
        name_link("session", batch.session_id),
        f"{letter.attempts:,}",
        ago(letter.died_at_ms),
        reason if trace is None else h.details[h.summary[reason], h.pre[block(visit.redact(trace))]],
        h.span(".text")[line(visit.redact(content_of(batch)), 120)],
        buttons if visit.may_act else None,
    )
