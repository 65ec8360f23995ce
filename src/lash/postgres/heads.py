"""The heads that this storage has seen, so that a commit need not ask before it writes.

A head of one revision and node count never changes, and every commit is guarded by both. A head that is out of date
therefore costs a second round trip and never correctness.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from lash.plan.session import HeadRow

CAPACITY: Final = 4_096


class SeenHeads:
    """The last heads seen, by session id; the least recently used are forgotten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._heads: OrderedDict[str, HeadRow] = OrderedDict()
        self._stateless: dict[str, tuple[int, int]] = {}

    def get(self, session_id: str) -> HeadRow | None:
        head = self._heads.get(session_id)
        if head is not None:
            self._heads.move_to_end(session_id)
        return head

    def remember(self, session_id: str, head: HeadRow, *, is_stateless: bool = False) -> None:
        """Keep the head as the newest known of its session.

        ``is_stateless`` says that nothing is stored of components and frames at its revision; that only a commit
        changes, so it stays known when the same revision is seen again.
        """
        self._heads[session_id] = head
        self._heads.move_to_end(session_id)
        if is_stateless:
            self._stateless[session_id] = (head.session_key, head.revision)
        if len(self._heads) > self._capacity:
            self.forget(next(iter(self._heads)))

    def is_stateless(self, session_id: str, head: HeadRow) -> bool:
        """Say whether this is known of the head of this revision."""
        return self._stateless.get(session_id) == (head.session_key, head.revision)

    def forget(self, session_id: str) -> None:
        self._heads.pop(session_id, None)
        self._stateless.pop(session_id, None)
