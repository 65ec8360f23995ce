"""The contract of process events, their wakes, and the feed of changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.lease import LeaseFence
from lash.model.process.event import Appended, EventDraft, EventPage, ProcessEvent, WakeRecord
from lash.model.process.process import ChangePage
from lash.model.value import JSON

if TYPE_CHECKING:
    from lash.plan.process.append import AppendRequest, AppendResult
    from lash.plan.process.change import ChangeCursor, ChangeRow, EventTailRow, FeedState
    from lash.plan.process.event import EventRow, SequenceRow
    from lash.plan.process.wake import LostWakeRow, WakeRow


class EventStore(Protocol):
    """The logs of all processes. Event numbers start at 1 and have no gaps.

    Methods that name a process raise ProcessNotFound or ProcessPruned if it does not exist.
    """

    async def append(self, process_id: str, draft: EventDraft, *, fence: LeaseFence | None = None) -> Appended:
        """Append an event and write what it means, in one transaction: the record, the end of the process, the wake.

        A known replay key returns the first event and writes nothing; other content under it raises EventConflict. An
        undeclared type, a payload that does not match its schema and a selector that finds nothing raise InvalidInput.
        A second end raises ProcessTerminal; other events can follow the end.

        A wake is put into the queue of its session in the same transaction. If the session does not exist, the wake is
        stored as undeliverable.

        Pass a ``fence`` to append to a process that the caller runs. It must be live; otherwise LeaseLost is raised and
        nothing is written, even if the replay key is known.
        """
        ...

    async def signal(self, process_id: str, name: str, *, signal_id: str, payload: JSON = None) -> Appended:
        """Append the event of a signal. The k-th wait for a name gets the k-th signal of that name; none is lost.

        The same ``signal_id`` is one signal.
        """
        ...

    async def signal_at(self, process_id: str, name: str, ordinal: int) -> ProcessEvent | None:
        """Return the ``ordinal``-th signal of this name, counted from 1; None if the log does not have it yet."""
        ...

    async def after(
        self, process_id: str, sequence: int = 0, *, event_type: str | None = None, limit: int = 1_000
    ) -> tuple[ProcessEvent, ...]:
        """Return at most ``limit`` events after a number, in order, of one type or of all.

        A page with fewer than ``limit`` is the last; the next one follows the ``sequence`` of its last event.
        """
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
        """Return the open wakes after a number: neither acknowledged nor merged into an earlier one."""
        ...

    async def acknowledge_wake(self, process_id: str, sequence: int) -> bool:
        """Acknowledge a wake by hand, for hosts that do not use the queue; return whether it was open."""
        ...

    async def undeliverable_wakes(self, *, limit: int = 100, after: WakeRecord | None = None) -> tuple[WakeRecord, ...]:
        """Return at most ``limit`` wakes whose session did not exist or was deleted before it could get them.

        They are ordered by process and number. ``after`` is the last wake of the previous page. A page with fewer than
        ``limit`` is the last.
        """
        ...

    async def tail(self, cursor: str | None = None, *, limit: int = 100) -> EventPage:
        """Return the events of all processes after a cursor; a reader that keeps the cursor gets each exactly once.

        Events of pruned processes are left out. The cursor is that of ``changes``: either method resumes the other, and
        both report the same gaps.
        """
        ...

    async def changes(self, cursor: str | None = None, *, limit: int = 100) -> ChangePage:
        """Return the changes of all processes after a cursor; a reader that keeps the cursor gets each exactly once.

        If changes after the cursor were pruned, or the cursor is from another epoch of the feed, the page has the
        reason as its gap. A cursor of another epoch continues at the end of the feed.

        The changes of one writer come in its order. Changes of one process by concurrent writers can come in another
        order on PostgreSQL; ``sequence`` is the order of the log.
        """
        ...


class EventRows(Protocol):
    """The rows of process events in one database; `lash.backend.process.event.Events` makes an `EventStore` of them.

    Methods that name a process raise ProcessNotFound or ProcessPruned if it does not exist.
    """

    async def append(self, request: AppendRequest) -> AppendResult:
        """Read the facts, decide, and write the event with everything that it means, all atomically.

        PostgreSQL decides on the cached row of the process first, without a read. The guard of its statement refuses
        the write if the row was stale or a condition does not hold; the facts are then read and decide.
        """
        ...

    async def nth_of_type(self, process_id: str, event_type: str, skip: int) -> EventRow | None:
        """Return the event of a type that ``skip`` others of the type precede."""
        ...

    async def after(self, process_id: str, sequence: int, event_type: str | None, limit: int) -> list[EventRow]: ...

    async def recent(self, process_id: str, limit: int) -> list[EventRow]:
        """Return the last events, the newest first."""
        ...

    async def count_through(self, process_id: str, event_type: str, sequence: int) -> int: ...

    async def last_sequences(self, process_ids: Collection[str]) -> list[SequenceRow]: ...

    async def open_wakes(self, process_id: str, sequence: int) -> list[WakeRow]: ...

    async def acknowledge_wake(self, process_id: str, sequence: int) -> bool: ...

    async def undeliverable_wakes(self, limit: int, after: tuple[str, int]) -> list[LostWakeRow]: ...

    async def tail(self, after: ChangeCursor, limit: int) -> tuple[Sequence[EventTailRow], FeedState]: ...

    async def changes(self, after: ChangeCursor, limit: int) -> tuple[Sequence[ChangeRow], FeedState]: ...

    async def feed_end(self) -> ChangeCursor:
        """Return the position after which all later changes are."""
        ...
