"""Iterates over paged lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol, TypeVar

PAGE: Final = 1_000
"""The page size: the most that a store returns."""


class Page(Protocol):
    """A page of items, and the next cursor; None at the end."""

    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)


async def pages(ask: Callable[[str | None], Awaitable[P]]) -> AsyncIterator[P]:
    """Yield one page after the other."""
    page = await ask(None)
    yield page
    while page.next_cursor is not None:
        page = await ask(page.next_cursor)
        yield page
