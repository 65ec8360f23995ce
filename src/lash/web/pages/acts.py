"""What operators did, and who did it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import htpy as h

from lash.errors import InvalidInput
from lash.model.act import Act
from lash.web.show import ago, badge, line, link, more_link, name_link, search_form, table, text_field
from lash.web.view import Visit, WebPage

_PAGE: Final = 50
_COLUMNS: Final = ("when", "who", "did", "to", "of", "outcome")


async def acts(visit: Visit) -> WebPage:
    """One read of one page."""
    by, session_id, process_id = (visit.parameter(name) for name in ("by", "session", "process"))
    if session_id and process_id:
        raise InvalidInput("expected a session or a process to filter by, got both; clear one of them")
    found = await visit.storage.acts.list(
        by=by or None,
        session_id=session_id or None,
        process_id=process_id or None,
        limit=_PAGE,
        after=visit.number("cursor"),
    )
    cursor = str(found[-1].position) if len(found) == _PAGE else None
    filters = search_form(
        "acts",
        text_field("by", "who", by, key=True),
        text_field("session", "session", session_id),
        text_field("process", "process", process_id),
    )
    nothing = "No acts. What operators do with the command or in this console is listed here."
    return WebPage(
        "Acts",
        (
            h.section("#filters", aria_label="Filters")[filters],
            h.section("#found")[act_table(found, nothing), more_link("acts", visit.query, cursor, "cursor")],
        ),
    )


def act_table(found: Iterable[Act], nothing: str) -> h.Renderable:
    """Return acts as a table, the last first."""
    return table(_COLUMNS, (_row(each) for each in found), nothing=nothing)


def acts_about(found: tuple[Act, ...], most: int, **about: str) -> h.Element:
    """Return the last acts about a session or a process; hidden if there are none."""
    if not found:
        return h.section("#acts-done", hidden=True)
    return h.section("#acts-done")[
        h.h2["What operators did"],
        act_table(found, "None."),
        len(found) == most and h.p(".more")[h.a(href=link("acts", **about))["All of them"]],
    ]


def _row(act: Act) -> tuple[h.Node, ...]:
    of: h.Node = None
    if act.session_id is not None:
        of = ("session ", name_link("session", act.session_id))
    elif act.process_id is not None:
        of = ("process ", name_link("process", act.process_id))
    outcome = "unknown" if act.outcome is None else act.outcome.value
    return (
        ago(act.at_ms),
        h.a(href=link("acts", by=act.by))[line(act.by, 60)],
        line(act.verb, 40),
        h.code(".text")[line(act.target, 40)],
        of,
        badge(outcome, outcome if act.error is None else f"{outcome}: {act.error}"),
    )
