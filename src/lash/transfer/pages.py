"""Going through lists that come in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol, TypeVar

PAGE: Final = 1_000
"""How much is asked for at a time: the most that a store answers."""


class Page(Protocol):
    """Some things, and the cursor behind them, None at the end."""

    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)


async def pages(ask: Callable[[str | None], Awaitable[P]]) -> AsyncIterator[P]:
    """Ask for one page after the other."""
    page = await ask(None)
    yield page
    while page.next_cursor is not None:
        page = await ask(page.next_cursor)
        yield page
