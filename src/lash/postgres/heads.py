"""The heads that this storage has seen, so that a commit need not ask before it writes.

A head of one revision and node count never changes, and every commit is guarded by both. A head that is out of date
therefore costs a second round trip and never correctness.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from lash.plan.commit import Checkpoints
from lash.plan.session import HeadRow

CAPACITY: Final = 4_096


class SeenHeads:
    """The last heads seen, by session id; the least recently used are forgotten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._heads: OrderedDict[str, HeadRow] = OrderedDict()
        self._checkpoints: dict[str, tuple[int, int, Checkpoints]] = {}

    def get(self, session_id: str) -> HeadRow | None:
        head = self._heads.get(session_id)
        if head is not None:
            self._heads.move_to_end(session_id)
        return head

    def remember(self, session_id: str, head: HeadRow, checkpoints: Checkpoints = Checkpoints.ANY) -> None:
        """Keep the head as the newest known of its session, and what its commit left of checkpoints.

        Only commits change these, so they stay known when the same revision is seen again.
        """
        self._heads[session_id] = head
        self._heads.move_to_end(session_id)
        if checkpoints is not Checkpoints.ANY:
            self._checkpoints[session_id] = (head.session_key, head.revision, checkpoints)
        if len(self._heads) > self._capacity:
            self.forget(next(iter(self._heads)))

    def checkpoints(self, session_id: str, head: HeadRow) -> Checkpoints:
        """Return what is known of the checkpoints at the revision of this head."""
        known = self._checkpoints.get(session_id)
        return known[2] if known is not None and known[:2] == (head.session_key, head.revision) else Checkpoints.ANY

    def forget(self, session_id: str) -> None:
        self._heads.pop(session_id, None)
        self._checkpoints.pop(session_id, None)
