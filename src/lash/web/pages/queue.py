"""Queued work of all sessions, and dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import htpy as h

from lash.cli.failure import where
from lash.cli.queue import content_of, kind_of, state_of
from lash.cli.text import plural
from lash.model.failure import traceback_in
from lash.model.queue import DeadLetter, QueuedBatch, QueuedState
from lash.web.forms import BACK
from lash.web.matching import MOST, matching_letters, matching_queued, state_named
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
    """One read of one page; a check before an act on all matching messages reads all of them, up to its limit."""
    is_dead, check = visit.parameter("show") == "dead", visit.parameter("check")
    current = [None if is_dead else "true", "true" if is_dead else None]
    tabs = h.section("#tabs", aria_label="Lists")[
        h.nav(".tabs")[
            h.a(href=link("queue"), aria_current=current[0])["Queued"],
            h.a(href=link("queue", show="dead"), aria_current=current[1])["Dead letters"],
        ],
        _filters(visit),
    ]
    if check in CHECKS and visit.may_act:
        found = await (_check_letters(visit, CHECKS[check]) if is_dead else _check_queued(visit, CHECKS[check]))
    else:
        found = await (_dead(visit) if is_dead else _queued(visit))
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
    found = await visit.storage.queue.list_all(
        prefix=visit.parameter("prefix") or None,
        state=state_named(visit.parameter("state")),
        limit=_PAGE,
        after=visit.number("cursor"),
    )
    cursor = str(found[-1].batch.seq) if len(found) == _PAGE else None
    return h.section("#found")[
        _offers(visit, "cancel") if found else None,
        queue_table(visit, found, nothing="Nothing is queued."),
        more_link("queue", visit.query, cursor, "cursor"),
    ]


def queue_table(visit: Visit, found: Iterable[QueuedBatch], *, nothing: str) -> h.Renderable:
    return table(_COLUMNS, (_row(visit, each) for each in found), nothing=nothing)


def _row(visit: Visit, item: QueuedBatch) -> tuple[h.Node, ...]:
    batch = item.batch
    cancel = {"session": batch.session_id, "batch": batch.batch_id, BACK: visit.here}
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
    cursor = str(found[-1].position) if len(found) == _PAGE else None
    return h.section("#found")[
        _offers(visit, "requeue", "discard") if found else None,
        _dead_table(visit, found),
        more_link("queue", visit.query, cursor, "cursor"),
    ]


def _dead_table(visit: Visit, found: Iterable[DeadLetter]) -> h.Renderable:
    return table(_DEAD_COLUMNS, (_dead_row(visit, each) for each in found), nothing="No dead letters.")


class Check(NamedTuple):
    """An act on all messages that match the filter: its name, the link to its check, and the button that does it."""

    act: str
    offer: str
    button: str
    is_dangerous: bool


CHECKS: Final = {
    "requeue": Check("requeue-all", "Queue all matching again …", "Queue {} again", is_dangerous=False),
    "discard": Check("discard-all", "Discard all matching …", "Discard {}", is_dangerous=True),
    "cancel": Check("cancel-all", "Cancel all matching …", "Cancel {}", is_dangerous=True),
}


def _offers(visit: Visit, *checks: str) -> h.Node:
    """Return the links to the checks before acts on all matching messages."""
    if not visit.may_act:
        return None
    links = (h.a(href=link("queue", **_filter(visit), check=name))[CHECKS[name].offer] for name in checks)
    return h.p(".offers")[((each, " ") for each in links)]


def _filter(visit: Visit) -> dict[str, str]:
    return {name: visit.parameter(name) for name in ("show", "prefix", "state") if visit.parameter(name)}


async def _check_letters(visit: Visit, check: Check) -> h.Element:
    found = await matching_letters(visit.storage, visit.parameter("prefix"))
    last = found[-1].position if found else 0
    shown = _dead_table(visit._replace(may_act=False), found[:_PAGE])
    return _checked(visit, check, plural(len(found), "dead letter"), len(found), last, shown)


async def _check_queued(visit: Visit, check: Check) -> h.Element:
    found = await matching_queued(visit.storage, visit.parameter("prefix"), visit.parameter("state"))
    last = found[-1].batch.seq if found else 0
    shown = queue_table(visit._replace(may_act=False), found[:_PAGE], nothing="Nothing is queued.")
    return _checked(visit, check, plural(len(found), "queued message"), len(found), last, shown)


def _checked(visit: Visit, check: Check, counted: str, count: int, last: int, shown: h.Renderable) -> h.Element:
    """Return what the act would do, and the form that does it to exactly these messages."""
    kept = _filter(visit)
    return h.section("#found")[
        h.h2["Dry run"],
        h.p[f"{counted} match{'es' * (count == 1)}. Nothing was changed yet."],
        count >= MOST and h.p(".quiet")[f"One act is about at most {MOST:,}; repeat it for the rest."],
        count > 0
        and act(check.act, check.button.format(counted), {**kept, "last": str(last)}, danger=check.is_dangerous),
        h.p[h.a(href=link("queue", **kept))["Back to the list"]],
        shown,
        count > _PAGE and h.p(".quiet")[f"… and {count - _PAGE:,} more."],
    ]


def _dead_row(visit: Visit, letter: DeadLetter) -> tuple[h.Node, ...]:
    batch, trace = letter.batch, traceback_in(letter.error)
    fields = {"session": batch.session_id, "batch": batch.batch_id, BACK: visit.here}
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
