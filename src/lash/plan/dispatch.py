"""Which worker a piece of ready work is assigned to. The notification of PostgreSQL has the same rule in SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from lash.base.codec import decode
from lash.model.worker import WorkerStatus
from lash.plan.worker import WorkerRow, decode_choice, is_late


class ReadyWork(msgspec.Struct, frozen=True, array_like=True):
    """A session or a process that can be claimed, or that a worker holds."""

    id: str
    name: str | None
    """The agent of the session, or the name of the process."""
    holder: str | None
    """The worker that holds its live lease."""
    labels: str | None = None
    """The labels of the session, or of the session of the process; None if no worker chooses by labels."""


def rank_workers(
    work: ReadyWork,
    workers: Iterable[WorkerRow],
    now_ms: int,
    *,
    is_process: bool,
    preferred: str | None = None,
    excluded: str | None = None,
) -> list[WorkerRow]:
    """Return the workers to assign the work to, best first.

    The holder of the lease gets what concerns its session or process. Any other work goes to an active worker with a
    free slot: the preferred one, else the one with the best hash of both ids, so that a session keeps its worker and
    the worker its history. If more than half of that worker's slots are taken, the second best comes first.
    """
    reachable = [
        each for each in workers if each.channel is not None and not is_late(each.seen_at_ms, each.beat_ms, now_ms)
    ]
    if work.holder is not None:
        return [each for each in reachable if each.worker_id == work.holder]
    able = [each for each in reachable if each.worker_id != excluded and _can_take(each, work, is_process=is_process)]
    able.sort(key=lambda each: (each.worker_id != preferred, distance(each.worker_id, work.id)))
    if len(able) > 1 and able[0].worker_id != preferred:
        first, second = able[:2]
        if not _has_room(first, is_process=is_process) and _has_room(second, is_process=is_process):
            able[:2] = second, first
    return able


def _can_take(worker: WorkerRow, work: ReadyWork, *, is_process: bool) -> bool:
    if worker.status != WorkerStatus.ACTIVE:
        return False
    if (worker.free_processes if is_process else worker.free_sessions) == 0:
        return False
    names, what = worker.processes if is_process else worker.agents, f"worker {worker.worker_id!r}"
    if names is not None and work.name not in decode(names, tuple[str, ...], f"the names of {what}"):
        return False
    return worker.labels is None or _has_labels(work, decode_choice(worker.labels, what))


def _has_labels(work: ReadyWork, wanted: dict[str, str]) -> bool:
    labels = {} if work.labels is None else decode_choice(work.labels, f"{work.id!r}")
    return wanted.items() <= labels.items()


def _has_room(worker: WorkerRow, *, is_process: bool) -> bool:
    if is_process:
        return 2 * worker.free_processes >= worker.process_slots
    return 2 * worker.free_sessions >= worker.session_slots


def count_steps(worker_id: str, work_id: str, others: Sequence[str]) -> int:
    """Return for how many steps of time a worker leaves work to others: 0 if no other one has a better hash.

    With each step about twice as many workers may take it. So few try at the same time, and no work is left for long.
    """
    own = distance(worker_id, work_id)
    if all(own <= distance(each, work_id) for each in others):
        return 0
    # The hash is even over its range, so it shows about how many of the others are better.
    better = int(own[:8], 16) * len(others) >> 32
    return 1 + better.bit_length()


def distance(worker_id: str, work_id: str) -> str:
    """Return the hash of both ids; the least one is the nearest. The statement `notify_dispatch` has the same."""
    return hashlib.md5(f"{worker_id}{work_id}".encode(), usedforsecurity=False).hexdigest()
