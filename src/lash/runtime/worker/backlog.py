"""The processes that a worker has found and not begun yet."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from lash.model.work import MAX_POLL
from lash.runtime.worker.slots import Slots

Run = TypeVar("Run")


class Backlog(Generic[Run]):
    """What looks found beyond the slots that were free: it needs no look of its own when one is.

    Workers that empty one queue find the same processes. Those that meet each other take theirs in any order.
    """

    def __init__(self, slots: Slots[Run], ahead: int) -> None:
        """Keep what waits for these slots, up to ``ahead`` more than there is room for."""
        self._slots = slots
        self._ahead = ahead
        self._found: deque[str] = deque()
        self._is_contended = False
        self.may_be_longer = False
        """Whether there may be processes that wait for a slot: the last look found more than could begin."""

    def wanted(self) -> int:
        """Return how many to look for."""
        wanted = self._slots.wanted()
        return min(wanted + self._ahead, MAX_POLL) if wanted else 0

    def put(self, process_ids: Sequence[str], *, wanted: int) -> None:
        """Take over what a look for so many found; it is newer than what is here."""
        self.may_be_longer = len(process_ids) >= wanted
        if not wanted:
            return
        ordered = self._slots.ranked(process_ids)
        if self._is_contended:
            self._is_contended = False
            random.shuffle(ordered)
        self._found = deque(ordered)

    def begin(self) -> Iterator[str]:
        """Give out processes, each with a slot that was taken for it, as long as there are both."""
        while self._found and not self._slots.is_full:
            process_id = self._found.popleft()
            if self._slots.take(process_id):
                yield process_id

    def note_rival(self) -> None:
        """Note that somebody else was faster with a process."""
        self._is_contended = True
