"""Pages of sessions on SQLite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from lash.backend.session_page import PAGES
from lash.model.session.session import SessionPage
from lash.plan.session.checkpoint import ComponentRow
from lash.plan.session.page import PageRow, PreparedPage
from lash.sqlite.engine.database import Reader, SQLiteValue
from lash.sqlite.engine.parameters import json_array
from lash.stores.session import DecodePage


class SessionComponent(ComponentRow, frozen=True, array_like=True, gc=False):
    """A component of the head of one session of a page."""

    session_key: int


def read_page(reader: Reader, page: PreparedPage, decode: DecodePage) -> SessionPage:
    """Read and decode a page, on the snapshot of the reader."""
    rows = reader.all(PageRow, PAGES[page.way], **page_arguments(page, reader.now_ms))
    return decode(rows, _components(reader, rows[: page.limit - 1]) if page.parts.checkpoint else {})


def page_arguments(page: PreparedPage, now_ms: int) -> dict[str, SQLiteValue]:
    """Return the arguments of the query that reads the page."""
    wanted = page.wanted
    search = {"search": " ".join(f'"{word}"*' for word in page.words)} if page.words else {}
    return {
        **search,
        "with_state": int(page.needs_state),
        "with_counts": int(page.parts.counts),
        "with_checkpoint": int(page.parts.checkpoint),
        "now_ms": now_ms,
        "prefix": wanted.prefix,
        "agent": wanted.agent,
        "state": None if wanted.state is None else wanted.state.value,
        "created_after_ms": wanted.created_after_ms,
        "created_before_ms": wanted.created_before_ms,
        "active_after_ms": wanted.active_after_ms,
        "active_before_ms": wanted.active_before_ms,
        "terms": json_array(page.terms.items()) if page.terms else None,
        "limit": page.limit,
        **page.place,
    }


def _components(reader: Reader, rows: Sequence[PageRow]) -> Mapping[int, Sequence[ComponentRow]]:
    keys = json_array(row.session_key for row in rows)
    found: defaultdict[int, list[ComponentRow]] = defaultdict(list)
    for each in reader.all(SessionComponent, "session_page_components", session_keys=keys):
        found[each.session_key].append(each)
    return found
