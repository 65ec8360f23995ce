"""The processes that this storage has seen, so that an append need not ask before it writes.

A process row of one number of events and one wake target never changes, and every append is guarded by both. A row that
is out of date therefore costs a second round trip and never correctness.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

from lash.plan.process.process import ProcessRow

CAPACITY: Final = 4_096


class SeenProcesses:
    """The last rows seen, by process id; the least recently used are forgotten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._rows: OrderedDict[str, ProcessRow] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

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

    def turn(self, process_id: str) -> asyncio.Lock:
        """Return the lock under which the appends of this storage to one process take turns.

        Only one of several at a time can win on the server. Correctness does not depend on it.
        """
        lock = self._turns.get(process_id)
        if lock is None:
            lock = self._turns[process_id] = asyncio.Lock()
        return lock


def _age(row: ProcessRow) -> tuple[int, int]:
    return (row.process_key, row.last_sequence)
