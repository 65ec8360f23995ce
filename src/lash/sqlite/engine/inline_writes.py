"""Runs brief writes on the event loop's own thread, where that is faster than a trip to the writer's thread.

A commit on a fast disk takes a fraction of a millisecond, and the loop would yield for as long anyway (`gil_yield`);
the two changes of threads around it cost half as much again. A write that touches few rows therefore takes one of
three ways:

1. **At once**, inside the caller's call, if its task is the only one that writes in this loop iteration.
2. **At the end of the loop iteration**, in one transaction with all other brief writes of that iteration.
3. **On the writer's thread**, if the loop would have to wait: another thread or process holds the write lock, commits
   have been slow of late, or the thread has jobs in flight, behind which this one must stay in order.

The loop never waits for a lock and never for a slow disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from lash.sqlite.engine.jobs import InlineJob, Job
from lash.sqlite.engine.transaction import Transaction
from lash.sqlite.engine.writer import Writer

T = TypeVar("T")

_MAX_GROUP: Final = 16
"""How many bodies the loop runs in one transaction; with more, other tasks of the loop would wait too long."""
_MAX_HOLD_S: Final = 0.002
"""For how long one task may write again and again before other tasks of the loop get to run."""
_SHARED_LINGERS: Final = 3
"""After so many transactions with a single body, writes count as coming from one task again."""


class InlineWrites:
    """Runs brief jobs on the event loop, or hands them to the writer's thread, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: Writer) -> None:
        self._loop = loop
        self._writer = writer
        self._waiting: list[Job[Transaction]] = []
        self._shared = 0
        """Above 0 while several tasks write: their writes then wait for each other and share transactions."""
        self._iteration_began = 0.0
        self._iteration_task: asyncio.Task[object] | None = None

    def try_at_once(self, body: Callable[[Transaction], T]) -> InlineJob[Transaction, T] | None:
        """Run a brief body now, before any other callback of the loop, and return it with its outcome.

        Return None if it should be submitted instead: other tasks write too and can share a transaction, this task has
        held the loop for long enough, or the write would have to wait. Only one task an iteration is served like this.
        """
        if self._waiting or self._shared or not self._writer.can_run_inline:
            return None
        task, now = asyncio.current_task(self._loop), self._loop.time()
        if self._iteration_task is None:
            self._iteration_task, self._iteration_began = task, now
            self._loop.call_soon(self._end_iteration)
        elif task is not self._iteration_task:
            self._shared = _SHARED_LINGERS
            return None
        elif now - self._iteration_began > _MAX_HOLD_S:
            return None
        job = InlineJob(body)
        return job if self._writer.run_inline([job]) else None

    def submit(self, job: Job[Transaction]) -> None:
        """Queue a job whose body is brief: it touches few rows, however much is stored.

        The jobs of one loop iteration stay together on the way to the thread too. The thread would otherwise start
        with the first alone, and the others would wait for two fsyncs.
        """
        if len(self._waiting) == _MAX_GROUP or self._writer.is_busy:
            self.hand_over()
            self._writer.submit(job)
            return
        if not self._waiting:
            self._loop.call_soon(self._run_waiting)
        self._waiting.append(job)

    def hand_over(self) -> None:
        """Give the waiting jobs to the thread, ahead of the job that it is given next."""
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            self._writer.submit(job)

    def _run_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        self._shared = _SHARED_LINGERS if len(waiting) > 1 else max(0, self._shared - 1)
        if self._writer.can_run_inline and self._writer.run_inline(waiting):
            return
        for job in waiting:
            self._writer.submit(job)

    def _end_iteration(self) -> None:
        self._iteration_task = None
