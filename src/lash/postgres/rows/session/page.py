"""Pages of sessions on PostgreSQL."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from lash.backend.session_page import PAGES
from lash.model.session.session import SessionPage
from lash.plan.session.checkpoint import ComponentRow
from lash.plan.session.page import PageRow, PreparedPage
from lash.postgres.engine.database import Database
from lash.sqlkit.queries import argument_names
from lash.stores.session import DecodePage

_SHORT: Final = 100
"""How many sessions of a page are decoded on the event loop: about two milliseconds."""


class PageAnswer(PageRow, frozen=True, array_like=True, gc=False):
    """One session of a list, and the components of its head if they are wanted."""

    components: list[ComponentRow] | None


async def read_page(database: Database, page: PreparedPage, decode: DecodePage) -> SessionPage:
    """Read and decode a page in one statement."""
    query = PAGES[page.way]
    arguments = page_arguments(page, database.statement(query))

    def decoded(rows: list[PageAnswer]) -> SessionPage:
        return decode(rows, {row.session_key: row.components for row in rows if row.components})

    if page.limit <= _SHORT:
        return decoded(await database.read_all(PageAnswer, query, *arguments))
    return await database.read_in_thread(PageAnswer, query, *arguments, decode=decoded)


def page_arguments(page: PreparedPage, statement: str) -> list[object]:
    """Return the arguments of the statement that reads the page, in its order."""
    values = _values(page)
    return [values[name] for name in _names(statement)]


@lru_cache(maxsize=32)
def _names(statement: str) -> tuple[str, ...]:
    return argument_names(statement)


def _values(page: PreparedPage) -> dict[str, object]:
    wanted = page.wanted
    return {
        "with_state": page.needs_state,
        "with_counts": page.parts.counts,
        "with_checkpoint": page.parts.checkpoint,
        "prefix": wanted.prefix,
        "agent": wanted.agent,
        "state": None if wanted.state is None else wanted.state.value,
        "created_after_ms": wanted.created_after_ms,
        "created_before_ms": wanted.created_before_ms,
        "active_after_ms": wanted.active_after_ms,
        "active_before_ms": wanted.active_before_ms,
        "label_keys": list(page.terms.keys()) if page.terms else None,
        "label_values": list(page.terms.values()) if page.terms else None,
        "limit": page.limit,
        "search": " & ".join(f"{word}:*" for word in page.words),
        **page.place,
    }
