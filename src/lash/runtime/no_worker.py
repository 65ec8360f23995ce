"""A warning for a caller that waits while no worker is there to do what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from lash.errors import LashError
from lash.model.lease import ResourceKind
from lash.model.worker import WorkerRecord, WorkerStatus
from lash.stores.storage import Storage

_log: Final = logging.getLogger("lash")
_PATIENCE_S: Final = 3.0
"""How long a caller waits before the workers are looked at: longer than most replies take to begin."""
_EVERY_S: Final = 3.0
"""How often they are looked at for all callers of a storage that wait for one agent, or for processes."""
_read_at: Final[WeakKeyDictionary[Storage, dict[tuple[ResourceKind, str | None], float]]] = WeakKeyDictionary()


@contextlib.contextmanager
def warn_without_worker(
    storage: Storage, kind: ResourceKind, awaited: str, *, agent: str | None = None, session_id: str | None = None
) -> Iterator[None]:
    """Surround a wait: log a warning, once, if it takes seconds and no worker runs what is awaited.

    Callers that wait at the same time for the same agent share the warning: in an overloaded fleet all of them wait for
    seconds.
    """
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
    look = partial(_warn, storage, kind, awaited, agent, session_id)
    timer = loop.call_later(_PATIENCE_S, lambda: tasks.append(loop.create_task(look())))
    try:
        yield
    finally:
        timer.cancel()
        for task in tasks:
            task.cancel()


async def _warn(storage: Storage, kind: ResourceKind, awaited: str, agent: str | None, session_id: str | None) -> None:
    reads, now = _read_at.setdefault(storage, {}), time.monotonic()
    if now < reads.get((kind, agent), float("-inf")) + _EVERY_S:
        return
    reads[kind, agent] = now
    # A storage that cannot be read is reported by the wait itself.
    with contextlib.suppress(LashError):
        able = [each for each in await storage.workers.list() if _is_able(each, kind, agent)]
        labels = None
        if session_id is not None and able and all(each.beat.served.labels for each in able):
            labels = (await storage.session(session_id).meta()).labels
            able = [each for each in able if each.takes_turns(agent, labels)]
        if not able:
            what = "turn" if agent is None else f"turn of agent {agent!r}"
            what += "" if labels is None else f" with the labels {labels}"
            _log.warning(
                "no worker runs a %s on this storage; %s waits for one: start `lash worker module:app`, or open an "
                "app without worker=False",
                what if kind is ResourceKind.SESSION else "process",
                awaited,
            )


def _is_able(worker: WorkerRecord, kind: ResourceKind, agent: str | None) -> bool:
    if kind is ResourceKind.SESSION and agent is not None:
        return worker.takes_turns(agent)
    is_there = worker.status is WorkerStatus.ACTIVE and not worker.is_late
    slots = worker.beat.session_slots if kind is ResourceKind.SESSION else worker.beat.process_slots
    return is_there and slots > 0
