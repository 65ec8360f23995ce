"""Iterates over paged lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from lash.cli.shell import Shell

T = TypeVar("T")

_PAGE: Final = 100

Fetch = Callable[[int, str | None], Awaitable[tuple[tuple[T, ...], str | None]]]
"""Returns at most so many items after a cursor, and the next cursor; None at the end."""


async def first(fetch: Fetch[T], shell: Shell, limit: int, *, everything: bool) -> list[T]:
    """Return the first items, or all of them; a note says if there are more."""
    items: list[T] = []
    cursor: str | None = None
    while True:
        wanted = _PAGE if everything else min(_PAGE, limit - len(items) + 1)
        page, cursor = await fetch(wanted, cursor)
        items.extend(page)
        if not everything and len(items) > limit:
            say_more(shell, limit)
            return items[:limit]
        if cursor is None:
            return items


def say_more(shell: Shell, limit: int) -> None:
    """Write a note that the list goes on, to standard error: it does not disturb a program that reads the output."""
    shell.note(f"only the first {limit:,} are shown; --no-limit shows all")


async def count(fetch: Fetch[T]) -> int:
    """Return how many items there are in all."""
    return sum([1 async for _ in each(fetch)])


async def each(fetch: Fetch[T]) -> AsyncIterator[T]:
    """Yield all items."""
    cursor: str | None = None
    while True:
        page, cursor = await fetch(_PAGE, cursor)
        for item in page:
            yield item
        if cursor is None:
            return
