"""All sessions, with filters."""

from __future__ import annotations

from collections.abc import Iterable

import htpy as h

from lash.model.session.session import SessionFilter, SessionOrder, SessionState, SessionSummary
from lash.web.show import (
    Column,
    ago,
    badge,
    choice_field,
    line,
    more_link,
    name_link,
    search_form,
    table,
    text_field,
)
from lash.web.view import Visit, WebPage

_PAGE = 50
_COLUMNS = (
    "session",
    "state",
    "agent",
    Column("messages", is_number=True),
    Column("queued", is_number=True),
    Column("dead", is_number=True),
    "active",
    "begins with",
)


async def sessions(visit: Visit) -> WebPage:
    """One read of one page, with its states and counts."""
    label, _, value = visit.parameter("label").partition("=")
    state = visit.parameter("state")
    wanted = SessionFilter(
        text=visit.parameter("text") or None,
        prefix=visit.parameter("prefix") or None,
        owner=visit.parameter("owner") or None,
        agent=visit.parameter("agent") or None,
        labels={label: value} if label else {},
        source_session_id=visit.parameter("source") or None,
        state=SessionState(state) if state in list(SessionState) else None,
    )
    order = SessionOrder.CREATED if visit.parameter("order") == "created" else SessionOrder.ACTIVE
    page = await visit.storage.sessions.list(
        wanted, order=order, with_state=True, with_counts=True, limit=_PAGE, cursor=visit.parameter("cursor") or None
    )
    found = session_table(visit, page.sessions, nothing="No session matches. Clear the filter to see all of them.")
    return WebPage(
        "Sessions",
        (
            _filters(visit),
            h.section("#found")[found, more_link("sessions", visit.query, page.next_cursor, "cursor")],
        ),
    )


def _filters(visit: Visit) -> h.Element:
    return h.section("#filters", aria_label="Filters")[
        search_form(
            "sessions",
            text_field("text", "words of the first message or the labels", visit.parameter("text"), key=True),
            text_field("prefix", "id begins with", visit.parameter("prefix")),
            choice_field("state", "state", visit.parameter("state"), list(SessionState)),
            text_field("agent", "agent", visit.parameter("agent")),
            text_field("owner", "owner", visit.parameter("owner")),
            text_field("label", "label=value", visit.parameter("label")),
            text_field("source", "fork of", visit.parameter("source")),
            choice_field("order", "newest first by", visit.parameter("order"), ("created",), empty="activity"),
        )
    ]


def session_table(visit: Visit, found: Iterable[SessionSummary], *, nothing: str) -> h.Renderable:
    """Return sessions as a table; the list must have their states and counts."""
    return table(_COLUMNS, (_row(visit, each) for each in found), nothing=nothing)


def _row(visit: Visit, summary: SessionSummary) -> tuple[h.Node, ...]:
    state, counts = summary.state or SessionState.IDLE, summary.counts
    waiting = f"{state.value} ({summary.waiting_for})" if summary.waiting_for else None
    return (
        name_link("session", summary.meta.session_id),
        badge(state.value, waiting),
        line(summary.agent or ""),
        f"{summary.user_message_count:,}",
        f"{counts.queued:,}" if counts and counts.queued else "",
        badge("dead", f"{counts.dead:,}") if counts and counts.dead else "",
        ago(summary.updated_at_ms),
        h.span(".text")[line(visit.redact(summary.first_user_message), 80)],
    )
