"""Timers: expires waits, fires schedules, passes places of limits on, and wakes parked turns when some are due."""

from __future__ import annotations

from typing import Final

from lash.base.backoff import backoff
from lash.errors import LashError, StorageClosed
from lash.model.work import WorkList
from lash.runtime.worker.state import WorkerState

_FIRST_PAUSE_S: Final = 0.1
"""The first pause after timers failed to fire; they are due, so polling at once would only repeat the failure."""
_MISSED_PAUSE_S: Final = 0.02
"""The first pause after timers were due and none fired, because another worker holds them."""


class Timers:
    """Everything that becomes due by the clock of the storage."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._failures = 0
        self._missed = 0

    async def fire(self, work: WorkList) -> int:
        """Fire what is due, and return how much that was."""
        if not work.timers_due:
            return 0
        storage = self._state.core.storage
        fired = await storage.waits.expire() + len(await storage.schedules.fire_due())
        return fired + await storage.limits.pass_on()

    async def wake(self, work: WorkList) -> int:
        """Make parked turns ready that have a reason to continue, and return how many."""
        return len(await self._state.core.storage.work.wake()) if work.wakes_due else 0

    async def try_wake(self, work: WorkList) -> None:
        """Make parked turns ready; an error is noted, and the next poll tries again."""
        try:
            await self.wake(work)
        except StorageClosed:
            raise
        except LashError as error:
            self._state.note_trouble(error)

    async def try_fire(self, work: WorkList) -> None:
        """Fire what is due; an error is noted, since it must not hold up unrelated work."""
        try:
            fired = await self.fire(work)
            self._failures = 0
            self._missed = self._missed + 1 if work.timers_due and not fired else 0
        except StorageClosed:
            raise
        except LashError as error:
            self._state.note_trouble(error)
            self._failures += 1

    def pause_s(self, seconds: float) -> float:
        """Return when to poll for a timer that is due in so many seconds: later, if timers keep failing."""
        poll_s = self._state.core.options.poll_s
        if not self._failures:
            missed_s = backoff(self._missed - 1, first_s=_MISSED_PAUSE_S, longest_s=poll_s) if self._missed else 0.0
            return max(missed_s, seconds)
        longest_s = 10 * poll_s
        return max(backoff(self._failures - 1, first_s=_FIRST_PAUSE_S, longest_s=longest_s), seconds)
