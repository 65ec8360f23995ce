"""Lease renewal: keeps the leases of everything that runs, and gives back leases after storage errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol, TypeVar

from lash.base.backoff import backoff, jitter
from lash.errors import LashError, LeaseLost
from lash.runtime.errors import STORAGE_TROUBLE
from lash.runtime.outage import HeldLease
from lash.runtime.worker.state import WorkerState

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.1
"""The first pause before a release is retried: a restarting server needs longer than a lost connection."""
_LONGEST_PAUSE_S: Final = 1.0
"""The longest pause before a renewal is retried, while leases age."""


class LeasedRun(Protocol):
    """A run whose lease is renewed."""

    lease: HeldLease

    def lose(self) -> None: ...


class LeaseRenewal:
    """Renews the leases of all runs three times within their lifetime, and stops runs whose lease is lost.

    While the database is away, renewals are retried until the lease is over by the clock of this machine.
    """

    def __init__(self, state: WorkerState, runs: Callable[[], tuple[LeasedRun, ...]]) -> None:
        self._state = state
        self._runs = runs
        self._ttl_s = state.core.options.lease_ttl_s

    async def during(self, work: Coroutine[None, None, T]) -> T:
        """Return the result of some work, and renew meanwhile; work that is over before needs no task for it."""
        renewing: list[asyncio.Task[None]] = []
        begin = asyncio.get_running_loop().call_later(self._ttl_s / 3, self._begin, renewing)
        try:
            return await work
        finally:
            begin.cancel()
            for task in renewing:
                task.cancel()
                await asyncio.wait({task})

    def _begin(self, renewing: list[asyncio.Task[None]]) -> None:
        renewing.append(asyncio.create_task(self.run(is_due=True), name="lash-worker-renewal"))

    async def run(self, *, is_due: bool = False) -> None:
        """Renew until cancelled, at first after the usual pause or at once."""
        failures, usual_pause_s = 0, self._ttl_s / 3
        pause_s = 0.0 if is_due else usual_pause_s
        while True:
            await asyncio.sleep(pause_s)
            # A retry is for the leases that need it; the usual round is for all.
            youngest_s = usual_pause_s if failures else 0.0
            due = [run for run in self._runs() if run.lease.age_s >= youngest_s]
            # Concurrently: one renewal that hangs must not cost the other runs their leases.
            renewed = await asyncio.gather(*(self._renew(run) for run in due))
            failures = 0 if all(renewed) else failures + 1
            longest_s = min(_LONGEST_PAUSE_S, usual_pause_s)
            pause_s = jitter(backoff(failures - 1, longest_s=longest_s)) if failures else usual_pause_s

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

    async def _renew(self, run: LeasedRun) -> bool:
        """Renew a lease, and return False if that must be retried."""
        try:
            async with asyncio.timeout(self._ttl_s / 3):
                await run.lease.renew()
        except LeaseLost:
            self._lose(run)
        except Exception as error:  # noqa: BLE001 (without renewals every run of the worker would lose its lease)
            if not isinstance(error, (LashError, TimeoutError)):
                self._state.note_trouble(error)
            if run.lease.left_s > 0:
                return False
            self._lose(run)
        return True

    def _lose(self, run: LeasedRun) -> None:
        # The run may have ended, and released its lease, a moment ago.
        if run in self._runs():
            run.lose()
