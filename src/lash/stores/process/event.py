"""The contract of process events, their wakes, and the feed of changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from lash.model.lease import LeaseFence
from lash.model.process.event import Appended, EventDraft, EventPage, ProcessEvent, WakeRecord
from lash.model.process.process import ChangePage
from lash.model.value import JSON


class EventStore(Protocol):
    """The logs of all processes. Numbers begin at 1 and leave no gap.

    Methods that name a process raise ProcessNotFound or ProcessPruned where there is none.
    """

    async def append(self, process_id: str, draft: EventDraft, *, fence: LeaseFence | None = None) -> Appended:
        """Append an event with all that it means, in one transaction: the record, the end of the process, the wake.

        A known replay key returns the first event and writes nothing; other content under it raises EventConflict. An
        undeclared type, a payload that does not fit and a selector that finds nothing raise InvalidInput. A second end
        raises ProcessTerminal; other events may follow the end.

        A wake is put into the queue of its session in the same transaction. Without a session it is kept as
        undeliverable.

        A ``fence`` is for those who append to a process that they run: it must be live, else LeaseLost, and
        nothing is written, whatever is known under the replay key.
        """
        ...

    async def signal(self, process_id: str, name: str, *, signal_id: str, payload: JSON = None) -> Appended:
        """Append the event of a signal. The k-th wait for a name gets the k-th of its signals; none is lost."""
        ...

    async def signal_at(self, process_id: str, name: str, ordinal: int) -> ProcessEvent | None:
        """Return the signal of this name and number (from 1), if it is in the log."""
        ...

    async def after(
        self, process_id: str, sequence: int = 0, *, event_type: str | None = None, limit: int = 1_000
    ) -> tuple[ProcessEvent, ...]:
        """Return the events behind a number, in order, of one type or of all."""
        ...

    async def recent(self, process_id: str, count: int) -> tuple[ProcessEvent, ...]:
        """Return the last events, in order."""
        ...

    async def count_through(self, process_id: str, event_type: str, sequence: int) -> int:
        """Return how many events of a type there are up to and including a number."""
        ...

    async def last_sequences(self, process_ids: Collection[str]) -> dict[str, int]:
        """Return the number of the last event of each process, 0 for an empty log, in one query for all.

        A process that does not exist has no entry.
        """
        ...

    async def wakes_after(self, process_id: str, sequence: int = 0) -> tuple[WakeRecord, ...]:
        """Return the open wakes behind a number: neither acknowledged nor merged into an earlier one."""
        ...

    async def acknowledge_wake(self, process_id: str, sequence: int) -> bool:
        """Acknowledge a wake by hand, for hosts that do not use the queue; return whether it was open."""
        ...

    async def undeliverable_wakes(self, *, limit: int = 100) -> tuple[WakeRecord, ...]:
        """Return wakes whose session was not there to get them."""
        ...

    async def tail(self, cursor: str | None = None, *, limit: int = 100) -> EventPage:
        """Return the events of all processes behind a cursor, each exactly once for whoever keeps the cursor.

        Events of pruned processes are left out. The cursor is that of ``changes``: either goes on where the other was.
        """
        ...

    async def changes(self, cursor: str | None = None, *, limit: int = 100) -> ChangePage:
        """Return the changes of all processes behind a cursor, each exactly once for whoever keeps the cursor.

        What one writer does comes in its order. Writers that race on one process may pass each other in the feed on
        PostgreSQL; ``sequence`` tells the order of the log.
        """
        ...
