"""What a worker tidies up from time to time. Any number of workers may do it at once."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from lash.errors import LashError, StorageClosed
from lash.model.attachment import AttachmentEntry, OwnerKind
from lash.model.process import ProcessStatus
from lash.runtime.core import Core
from lash.stores.storage import Storage

_UNCOMMITTED_MS: Final = 24 * 3_600_000
"""How old an attachment must be before anybody asks whether it will still be committed."""
_PAGE: Final = 100
_TURN_PREFIX: Final = "turn:"


async def keep_tidy(core: Core) -> None:
    """Tidy up for as long as the worker lives; trouble is noted and tried again the next time."""
    every_s = core.options.maintenance_s
    if every_s is None:
        return
    while True:
        # Workers that were started together should not tidy up together.
        await asyncio.sleep(every_s * random.uniform(0.5, 1.0))  # noqa: S311 (no secret is made of it)
        try:
            await tidy(core)
        except StorageClosed:
            return
        except LashError as error:
            core.hooks.note("worker.trouble", error=f"{type(error).__qualname__}: {error}")


async def tidy(core: Core) -> None:
    """Remove attachments that nobody will commit, and processes that have ended long enough ago."""
    storage = core.storage

    async def is_owner_gone(entry: AttachmentEntry) -> bool:
        return await _is_owner_gone(storage, entry)

    await storage.attachments.sweep(_UNCOMMITTED_MS, is_owner_gone)
    keep_s = core.options.keep_ended_processes_s
    if keep_s is None:
        return
    now_ms = (await storage.work.look(sessions=0, processes=0, owner=core.owner)).now_ms
    more = True
    while more:
        pruned = await storage.processes.prune(
            ended_before_ms=max(0, now_ms - round(keep_s * 1_000)), through_cursor=None, limit=_PAGE
        )
        more = pruned.more


async def _is_owner_gone(storage: Storage, entry: AttachmentEntry) -> bool:
    """Say whether what put an attachment can never commit it: its turn was consumed, its process has ended."""
    owner = entry.owner
    if owner is None:
        return True
    if owner.kind is OwnerKind.PROCESS:
        record = await storage.processes.get(owner.id)
        return record is None or record.status is not ProcessStatus.RUNNING
    batch_id = owner.id.removeprefix(_TURN_PREFIX)
    queued = {batch.batch_id for batch in await storage.queue.list(entry.session_id)}
    # A dead letter may be given another try.
    dead = {letter.batch.batch_id for letter in await storage.queue.dead(session_id=entry.session_id)}
    return batch_id not in queued | dead
