"""The heads that this storage has seen, so that a commit need not ask before it writes.

A head of one revision and node count never changes, and every commit is guarded by both. A head that is out of date
therefore costs a second round trip and never correctness.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import msgspec

from lash.base.compression import BlobRef
from lash.plan.session.session import HeadRow

CAPACITY: Final = 4_096


class Left(msgspec.Struct, frozen=True):
    """What a commit left of a session that has one checkpoint, without frames: that of its head."""

    components: Mapping[str, BlobRef]
    inherits: bool
    """Whether the session sees nodes of another one."""


class SeenHeads:
    """The last heads seen, by session id; the least recently used are forgotten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._heads: OrderedDict[str, HeadRow] = OrderedDict()
        self._left: dict[str, tuple[int, int, Left]] = {}

    def get(self, session_id: str) -> HeadRow | None:
        head = self._heads.get(session_id)
        if head is not None:
            self._heads.move_to_end(session_id)
        return head

    def remember(self, session_id: str, head: HeadRow, left: Left | None = None) -> None:
        """Keep the head as the newest known of its session, and what its commit left, if that is known.

        Only commits change that, so it stays known when the same revision is seen again.
        """
        self._heads[session_id] = head
        self._heads.move_to_end(session_id)
        if left is not None:
            self._left[session_id] = (head.session_key, head.revision, left)
        if len(self._heads) > self._capacity:
            self.forget(next(iter(self._heads)))

    def left(self, session_id: str, head: HeadRow) -> Left | None:
        """Return what is known of the session at the revision of this head."""
        known = self._left.get(session_id)
        return known[2] if known is not None and known[:2] == (head.session_key, head.revision) else None

    def forget(self, session_id: str) -> None:
        self._heads.pop(session_id, None)
        self._left.pop(session_id, None)
