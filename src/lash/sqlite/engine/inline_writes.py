"""Brief transactions on the event loop itself, where that is quicker than a way to the writer's thread and back.

A commit on a fast disk takes a fraction of a millisecond, and the loop lends the interpreter for as long anyway; the
two changes of threads around it cost half as much again. So the loop writes what it knows to be brief by itself: at
once for a task that is alone with its wish, else all that was asked for within one of its turns in one transaction.
It never waits: not for another process or thread, and not for a disk that has been slow of late. Whatever would have
to wait goes to the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from lash.sqlite.engine.jobs import Errand, Work
from lash.sqlite.engine.transaction import Transaction
from lash.sqlite.engine.writer import Writer

T = TypeVar("T")

_MOST_AT_ONCE: Final = 16
"""How many bodies the loop runs before it looks at anything else."""
_LONGEST_S: Final = 0.002
"""For how long one task may go on writing before the loop looks at anything else."""
_COMPANY_LINGERS: Final = 3
"""For how many transactions a task that is alone again is taken for one among several."""


class ShortCut:
    """Runs brief jobs on the event loop, or hands them to the writer's thread, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: Writer) -> None:
        self._loop = loop
        self._writer = writer
        self._waiting: list[Work[Transaction]] = []
        self._company = 0
        self._turn_began = 0.0
        self._turn_of: asyncio.Task[object] | None = None

    def try_at_once(self, body: Callable[[Transaction], T]) -> Errand[Transaction, T] | None:
        """Run a brief body before anything else happens on the loop, and return it with its outcome.

        None if it had better be submitted: others write too and can share a transaction, the task has kept the loop
        for long enough, or somebody would have to wait. Only one task is served like this in a turn of the loop.
        """
        if self._waiting or self._company or not self._writer.is_at_hand:
            return None
        task, now = asyncio.current_task(self._loop), self._loop.time()
        if self._turn_of is None:
            self._turn_of, self._turn_began = task, now
            self._loop.call_soon(self._end_turn)
        elif task is not self._turn_of:
            self._company = _COMPANY_LINGERS
            return None
        elif now - self._turn_began > _LONGEST_S:
            return None
        errand = Errand(body)
        return errand if self._writer.serve_now([errand]) else None

    def submit(self, job: Work[Transaction]) -> None:
        """Queue a job whose body is brief: it touches few rows, however much is stored.

        What a turn of the loop brings is kept together, for the thread too: it would begin with the first alone, and
        the others would wait for two flushes.
        """
        if len(self._waiting) == _MOST_AT_ONCE or self._writer.is_busy:
            self.hand_over()
            self._writer.submit(job)
            return
        if not self._waiting:
            self._loop.call_soon(self._serve)
        self._waiting.append(job)

    def hand_over(self) -> None:
        """Give what waits here to the thread, so that what it is given next comes after it."""
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            self._writer.submit(job)

    def _serve(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        self._company = _COMPANY_LINGERS if len(waiting) > 1 else max(0, self._company - 1)
        if self._writer.is_at_hand and self._writer.serve_now(waiting):
            return
        for job in waiting:
            self._writer.submit(job)

    def _end_turn(self) -> None:
        self._turn_of = None
