"""Rows that this storage has seen, so that a write needs no read before it.

Every write is guarded by the values that it takes from here: a head by its revision, node count and leaf, a process by
its number of events and its wake target. On one server a row of the same guard values never changes. A stale row
therefore costs a second round trip and never correctness.

A standby that takes over may have lost transactions, and gives their numbers to others. So the caches are cleared when
a connection was closed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from lash.base.compression import BlobRef
from lash.plan.process.process import ProcessRow
from lash.plan.session.session import HeadRow

CAPACITY: Final = 4_096
"""How many rows each cache keeps: enough for the sessions and processes that one worker runs."""


class KnownCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint that a commit of this storage wrote: the only one of its session, and without frames."""

    components: Mapping[str, BlobRef]
    inherits: bool
    """Whether the session sees nodes of another one."""


class HeadCache:
    """The heads of the most recently used sessions, by session id."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._heads: OrderedDict[str, HeadRow] = OrderedDict()
        self._checkpoints: dict[str, tuple[int, int, KnownCheckpoint]] = {}

    def get(self, session_id: str) -> HeadRow | None:
        head = self._heads.get(session_id)
        if head is not None:
            self._heads.move_to_end(session_id)
        return head

    def remember(self, session_id: str, head: HeadRow, checkpoint: KnownCheckpoint | None = None) -> None:
        """Keep the head as the newest of its session, and its checkpoint if that is known.

        Only a commit changes the checkpoint, so it stays known when the same revision is read again.
        """
        self._heads[session_id] = head
        self._heads.move_to_end(session_id)
        if checkpoint is not None:
            self._checkpoints[session_id] = (head.session_key, head.revision, checkpoint)
        if len(self._heads) > self._capacity:
            self.forget(next(iter(self._heads)))

    def checkpoint(self, session_id: str, head: HeadRow) -> KnownCheckpoint | None:
        """Return the checkpoint of the session at the revision of this head, if it is known."""
        known = self._checkpoints.get(session_id)
        return known[2] if known is not None and known[:2] == (head.session_key, head.revision) else None

    def forget(self, session_id: str) -> None:
        self._heads.pop(session_id, None)
        self._checkpoints.pop(session_id, None)

    def clear(self) -> None:
        self._heads.clear()
        self._checkpoints.clear()


class ProcessCache:
    """The rows of the most recently used processes, by process id."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._rows: OrderedDict[str, ProcessRow] = OrderedDict()
        self._append_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def get(self, process_id: str) -> ProcessRow | None:
        row = self._rows.get(process_id)
        if row is not None:
            self._rows.move_to_end(process_id)
        return row

    def remember(self, row: ProcessRow) -> None:
        """Keep the row, unless a newer one of its process is known."""
        known = self._rows.get(row.process_id)
        if known is None or _age(known) <= _age(row):
            self._rows[row.process_id] = row
        self._rows.move_to_end(row.process_id)
        if len(self._rows) > self._capacity:
            self._rows.popitem(last=False)

    def remember_all(self, rows: Iterable[ProcessRow]) -> None:
        for row in rows:
            self.remember(row)

    def forget(self, process_id: str) -> None:
        self._rows.pop(process_id, None)

    def clear(self) -> None:
        self._rows.clear()

    def append_lock(self, process_id: str) -> asyncio.Lock:
        """Return the lock that lets one append of this storage to a process run at a time.

        Of several at once only one can pass the guard on the server. Correctness does not depend on the lock.
        """
        lock = self._append_locks.get(process_id)
        if lock is None:
            lock = self._append_locks[process_id] = asyncio.Lock()
        return lock


def _age(row: ProcessRow) -> tuple[int, int]:
    return (row.process_key, row.last_sequence)
