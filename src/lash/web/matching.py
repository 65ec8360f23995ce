"""All messages that match the filter of a page: what a check counts, and what the act after it does.

The check names the last message that it counted. The act stops there, so it does not touch what came later.
"""

from __future__ import annotations

from typing import Final

from lash.model.queue import DeadLetter, QueuedBatch, QueuedState
from lash.stores.storage import Storage

MOST: Final = 1_000
"""How many messages one act is about; the page offers the rest again."""


async def matching_letters(storage: Storage, prefix: str) -> tuple[DeadLetter, ...]:
    """Return the first dead letters of the sessions whose id begins with a text."""
    return await storage.queue.dead(prefix=prefix or None, limit=MOST)


async def matching_queued(storage: Storage, prefix: str, state: str) -> tuple[QueuedBatch, ...]:
    """Return the first queued messages of the sessions whose id begins with a text, in a state unless it is empty."""
    return await storage.queue.list_all(prefix=prefix or None, state=state_named(state), limit=MOST)


def state_named(name: str) -> QueuedState | None:
    return QueuedState(name) if name in list(QueuedState) else None
