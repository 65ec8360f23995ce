"""The contract of schedules: cron ticks that become occurrences, each exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.trigger.schedule import Fired, RegisteredSchedule, Schedule, ScheduleDraft, SchedulePage
from lash.model.trigger.trigger import TriggerOwner

if TYPE_CHECKING:
    from lash.plan.trigger.schedule import DueRow, ScheduleChange, ScheduleRow, Target, TickPlan


class ScheduleStore(Protocol):
    """Cron as a source of occurrences.

    A schedule is identified by its owner and key. Each of its ticks becomes one occurrence of type ``cron`` under the
    schedule's source key, with the time of the tick as its idempotency key. It starts a process for every subscription
    to that source. Workers call `fire_due`; a schedule does nothing without a worker.
    """

    async def register(self, draft: ScheduleDraft) -> RegisteredSchedule:
        """Create a schedule, whose first tick is the next one after now.

        Idempotent: a repetition returns the current schedule. Another definition under the same owner and key raises
        ScheduleConflict. SessionNotFound or SessionDeleted mean that the owner is a session that does not exist. A
        cron expression that cannot be parsed or never ticks, and an unknown time zone, raise InvalidInput.
        """
        ...

    async def update(self, draft: ScheduleDraft, *, revision: int) -> Schedule:
        """Replace the definition of a schedule; its next tick is the next one after now.

        Raises ScheduleConflict unless the schedule is at this revision. An equal definition changes nothing.
        """
        ...

    async def enable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        """Enable a schedule from now on; ticks during the time in which it was disabled are not emitted."""
        ...

    async def disable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        """Disable a schedule; ticks that are due and not yet emitted are dropped."""
        ...

    async def delete(self, owner: TriggerOwner, key: str, *, revision: int) -> None:
        """Remove a schedule. Its owner and key can be used again; revisions continue from the last one."""
        ...

    async def delete_session(self, session_id: str) -> int:
        """Remove all schedules of a session and return their number.

        Deleting the session does the same, in its own transaction.
        """
        ...

    async def prune_deleted(self, *, before_ms: int, limit: int = 100) -> int:
        """Remove the oldest tombstones from before a moment, at most ``limit``, and return how many were removed.

        A later schedule of such an owner and key starts again at revision 1.
        """
        ...

    async def get(self, owner: TriggerOwner, key: str) -> Schedule | None:
        """Return a schedule, or None."""
        ...

    async def list(
        self,
        owner: TriggerOwner | None = None,
        *,
        enabled: bool | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SchedulePage:
        """Return a page of schedules, of one owner or of all, ordered by owner (the host first) and key."""
        ...

    async def next_fire_at_ms(self) -> int | None:
        """Return the moment at which `fire_due` has work again, or None if no schedule will tick."""
        ...

    async def fire_due(self, *, limit: int = 100) -> tuple[Fired, ...]:
        """Emit the due ticks of at most ``limit`` schedules, longest due first.

        Any number of workers may call it concurrently: one of them emits each tick, in one transaction with its
        deliveries, their processes and the schedule's next tick. A crash neither loses nor repeats a tick. One call
        emits at most 100 ticks of a schedule; the rest are due at once. A schedule that this machine cannot read is
        reported and does not stop the others.
        """
        ...


class ScheduleRows(Protocol):
    """The rows of schedules in one database; `lash.backend.trigger.schedule.Schedules` makes the store of them."""

    async def change(
        self, target: Target, decide: Callable[[ScheduleRow | None, int], ScheduleChange | None]
    ) -> tuple[ScheduleRow, bool]:
        """Decide on the row and the time, and write; return the row and whether it was changed.

        Raises SessionNotFound or SessionDeleted if a session that must exist does not.
        """
        ...

    async def row(self, target: Target) -> ScheduleRow | None: ...

    async def page(self, owner: str | None, enabled: bool | None, after: Target, limit: int) -> list[ScheduleRow]:  # noqa: FBT001 (a filter, not a switch)
        """Return schedules after a name, ordered by owner and key; those of one owner unless it is None."""
        ...

    async def next_fire_ms(self) -> int | None: ...

    async def due(self, limit: int) -> list[DueRow]: ...

    async def fire_each(
        self, due: Sequence[DueRow], fire: Callable[[DueRow], Awaitable[Fired | None]]
    ) -> Sequence[Fired | None]:
        """Call ``fire`` for every schedule and return the results in order.

        SQLite fires them concurrently, so that they share one commit. PostgreSQL fires one after the other.
        """
        ...

    async def fire(self, due: DueRow, decide: Callable[[ScheduleRow, int], TickPlan | None]) -> Fired | None:
        """Decide on a schedule that is still due, and emit its ticks, in one transaction; None if nothing is due."""
        ...

    async def postpone(self, due: DueRow, delay_ms: int) -> int | None:
        """Move a schedule that is still due into the future; return until when, or None if it is no longer due."""
        ...

    async def delete_session(self, session_id: str) -> int: ...

    async def prune(self, before_ms: int, limit: int) -> int: ...
