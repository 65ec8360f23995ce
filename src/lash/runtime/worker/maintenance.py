"""Maintenance: what a worker removes from time to time. Any number of workers may do so at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from lash.base.backoff import jitter
from lash.errors import StorageClosed
from lash.model.attachment import AttachmentEntry, OwnerKind
from lash.model.process.process import ProcessStatus
from lash.model.queue import turn_id_of
from lash.runtime.core import Core
from lash.runtime.turns.inbox import attachment_ids, waiting_batches
from lash.stores.storage import Storage

_UNCOMMITTED_MS: Final = 24 * 3_600_000
"""How old an uncommitted attachment must be before a sweep considers it: no turn takes a day."""
_PAGE: Final = 100
"""How many processes one transaction removes: other writers wait for it."""
_RECORDS: Final = 100
"""How many expired records one transaction removes: their values may be large."""
_LIMITS: Final = 1_000
"""How many unused limits one transaction removes."""
_SESSIONS: Final = 100
"""How many expired sessions one call deletes."""
_CHANGES: Final = 1_000
"""How many entries of the feed one transaction removes."""


async def maintain_regularly(core: Core, is_due: Callable[[], bool] = lambda: True) -> None:
    """Run maintenance until cancelled, in the rounds that are due; an error is noted, and the next round retries."""
    every_s = core.options.maintenance_s
    if every_s is None:
        return
    while True:
        # Workers that were started together should not do this together.
        await asyncio.sleep(jitter(every_s))
        if not is_due():
            continue
        try:
            await maintain(core)
        except StorageClosed:
            return
        except Exception as error:  # noqa: BLE001 (a byte store of the application may raise anything)
            core.hooks.note("worker.trouble", error=f"{type(error).__qualname__}: {error}")


async def maintain(core: Core) -> None:
    """Remove expired sessions and records, unused limits, attachments of no turn, and processes that ended long ago."""
    storage = core.storage
    while len(await storage.sessions.delete_expired(limit=_SESSIONS)) == _SESSIONS:
        pass
    await storage.attachments.sweep(_UNCOMMITTED_MS, _Owners(storage).is_gone)
    while await storage.records.prune(limit=_RECORDS) == _RECORDS:
        pass
    while await storage.limits.prune(limit=_LIMITS) == _LIMITS:
        pass
    keep_s = core.options.keep_ended_processes_s
    if keep_s is None:
        return
    now_ms = (await storage.work.poll(sessions=0, processes=0, owner=core.owner)).now_ms
    before_ms = max(0, now_ms - round(keep_s * 1_000))
    # The feed first: entries that it is pruned of need not be kept apart from their processes.
    while await storage.processes.prune_changes(before_ms=before_ms, limit=_CHANGES) == _CHANGES:
        pass
    while (await storage.processes.prune(ended_before_ms=before_ms, through_cursor=None, limit=_PAGE)).more:
        pass


class _Owners:
    """Finds out, for one sweep, which attachments can still be committed. The input of a session is read once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: dict[str, frozenset[str]] = {}

    async def is_gone(self, entry: AttachmentEntry) -> bool:
        """Return True if no turn or process can still commit it: no running process or queued input has it."""
        owner = entry.owner
        if owner is not None and owner.kind is OwnerKind.PROCESS:
            record = await self._storage.processes.get(owner.id)
            if record is not None and record.status is ProcessStatus.RUNNING:
                return False
        waiting = await self._waiting_in(entry.session_id)
        return entry.ref.id not in waiting and (owner is None or owner.id not in waiting)

    async def _waiting_in(self, session_id: str) -> frozenset[str]:
        """Return the ids of the turns that queued input can still start, and of the attachments that it names."""
        known = self._waiting.get(session_id)
        if known is None:
            names: set[str] = set()
            async for batch in waiting_batches(self._storage, session_id):
                names.add(turn_id_of(batch.batch_id))
                names.update(attachment_ids(batch))
            known = self._waiting[session_id] = frozenset(names)
        return known
