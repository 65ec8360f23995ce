"""The contract of schedules: ticks of a clock that become occurrences, each once."""

from __future__ import annotations

from typing import Protocol

from lash.model.trigger.schedule import Fired, RegisteredSchedule, Schedule, ScheduleDraft, SchedulePage
from lash.model.trigger.trigger import TriggerOwner


class ScheduleStore(Protocol):
    """Cron as a source of occurrences.

    A schedule is known by its owner and key. Each of its ticks becomes one occurrence of type ``cron`` under the
    schedule's source key, with the time of the tick as its idempotency key; whoever subscribed to that source gets a
    process for it. Nothing ticks by itself: workers call `fire_due`.
    """

    async def register(self, draft: ScheduleDraft) -> RegisteredSchedule:
        """Make a schedule, whose first tick is the next one after now.

        Doing it again returns the schedule as it stands by then; another definition under the same owner and key
        raises ScheduleConflict. SessionNotFound or SessionDeleted say that the owner is a session that is not there. A
        line that cannot be read or never ticks, and an unknown time zone, are InvalidInput.
        """
        ...

    async def update(self, draft: ScheduleDraft, *, revision: int) -> Schedule:
        """Give a schedule another definition; its next tick is the next one after now.

        Another revision than the schedule has raises ScheduleConflict. The same definition changes nothing.
        """
        ...

    async def enable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        """Let a schedule tick again, from now on: what it missed while it was disabled is not made up for."""
        ...

    async def disable(self, owner: TriggerOwner, key: str, *, revision: int) -> Schedule:
        """Let a schedule tick no more; what was due and not emitted yet is dropped."""
        ...

    async def delete(self, owner: TriggerOwner, key: str, *, revision: int) -> None:
        """Remove a schedule. Its owner and key can be used again, and revisions go on from where they were."""
        ...

    async def delete_session(self, session_id: str) -> int:
        """Remove all schedules of a session, and return how many there were.

        Deleting the session does the same, in its own transaction.
        """
        ...

    async def prune_deleted(self, *, before_ms: int, limit: int = 100) -> int:
        """Forget the oldest deletions from before a moment, at most ``limit``, and return how many were forgotten.

        From then on a schedule of such an owner and key starts again at revision 1.
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
        """Return schedules by owner, the host first, and key; of one owner if asked."""
        ...

    async def next_fire_at_ms(self) -> int | None:
        """Return the moment from which `fire_due` has something to do, None if there is no schedule to wait for."""
        ...

    async def fire_due(self, *, limit: int = 100) -> tuple[Fired, ...]:
        """Emit the ticks that are due, of at most ``limit`` schedules, those that are due longest first.

        Any number of workers may call it at the same time: each tick is emitted by one of them, in one transaction
        with its deliveries and their processes and with the schedule's next tick. A crash loses no tick and repeats
        none. At most 100 ticks of one schedule are emitted by one call; the rest is due at once. A schedule that
        this machine cannot read does not keep others from being fired.
        """
        ...
