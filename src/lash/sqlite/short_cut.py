"""Brief transactions on the event loop itself, where that is quicker than a way to the writer's thread and back.

A commit on a fast disk takes a fraction of a millisecond, and the loop lends the interpreter for as long anyway; the
two changes of threads around it cost half as much again. So the loop writes what it knows to be brief by itself, all
that was asked for within one of its turns in one transaction. It never waits: not for another process or thread, and
not for a disk that has been slow of late. Whatever would have to wait goes to the thread.
"""

from __future__ import annotations

import asyncio
from typing import Final

from lash.sqlite.jobs import Work
from lash.sqlite.transaction import Transaction
from lash.sqlite.writer import Writer

_MOST_AT_ONCE: Final = 16
"""How many bodies the loop runs before it looks at anything else."""


class ShortCut:
    """Collects brief jobs and serves them on the event loop, or hands them to the writer's thread, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: Writer) -> None:
        self._loop = loop
        self._writer = writer
        self._waiting: list[Work[Transaction]] = []

    def submit(self, job: Work[Transaction]) -> None:
        """Queue a job whose body is brief: it touches few rows, however much is stored."""
        if len(self._waiting) == _MOST_AT_ONCE or not self._writer.is_at_hand:
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
        if waiting and not self._writer.serve_now(waiting):
            for job in waiting:
                self._writer.submit(job)
