"""A clock that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

START_MS: Final = 1_700_000_000_000
"""The default start of a manual clock: a moment in November 2023."""


class ManualClock:
    """Wall-clock time that only the test moves. It is a `lash.base.clock.Clock`, and may be read from any thread.

    A storage whose server keeps the time passes ``follow``, which is called with every new time before the move
    returns, so that the server is never behind.
    """

    def __init__(self, now_ms: int = START_MS, *, follow: Callable[[int], Awaitable[None]] | None = None) -> None:
        self._now_ms = now_ms
        self._follow = follow

    def now_ms(self) -> int:
        return self._now_ms

    async def advance(self, milliseconds: int) -> None:
        """Move the clock; a negative number moves it back, as the clocks of real machines sometimes do."""
        self._now_ms += milliseconds
        if self._follow is not None:
            await self._follow(self._now_ms)
