"""The contract of work from time: waits that end, and schedules that tick."""

from __future__ import annotations

from lash.model.process.process import Success
from lash.model.trigger.schedule import ScheduleDraft
from lash.testing.harness import Harness
from tests.contract.work_state import looked, opened_with_process, park, parked, ready, run
from tests.factories.wait import OPERATION, PROCESS, YES, key_of

MINUTE = 60_000


class TestTimer:
    """Waits and schedules as a worker sees them."""

    async def test_the_resolution_of_a_wait_wakes_its_process(self, harness: Harness) -> None:
        """Resolving the wait of a parked process makes it ready at once; a second resolution does not count."""
        storage = await opened_with_process(harness)
        key = await key_of(storage, scope=PROCESS)
        await parked(storage)
        assert await ready(storage) == []
        await storage.waits.resolve(key, YES)
        await storage.waits.resolve(key, YES)
        assert await ready(storage) == ["p"]
        assert (await run(storage)).wake_seq == 1

    async def test_a_resolution_before_parking_is_not_lost(self, harness: Harness) -> None:
        """A wait resolved between a run's read and its parking leaves the process ready."""
        storage = await opened_with_process(harness)
        key = await key_of(storage, scope=PROCESS)
        acquired = await run(storage)
        await storage.waits.resolve(key, YES)
        assert await park(storage, acquired) is False
        assert await ready(storage) == ["p"]

    async def test_a_wait_of_somebody_else_wakes_no_process(self, harness: Harness) -> None:
        """Waits of sessions and operations wake no process."""
        storage = await opened_with_process(harness)
        await parked(storage)
        await storage.waits.resolve(await key_of(storage, scope=OPERATION), YES)
        assert await ready(storage) == []

    async def test_a_deadline_is_a_timer_and_wakes(self, harness: Harness) -> None:
        """A poll returns the deadline of a wait, then that it is due; expiring it wakes the process."""
        storage = await opened_with_process(harness)
        opened = await storage.waits.open(await key_of(storage, scope=PROCESS), timeout_ms=MINUTE)
        await parked(storage)
        before = await looked(storage)
        assert (before.timers_due, before.next_at_ms) == (False, opened.deadline_ms)
        await harness.clock.advance(MINUTE)
        assert (await looked(storage)).timers_due
        assert await storage.waits.expire() == 1
        after = await looked(storage)
        assert (after.timers_due, after.process_ids) == (False, ("p",))

    async def test_a_schedule_is_a_timer(self, harness: Harness) -> None:
        """A poll returns the tick of a schedule, then that it is due, and after firing the next tick."""
        storage = await opened_with_process(harness)
        made = await storage.schedules.register(ScheduleDraft(key="each minute", cron="* * * * *"))
        assert (await looked(storage)).next_at_ms == made.schedule.next_fire_ms
        await harness.clock.advance(MINUTE)
        assert (await looked(storage)).timers_due
        await storage.schedules.fire_due()
        after = await looked(storage)
        assert not after.timers_due
        assert after.next_at_ms == (made.schedule.next_fire_ms or 0) + MINUTE

    async def test_a_resolution_wakes_nothing_that_ended(self, harness: Harness) -> None:
        """A resolution does not put an ended process back on the list."""
        storage = await opened_with_process(harness)
        key = await key_of(storage, scope=PROCESS)
        await storage.processes.complete("p", Success())
        await storage.waits.resolve(key, YES)
        assert await ready(storage) == []
