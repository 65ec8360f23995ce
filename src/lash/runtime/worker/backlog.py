"""The backlog: processes that a poll found and that have no slot yet."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from lash.model.work import MAX_POLL
from lash.runtime.worker.slots import Slots

Run = TypeVar("Run")


class Backlog(Generic[Run]):
    """Processes found by a poll that had no free slot; they start without another poll.

    Workers that empty one queue find the same processes. After losing a claim to another worker, claim in random order.
    """

    def __init__(self, slots: Slots[Run], ahead: int) -> None:
        """Keep processes for these slots, up to ``ahead`` more than there are slots free."""
        self._slots = slots
        self._ahead = ahead
        self._found: deque[str] = deque()
        self._is_contended = False
        self.may_be_longer = False
        """Whether more processes may wait for a slot: the last poll found more than could start."""

    def wanted(self) -> int:
        """Return how many processes to poll for."""
        wanted = self._slots.wanted()
        return min(wanted + self._ahead, MAX_POLL) if wanted else 0

    def put(self, process_ids: Sequence[str], *, wanted: int) -> None:
        """Replace the backlog by what a poll for so many processes found."""
        self.may_be_longer = len(process_ids) >= wanted
        if not wanted:
            return
        ordered = self._slots.ranked(process_ids)
        if self._is_contended:
            self._is_contended = False
            random.shuffle(ordered)
        self._found = deque(ordered)

    def take(self) -> Iterator[str]:
        """Yield processes, each with a slot taken for it, while there are both."""
        while self._found and not self._slots.is_full:
            process_id = self._found.popleft()
            if self._slots.take(process_id):
                yield process_id

    def note_lost_claim(self) -> None:
        """Note that another worker claimed a process first."""
        self._is_contended = True
