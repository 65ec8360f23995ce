"""The watchdog: notices code that blocks the event loop, and workers on this machine that died."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from lash.runtime.hooks import Hooks

_TICK_S: Final = 0.25
"""How soon the death of another worker is noticed."""
_LAG_NOTED_S: Final = 1.0
"""A loop that is blocked for a second renews no lease in that time; shorter lags are common under load."""


class Watchdog:
    """Ticks four times a second; a tick that comes late means a blocked event loop."""

    def __init__(self, hooks: Hooks, on_tick: Callable[[], None], measure: Callable[[], None]) -> None:
        self._hooks = hooks
        self._on_tick = on_tick
        self._measure = measure

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            lag_s = time.monotonic() - before - _TICK_S
            if self._hooks.measures:
                self._hooks.measure("loop.lag", max(0.0, lag_s))
                self._measure()
            if lag_s > _LAG_NOTED_S:
                self._hooks.note("loop.blocked", seconds=round(lag_s, 3))
            self._on_tick()
