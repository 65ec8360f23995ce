"""An open wait as a card: its question, and a form to answer it."""

from __future__ import annotations

import htpy as h

from lash.cli.wait import identity_text
from lash.model.effect import ExecutionScope, ProcessScope, TurnScope
from lash.model.value import JSONObject
from lash.model.wait import SignalIdentity, WaitRecord
from lash.web.answer import answer_fields
from lash.web.forms import BACK
from lash.web.show import act, ago, block, json_block, json_text, line, name_link
from lash.web.view import Visit


def wait_cards(visit: Visit, waits: tuple[WaitRecord, ...]) -> list[h.Element]:
    """Return the waits for a person; a wait for a signal is not one."""
    return [_card(visit, wait) for wait in waits if not isinstance(wait.identity, SignalIdentity)]


def waits_here(visit: Visit, waits: tuple[WaitRecord, ...]) -> h.Element:
    """Return the waits of one turn or process as a piece of its page; hidden if there are none."""
    cards = wait_cards(visit, waits)
    return h.section("#waits")[h.h2["Waits for you"], cards] if cards else h.section("#waits", hidden=True)


def _card(visit: Visit, wait: WaitRecord) -> h.Element:
    fields, ask = {"wait": wait.key_id, BACK: visit.here}, wait.ask
    answer = answer_fields(None if ask is None else ask.schema)
    reason = h.label(".wide")[h.span["reason"], h.input(type="text", name="message")]
    return h.article(".card.wait", id=f"w-{wait.key_id[:16]}")[
        h.h3[line(visit.redact(identity_text(wait.identity) if ask is None else ask.text), 200)],
        h.p(".quiet")[
            _scope(wait.scope),
            " · asked ",
            ago(wait.created_at_ms),
            wait.deadline_ms is not None and (" · answer until ", ago(wait.deadline_ms)),
        ],
        ask is not None and ask.details is not None and json_block(ask.details, visit.redact),
        visit.may_act
        and h.div(".answers")[
            act("resolve", "Answer", fields, *answer), act("reject", "Reject", fields, reason, danger=True)
        ],
        ask is not None and ask.schema is not None and _schema(ask.schema),
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
