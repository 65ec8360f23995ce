"""Measures of the whole storage: the duty worker reads them for the hooks that want them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from lash.base.backoff import jitter
from lash.errors import LashError, StorageClosed
from lash.model.lease import LeaseOwner
from lash.model.queue import QueuedState
from lash.runtime.core import Core
from lash.runtime.hooks import Hooks
from lash.stores.storage import Storage

_EVERY_S: Final = 15.0
"""As often as Prometheus reads by default; a few reads each time, whatever the number of workers."""


async def measure_regularly(core: Core, is_due: Callable[[], bool]) -> None:
    """Measure the storage until cancelled, in the rounds that are due; an outage leaves a round out."""
    if not core.hooks.measures:
        return
    while True:
        if is_due():
            try:
                await measure_storage(core.storage, core.hooks, core.owner)
            except StorageClosed:
                return
            except LashError as error:
                core.hooks.note("worker.trouble", error=f"{type(error).__qualname__}: {error}")
        await asyncio.sleep(jitter(_EVERY_S))


async def measure_storage(storage: Storage, hooks: Hooks, owner: LeaseOwner) -> None:
    """Read the figures that belong to the storage, and pass each to the hooks."""
    measure = hooks.measure
    counts, report = await storage.counts(), await storage.report()
    measure("queue.depth", counts.queued, state="queued")
    measure("queue.depth", counts.claimed, state="claimed")
    measure("queue.oldest_age", await _oldest_age_s(storage, owner))
    measure("dead_letters", counts.dead)
    for status, count in counts.processes.items():
        measure("processes", count, status=status.value)
    measure("waits.open", counts.waits)
    measure("workers.live", sum(not worker.is_late for worker in await storage.workers.list()))
    measure("storage.bytes", report.bytes)


async def _oldest_age_s(storage: Storage, owner: LeaseOwner) -> float:
    """Return how long the oldest ready message has been ready; 0 if there is none."""
    ready = await storage.queue.list_all(state=QueuedState.READY, limit=1)
    if not ready:
        return 0.0
    now_ms = (await storage.work.poll(sessions=0, processes=0, owner=owner)).now_ms
    batch = ready[0].batch
    return max(0, now_ms - max(batch.enqueued_at_ms, batch.available_at_ms)) / 1_000
