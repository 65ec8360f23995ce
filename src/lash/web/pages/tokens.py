"""Tokens, by day, model, agent or session."""

from __future__ import annotations

from typing import Final

import htpy as h

from lash.model.session.usage import UsageGroup, UsageSum
from lash.web.show import Column, choice_field, line, more_link, name_link, now_ms, search_form, table, text_field
from lash.web.view import Visit, WebPage

_PAGE: Final = 100
_DAY_MS: Final = 86_400_000
_USUAL: Final = 30
_SPANS: Final = {"1 day": 1, "7 days": 7, "all": None}
_COUNTERS: Final = ("input", "cached", "output", "reasoning", "total")


async def tokens(visit: Visit) -> WebPage:
    """One read: the sums of a page."""
    group = visit.parameter("by")
    by = (group,) if group in list(UsageGroup) else ("day", "model")
    span = _SPANS.get(visit.parameter("since"), _USUAL)
    page = await visit.storage.usage.sum(
        by,
        since_ms=None if span is None else now_ms() // _DAY_MS * _DAY_MS - (span - 1) * _DAY_MS,
        agent=visit.parameter("agent") or None,
        model=visit.parameter("model") or None,
        limit=_PAGE,
        cursor=visit.parameter("cursor") or None,
    )
    filters = search_form(
        "tokens",
        choice_field("by", "by", group, list(UsageGroup), empty="day and model"),
        choice_field("since", "in the last", visit.parameter("since"), _SPANS, empty=f"{_USUAL} days"),
        text_field("agent", "agent", visit.parameter("agent")),
        text_field("model", "model", visit.parameter("model")),
    )
    most = max((each.usage.total for each in page.sums), default=0)
    columns = [*by, *(Column(name, is_number=True) for name in _COUNTERS), ""]
    found = table(columns, (_row(each, by, most) for each in page.sums), nothing="No tokens were booked in this time.")
    return WebPage(
        "Tokens",
        (
            h.section("#filters", aria_label="Filters")[filters],
            h.section("#found")[found, more_link("tokens", visit.query, page.next_cursor, "cursor")],
        ),
    )


def _row(found: UsageSum, by: tuple[str, ...], most: int) -> tuple[h.Node, ...]:
    keys: dict[str, h.Node] = {
        "day": found.day or "-",
        "model": line(found.model or "-", 60),
        "agent": line(found.agent or "-", 60),
        "session": name_link("session", found.session_id) if found.session_id else "-",
        "source": line(found.source or "-", 60),
    }
    spent = found.usage
    counters = (
        spent.input_tokens,
        spent.cached_input_tokens,
        spent.output_tokens,
        spent.reasoning_tokens,
        spent.total,
    )
    share = h.meter(min="0", max=str(max(most, 1)), value=str(spent.total), aria_label="share of the largest row")
    return (*(keys[group] for group in by), *(f"{number:,}" for number in counters), share)
