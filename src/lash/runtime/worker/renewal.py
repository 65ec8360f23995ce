"""Lease renewal: keeps the leases of everything that runs, and gives back leases after storage errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from lash.base.backoff import backoff
from lash.errors import LashError, LeaseLost
from lash.runtime.errors import STORAGE_TROUBLE
from lash.runtime.worker.state import WorkerState

_FIRST_PAUSE_S: Final = 0.1
"""The first pause before a release is retried: a restarting server needs longer than a lost connection."""


class LeasedRun(Protocol):
    """A run whose lease is renewed."""

    async def renew(self) -> None: ...

    def lose(self) -> None: ...


class LeaseRenewal:
    """Renews the leases of all runs three times within their lifetime, and stops runs whose lease is lost."""

    def __init__(self, state: WorkerState, runs: Callable[[], tuple[LeasedRun, ...]]) -> None:
        self._state = state
        self._runs = runs
        self._ttl_s = state.core.options.lease_ttl_s

    async def run(self) -> None:
        """Renew until cancelled."""
        renewed: dict[LeasedRun, float] = {}
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            runs = self._runs()
            renewed = {run: renewed.get(run, time.monotonic()) for run in runs}
            # Concurrently: one renewal that hangs must not cost the other runs their leases.
            await asyncio.gather(*(self._renew(run, renewed) for run in runs))

    async def release(self, release: Callable[[], Awaitable[object]]) -> None:
        """Release a lease after a storage error, with retries: its work should not have to wait for the expiry."""
        end, failures = time.monotonic() + self._ttl_s, 0
        while time.monotonic() < end and not self._state.is_stopping:
            try:
                await release()
            except STORAGE_TROUBLE:
                longest_s = self._state.core.options.poll_s
                await self._state.pause(backoff(failures, first_s=_FIRST_PAUSE_S, longest_s=longest_s))
                failures += 1
            else:
                return

    async def _renew(self, run: LeasedRun, renewed: dict[LeasedRun, float]) -> None:
        try:
            async with asyncio.timeout(self._ttl_s / 3):
                await run.renew()
            renewed[run] = time.monotonic()
        except LeaseLost:
            self._lose(run)
        except (LashError, TimeoutError):
            if time.monotonic() - renewed[run] > self._ttl_s:
                self._lose(run)

    def _lose(self, run: LeasedRun) -> None:
        # The run may have ended, and released its lease, a moment ago.
        if run in self._runs():
            run.lose()
