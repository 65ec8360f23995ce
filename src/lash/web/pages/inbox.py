"""Open waits: what waits for a person, with a form to answer."""

from __future__ import annotations

from typing import Final

import htpy as h

from lash.cli.wait import identity_text
from lash.model.effect import ExecutionScope, ProcessScope, TurnScope
from lash.model.value import JSONObject
from lash.model.wait import SignalIdentity, WaitRecord
from lash.web.answer import answer_fields
from lash.web.show import act, ago, block, json_block, json_text, line, more_link, name_link
from lash.web.view import Visit, WebPage

_PAGE: Final = 50


async def inbox(visit: Visit) -> WebPage:
    """One read of one page. The keys of waits are not read; an answer names the wait by its id."""
    found = await visit.storage.waits.pending(limit=_PAGE, after=visit.parameter("cursor") or None)
    cursor = found[-1].key_id if len(found) == _PAGE else None
    cards = [_card(visit, wait) for wait in found if not isinstance(wait.identity, SignalIdentity)]
    nothing = h.p(".empty")["Nothing waits for you. Agents ask here with turn.wait() and ctx.wait()."]
    return WebPage("Inbox", (h.section("#found")[cards or nothing, more_link("inbox", visit.query, cursor, "cursor")],))


def _card(visit: Visit, wait: WaitRecord) -> h.Element:
    fields, ask = {"wait": wait.key_id}, wait.ask
    answer = answer_fields(None if ask is None else ask.schema)
    message = h.label(".wide")[h.span["reason"], h.input(type="text", name="message")]
    return h.article(".card", id=f"w-{wait.key_id[:16]}")[
        h.h2[line(visit.redact(identity_text(wait.identity) if ask is None else ask.text), 200)],
        ask is not None and ask.details is not None and json_block(ask.details, visit.redact),
        ask is not None and ask.schema is not None and _schema(ask.schema),
        h.p[_scope(wait.scope), " · asked ", ago(wait.created_at_ms)],
        wait.deadline_ms is not None and h.p["answer until ", ago(wait.deadline_ms)],
        visit.may_act
        and (act("resolve", "Answer", fields, *answer), act("reject", "Reject", fields, message, danger=True)),
    ]


def _schema(schema: JSONObject) -> h.Element:
    """Return what an answer must look like."""
    return h.details[h.summary["what an answer looks like"], h.pre(".json")[block(json_text(schema))]]


def _scope(scope: ExecutionScope) -> h.Node:
    if isinstance(scope, TurnScope):
        return ("session ", name_link("session", scope.session_id))
    if isinstance(scope, ProcessScope):
        return ("process ", name_link("process", scope.process_id))
    return f"operation {line(scope.operation_id, 80)}"
