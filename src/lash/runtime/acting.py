"""Records what an operator does, around any call of a storage."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from lash.errors import LashError, StorageClosed, StoreUnavailable
from lash.model.act import Act
from lash.stores.storage import Storage


@contextlib.asynccontextmanager
async def acting(
    storage: Storage, by: str, verb: str, target: str, *, session_id: str | None = None, process_id: str | None = None
) -> AsyncIterator[Act]:
    """Record an act before the body runs, and how it ended: an error of the body means that it was refused.

    Raises the body's error. The act stays without an outcome if the body is cancelled or the storage cannot be reached,
    in the body or after it: whether it was done is then unknown.
    ``async with acting(storage, "ada", "requeue", batch_id, session_id="chat-1"): await storage.queue.requeue(...)``
    """
    act = await storage.acts.record(by, verb, target, session_id=session_id, process_id=process_id)
    try:
        yield act
    except (StoreUnavailable, StorageClosed):
        raise
    except Exception as error:
        await _settle(storage, act, type(error).__name__)
        raise
    await _settle(storage, act, None)


async def _settle(storage: Storage, act: Act, error: str | None) -> None:
    # The act itself has ended by now: its caller gets its result, not a failure to note it.
    with contextlib.suppress(LashError):
        await storage.acts.settle(act.act_id, error=error)
