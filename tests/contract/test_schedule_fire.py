"""Laws of firing: each tick is one occurrence and one process for each subscription."""

from __future__ import annotations

import asyncio

import pytest

from lash.model.process.process import HOST, EngineInput, Success
from lash.model.trigger.schedule import CatchUp
from lash.model.trigger.trigger import DeliveryState, OccurrenceRequest
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.schedule_state import (
    HOUR,
    MINUTE,
    at,
    emitted,
    iso,
    made,
    move,
    of_session,
    opened,
    runs,
    schedule,
    subscribe,
)

NOON = "2026-06-01T12:00:00Z"


async def _fire_all(storage: Storage) -> list[str]:
    """Fire until nothing is due, and return the ticks."""
    found: list[str] = []
    while reports := await storage.schedules.fire_due():
        found += emitted(reports)
    return found


class TestScheduleFire:
    """Laws of ticks."""

    async def test_a_tick_starts_a_process_for_each_subscription(self, harness: Harness) -> None:
        """The occurrence has type cron and the time of the tick as its key; processes get the payload."""
        storage = await opened(harness)
        new = await made(storage, schedule(payload={"city": "Bonn"}))
        for key in ("a", "b"):
            await subscribe(storage, new.source_key, key)
        await subscribe(storage, "another source", "c")
        await move(harness, NOON)
        [fired] = await storage.schedules.fire_due()
        [tick] = fired.ticks
        assert (fired.schedule_id, fired.owner_session_id, fired.key, fired.problem) == (
            new.schedule_id,
            None,
            "k",
            None,
        )
        assert (tick.tick_ms, fired.next_fire_ms) == (at(NOON), at(NOON) + HOUR)
        assert tick.report is not None
        assert [each.key for each in tick.report.deliveries] == ["a", "b"]
        assert await runs(storage) == [NOON, NOON]
        occurrence = await storage.occurrences.get(tick.report.occurrence_id)
        assert occurrence is not None
        assert (occurrence.source_type, occurrence.source_key) == ("cron", new.source_key)
        assert occurrence.idempotency_key == NOON
        assert occurrence.payload == {"city": "Bonn", "scheduled_at": NOON}
        assert occurrence.occurred_at_ms == at(NOON)

    async def test_nothing_is_fired_before_its_time(self, harness: Harness) -> None:
        """A tick is due from its exact millisecond on, and not after it was fired."""
        storage = await opened(harness)
        new = await made(storage, schedule())
        await harness.clock.advance(HOUR // 2 - 1)
        assert await storage.schedules.fire_due() == ()
        assert await storage.schedules.get(HOST, "k") == new
        await harness.clock.advance(1)
        assert emitted(await storage.schedules.fire_due()) == ["2026-06-01T12:00Z"]
        assert await storage.schedules.fire_due() == ()

    async def test_firing_moves_the_schedule_and_no_revision(self, harness: Harness) -> None:
        """Firing updates the last and next tick and keeps the revision, so that changes still succeed."""
        storage = await opened(harness)
        await made(storage, schedule())
        await move(harness, NOON)
        await storage.schedules.fire_due()
        after = await storage.schedules.get(HOST, "k")
        assert after is not None
        assert (after.last_tick_ms, after.next_tick_ms, after.next_fire_ms) == (
            at(NOON),
            at(NOON) + HOUR,
            at(NOON) + HOUR,
        )
        assert after.revision == 1
        assert await storage.schedules.next_fire_at_ms() == at(NOON) + HOUR
        assert (await storage.schedules.disable(HOST, "k", revision=1)).revision == 2

    async def test_many_workers_emit_each_tick_once(self, harness: Harness) -> None:
        """Storages that fire concurrently emit each tick once and start each process once."""
        storage = await opened(harness)
        keys = [f"k{number}" for number in range(6)]
        for key in keys:
            new = await made(storage, schedule(key, catch_up=CatchUp.ALL))
            await subscribe(storage, new.source_key, key)
        storages = [storage, *[await harness.open() for _ in range(3)]]
        for hour in (12, 13, 14):
            await move(harness, f"2026-06-01T{hour}:00:00Z")
            answers = await asyncio.gather(*(each.schedules.fire_due() for each in storages * 2))
            reports = [report for answer in answers for report in answer]
            assert sorted(report.key for report in reports) == keys
            assert set(emitted(tuple(reports))) == {f"2026-06-01T{hour}:00Z"}
        assert await runs(storage) == sorted([f"2026-06-01T{hour}:00:00Z" for hour in (12, 13, 14)] * 6)

    async def test_what_was_due_is_fired_after_reopening(self, harness: Harness) -> None:
        """A storage opened later emits the due ticks, and none twice."""
        storage = await opened(harness)
        await subscribe(storage, (await made(storage, schedule(catch_up=CatchUp.ALL))).source_key)
        await move(harness, NOON)
        assert await _fire_all(storage) == ["2026-06-01T12:00Z"]
        await harness.clock.advance(2 * HOUR)
        storage = await harness.reopen()
        assert await _fire_all(storage) == ["2026-06-01T13:00Z", "2026-06-01T14:00Z"]
        storage = await harness.reopen()
        assert await storage.schedules.fire_due() == ()
        assert await runs(storage) == [f"2026-06-01T{hour}:00:00Z" for hour in (12, 13, 14)]

    async def test_a_long_pause_under_skip(self, harness: Harness) -> None:
        """Ticks later than the grace period are dropped, and the schedule continues."""
        storage = await opened(harness)
        await subscribe(storage, (await made(storage, schedule(catch_up=CatchUp.SKIP))).source_key)
        await move(harness, "2026-08-01T09:01:01Z")
        [fired] = await storage.schedules.fire_due()
        assert (fired.ticks, fired.next_fire_ms) == ((), at("2026-08-01T10:00:00Z"))
        await move(harness, "2026-08-11T10:01:00Z")
        assert emitted(await storage.schedules.fire_due()) == ["2026-08-11T10:00Z"]
        assert await runs(storage) == ["2026-08-11T10:00:00Z"]

    async def test_a_long_pause_under_last(self, harness: Harness) -> None:
        """Only the newest missed tick is emitted, however late."""
        storage = await opened(harness)
        await subscribe(storage, (await made(storage, schedule(catch_up=CatchUp.LAST))).source_key)
        await move(harness, "2026-08-01T09:59:59Z")
        assert await _fire_all(storage) == ["2026-08-01T09:00Z"]
        assert await runs(storage) == ["2026-08-01T09:00:00Z"]
        assert await storage.schedules.next_fire_at_ms() == at("2026-08-01T10:00:00Z")

    async def test_a_long_pause_under_all(self, harness: Harness) -> None:
        """Every missed tick is emitted, in order, at most 100 a call; the rest are due at once."""
        storage = await opened(harness)
        await made(storage, schedule(cron="*/15 * * * *", catch_up=CatchUp.ALL))
        first = at("2026-06-01T11:45:00Z")
        await harness.clock.advance(15 * MINUTE * 230 + 1)
        calls = [emitted(await storage.schedules.fire_due()) for _ in range(4)]
        assert [len(each) for each in calls] == [100, 100, 30, 0]
        ticks = [tick for call in calls for tick in call]
        assert ticks == [iso(first + number * 15 * MINUTE) for number in range(230)]

    async def test_a_backlog_keeps_no_other_waiting(self, harness: Harness) -> None:
        """A schedule with many missed ticks is fired once a call, like the others."""
        storage = await opened(harness)
        await made(storage, schedule("behind", "* * * * *", catch_up=CatchUp.ALL))
        await harness.clock.advance(10 * HOUR)
        await made(storage, schedule("new", "*/5 * * * *"))
        await harness.clock.advance(5 * MINUTE)
        reports = await storage.schedules.fire_due(limit=2)
        assert [(report.key, len(report.ticks)) for report in reports] == [("behind", 100), ("new", 1)]

    async def test_the_longest_due_come_first(self, harness: Harness) -> None:
        """A limit selects the schedules that are longest due; the rest stay due."""
        storage = await opened(harness)
        for minute in (50, 40, 35, 45):
            await made(storage, schedule(f"at{minute}", f"{minute} * * * *"))
        await move(harness, "2026-06-01T11:59:00Z")
        keys = [[report.key for report in await storage.schedules.fire_due(limit=3)] for _ in range(3)]
        assert [sorted(each) for each in keys] == [["at35", "at40", "at45"], ["at50"], []]

    async def test_jitter(self, harness: Harness) -> None:
        """A tick is due after its jitter, the same on all storages; the occurrence has the tick's own time."""
        storage = await opened(harness)
        moments: set[int] = set()
        for number in range(12):
            new = await made(storage, schedule(f"k{number}", "0 12 * * *", jitter_ms=HOUR))
            assert new.next_fire_ms is not None
            assert at(NOON) <= new.next_fire_ms <= at(NOON) + HOUR
            assert await (await harness.open()).schedules.get(HOST, new.key) == new
            moments.add(new.next_fire_ms)
        assert len(moments) == 12
        for moment in sorted(moments):
            await harness.clock.advance(moment - 1 - harness.clock.now_ms())
            assert await storage.schedules.fire_due() == ()
            await harness.clock.advance(1)
            assert emitted(await storage.schedules.fire_due()) == ["2026-06-01T12:00Z"]

    async def test_a_clock_that_goes_back_repeats_nothing(self, harness: Harness) -> None:
        """An emitted tick is never emitted again, despite a clock set back, changes and re-registration."""
        storage = await opened(harness)
        await subscribe(storage, (await made(storage, schedule())).source_key)
        await move(harness, NOON)
        assert await _fire_all(storage) == ["2026-06-01T12:00Z"]
        await move(harness, "2026-06-01T11:30:00Z")
        await storage.schedules.update(schedule(payload={"new": 1}), revision=1)
        await storage.schedules.disable(HOST, "k", revision=2)
        await storage.schedules.enable(HOST, "k", revision=3)
        await storage.schedules.delete(HOST, "k", revision=4)
        assert (await made(storage, schedule(payload={"new": 2}))).next_tick_ms == at("2026-06-01T13:00:00Z")
        await move(harness, "2026-06-01T12:30:00Z")
        assert await _fire_all(storage) == []
        await move(harness, "2026-06-01T13:00:00Z")
        assert await _fire_all(storage) == ["2026-06-01T13:00Z"]
        assert await runs(storage) == [NOON, "2026-06-01T13:00:00Z"]

    async def test_what_is_disabled_is_missed(self, harness: Harness) -> None:
        """Ticks of a disabled schedule are never emitted later, under any policy; a deleted one never ticks."""
        storage = await opened(harness)
        for policy in CatchUp:
            await made(storage, schedule(policy.value, catch_up=policy))
            await storage.schedules.disable(HOST, policy.value, revision=1)
        await made(storage, schedule("deleted", catch_up=CatchUp.ALL))
        await move(harness, NOON)
        await storage.schedules.delete(HOST, "deleted", revision=1)
        await move(harness, "2026-06-01T16:30:00Z")
        assert await storage.schedules.fire_due() == ()
        for policy in CatchUp:
            await storage.schedules.enable(HOST, policy.value, revision=2)
        assert await storage.schedules.fire_due() == ()
        await move(harness, "2026-06-01T17:00:00Z")
        assert emitted(await storage.schedules.fire_due()) == ["2026-06-01T17:00Z"] * 3

    async def test_an_update_drops_what_was_due(self, harness: Harness) -> None:
        """A new cron expression ticks from now on."""
        storage = await opened(harness)
        await made(storage, schedule(catch_up=CatchUp.ALL))
        await move(harness, "2026-06-01T15:30:00Z")
        await storage.schedules.update(schedule(cron="45 * * * *", catch_up=CatchUp.ALL), revision=1)
        assert await storage.schedules.fire_due() == ()
        await move(harness, "2026-06-01T15:45:00Z")
        assert emitted(await storage.schedules.fire_due()) == ["2026-06-01T15:45Z"]

    @pytest.mark.parametrize(
        ("zone", "start", "end", "expected"),
        [
            # The hour from 02:00 does not exist on 2026-03-29 in Berlin.
            (
                *("Europe/Berlin", "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z"),
                ["2026-03-28T01:30Z", "2026-03-29T01:00Z", "2026-03-30T00:30Z"],
            ),
            # It comes twice on 2026-10-25.
            (
                *("Europe/Berlin", "2026-10-23T12:00:00Z", "2026-10-26T12:00:00Z"),
                ["2026-10-24T00:30Z", "2026-10-25T00:30Z", "2026-10-26T01:30Z"],
            ),
            (
                *("America/New_York", "2026-03-07T00:00:00Z", "2026-03-09T12:00:00Z"),
                ["2026-03-07T07:30Z", "2026-03-08T07:00Z", "2026-03-09T06:30Z"],
            ),
        ],
    )
    async def test_clocks_that_change(
        self, harness: Harness, zone: str, start: str, end: str, expected: list[str]
    ) -> None:
        """A daily tick comes once a day: at the end of a daylight saving gap, and in the first of two equal hours."""
        storage = await opened(harness, start)
        await made(storage, schedule("k", "30 2 * * *", time_zone=zone, catch_up=CatchUp.SKIP))
        ticks: list[str] = []
        while harness.clock.now_ms() < at(end):
            ticks += emitted(await storage.schedules.fire_due())
            await harness.clock.advance(30 * MINUTE)
        assert ticks == expected

    async def test_clocks_that_change_while_nobody_looks(self, harness: Harness) -> None:
        """Missed ticks that are emitted later are the ones that would have been emitted in time."""
        storage = await opened(harness, "2026-10-23T12:00:00Z")
        await made(storage, schedule("k", "30 2 * * *", time_zone="Europe/Berlin", catch_up=CatchUp.ALL))
        await move(harness, "2026-10-26T12:00:00Z")
        assert await _fire_all(storage) == ["2026-10-24T00:30Z", "2026-10-25T00:30Z", "2026-10-26T01:30Z"]

    async def test_a_leap_day(self, harness: Harness) -> None:
        """A schedule of 29 February ticks in leap years."""
        storage = await opened(harness)
        new = await made(storage, schedule(cron="0 0 29 2 *"))
        assert new.next_tick_ms == at("2028-02-29T00:00:00Z")
        await move(harness, "2028-02-29T00:00:00Z")
        assert emitted(await storage.schedules.fire_due()) == ["2028-02-29T00:00Z"]
        assert await storage.schedules.next_fire_at_ms() == at("2032-02-29T00:00:00Z")

    async def test_a_tick_that_somebody_emitted_before(self, harness: Harness) -> None:
        """An equal occurrence at the moment counts as the tick; another one takes its place. Ticks continue."""
        storage = await opened(harness)
        await subscribe(storage, (await made(storage, schedule(source_key="shared"))).source_key)
        for hour, city in ((12, None), (13, "Bonn")):
            moment = f"2026-06-01T{hour}:00:00Z"
            payload = {"scheduled_at": moment} if city is None else {"scheduled_at": moment, "city": city}
            request = OccurrenceRequest(
                source_type="cron", source_key="shared", idempotency_key=moment, payload=payload
            )
            report = await storage.occurrences.emit(request)
            await move(harness, moment)
            [fired] = await storage.schedules.fire_due()
            assert [tick.report for tick in fired.ticks] == [report if city is None else None]
            assert fired.next_fire_ms == at(moment) + HOUR
        assert await runs(storage) == [NOON, "2026-06-01T13:00:00Z"]

    async def test_schedules_may_share_a_source(self, harness: Harness) -> None:
        """Two schedules of one source that tick at the same moment emit one occurrence."""
        storage = await opened(harness)
        await made(storage, schedule("hour", source_key="shared"))
        await made(storage, schedule("day", "0 12 * * *", source_key="shared"))
        await subscribe(storage, "shared")
        await move(harness, NOON)
        assert emitted(await storage.schedules.fire_due()) == ["2026-06-01T12:00Z"] * 2
        assert await runs(storage) == [NOON]

    async def test_a_tick_that_a_subscription_refuses(self, harness: Harness) -> None:
        """A payload that a subscription refuses is a rejected delivery, not a lost tick."""
        storage = await opened(harness)
        source = (await made(storage, schedule())).source_key
        await subscribe(storage, source, "wants a city", required=["city"])
        await subscribe(storage, source, "takes all")
        await move(harness, NOON)
        [fired] = await storage.schedules.fire_due()
        report = fired.ticks[0].report
        assert report is not None
        assert [each.state for each in report.deliveries] == [DeliveryState.REJECTED, DeliveryState.STARTED]
        assert await runs(storage) == [NOON]

    async def test_a_started_process_runs_as_any_other(self, harness: Harness) -> None:
        """A process started by a tick is runnable and can be ended."""
        storage = await opened(harness)
        await subscribe(storage, (await made(storage, schedule())).source_key)
        await move(harness, NOON)
        await storage.schedules.fire_due()
        [record] = await storage.processes.runnable()
        assert record.registration.input == EngineInput(kind="work", payload={"args": {"at": NOON}})
        await storage.processes.complete(record.process_id, Success())
        assert await storage.processes.runnable() == ()

    async def test_a_session_deleted_while_its_schedule_fires(self, harness: Harness) -> None:
        """A schedule of a deleted session does not tick; a concurrent tick is emitted whole or not at all."""
        storage = await opened(harness)
        other = await harness.open()
        for number in range(6):
            session_id = f"s{number}"
            await storage.sessions.create(session_id)
            new = await made(storage, schedule(owner=of_session(session_id), cron="* * * * *"))
            await subscribe(storage, new.source_key, session_id)
        await harness.clock.advance(MINUTE)
        firing = asyncio.create_task(other.schedules.fire_due())
        await asyncio.gather(firing, *(storage.sessions.delete(f"s{number}") for number in range(6)))
        assert len(await runs(storage)) == len(emitted(firing.result()))
        await harness.clock.advance(HOUR)
        assert await storage.schedules.fire_due() == ()
