"""Laws of schedules before they tick: registering, changing by revision, listing, deleting."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import InvalidInput, LashError, ScheduleConflict, ScheduleNotFound, SessionDeleted, SessionNotFound
from lash.model.process.process import HOST
from lash.model.trigger.schedule import RegisteredSchedule, Schedule, ScheduleDraft
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.schedule_state import HOUR, MINUTE, START, at, made, move, of_session, opened, schedule


async def _all(storage: Storage) -> tuple[Schedule, ...]:
    page = await storage.schedules.list()
    assert (page.next_cursor, page.damaged) == (None, ())
    return page.schedules


async def _race(*calls: object) -> tuple[int, list[type[BaseException]]]:
    """Return how many of the calls succeeded, and the errors of the others."""
    answers = await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[call-overload]
    failed = [type(answer) for answer in answers if isinstance(answer, BaseException)]
    return len(answers) - len(failed), failed


class TestSchedule:
    """Laws of creating, changing and deleting schedules."""

    async def test_a_schedule_is_found_again(self, harness: Harness) -> None:
        """Every storage returns the registered schedule; its first tick is the next one after now."""
        storage = await opened(harness)
        draft = schedule(payload={"a": [1, None, "ä"]}, time_zone="Asia/Kolkata", jitter_ms=MINUTE)
        new = await made(storage, draft)
        assert (new.definition, new.enabled, new.revision) == (draft, True, 1)
        assert (new.created_at_ms, new.updated_at_ms, new.last_tick_ms) == (at(START), at(START), None)
        # 12:00 UTC is 17:30 in Kolkata, whose next full hour is 12:30 UTC.
        assert new.next_tick_ms == at("2026-06-01T12:30:00Z")
        assert new.source_key == new.schedule_id
        assert await (await harness.open()).schedules.get(HOST, "k") == new
        assert await _all(storage) == (new,)

    async def test_schedules_survive_reopening(self, harness: Harness) -> None:
        """A schedule survives closing and reopening, with its next moment."""
        storage = await opened(harness)
        new = await made(storage, schedule(jitter_ms=HOUR))
        assert await (await harness.reopen()).schedules.get(HOST, "k") == new

    async def test_the_moment_of_a_tick_is_not_after_itself(self, harness: Harness) -> None:
        """A schedule registered exactly at a tick starts with the following tick."""
        storage = await opened(harness, "2026-06-01T12:00:00Z")
        assert (await made(storage, schedule())).next_tick_ms == at("2026-06-01T13:00:00Z")

    async def test_registering_again(self, harness: Harness) -> None:
        """Registering the same definition returns the current schedule; another one raises ScheduleConflict."""
        storage = await opened(harness)
        first = await made(storage, schedule(payload={"a": 1}))
        await harness.clock.advance(5 * HOUR)
        # As from a file: values that are equal to the defaults, in other objects.
        stated = schedule(payload={"a": 1}, time_zone="utc".upper(), grace_ms=int("60000"))
        for same in (schedule(payload={"a": 1}), stated):
            again = await storage.schedules.register(same)
            assert again == RegisteredSchedule(schedule=first, created=False)
        for other in (schedule(payload={"a": 2}), schedule(payload={"a": 1}, jitter_ms=1), schedule(cron="1 * * * *")):
            with pytest.raises(ScheduleConflict, match=r"'k' of the host.*another definition"):
                await storage.schedules.register(other)
        assert await _all(storage) == (first,)

    async def test_registering_does_not_enable(self, harness: Harness) -> None:
        """Registering a disabled schedule again returns it disabled."""
        storage = await opened(harness)
        await made(storage, schedule())
        off = await storage.schedules.disable(HOST, "k", revision=1)
        assert (await storage.schedules.register(schedule())).schedule == off

    async def test_owners_are_apart(self, harness: Harness) -> None:
        """The host and each session have their own keys; the frames of a session share theirs."""
        storage = await opened(harness)
        for session_id in ("s", "t"):
            await storage.sessions.create(session_id)
        owners = (HOST, of_session("s"), of_session("t"))
        new = [await made(storage, schedule(owner=owner)) for owner in owners]
        assert len({each.schedule_id for each in new}) == 3
        assert [await storage.schedules.get(owner, "k") for owner in owners] == new
        of_frame = await storage.schedules.register(schedule(owner=of_session("s", "f")))
        assert of_frame == RegisteredSchedule(schedule=new[1], created=False)
        await storage.schedules.delete(of_session("s", "g"), "k", revision=1)
        assert await _all(storage) == (new[0], new[2])

    async def test_registering_at_once(self, harness: Harness) -> None:
        """Concurrent equal registrations return one schedule, which one of them created."""
        await opened(harness)
        storages = [await harness.open() for _ in range(4)]
        answers = await asyncio.gather(*(each.schedules.register(schedule()) for each in storages * 3))
        assert sum(answer.created for answer in answers) == 1
        assert {answer.schedule.schedule_id for answer in answers} == {answers[0].schedule.schedule_id}
        assert len(await _all(storages[0])) == 1

    async def test_updating_takes_effect_from_now_on(self, harness: Harness) -> None:
        """A new cron expression ticks from now on, at the next revision; an equal definition changes nothing."""
        storage = await opened(harness)
        first = await made(storage, schedule())
        await harness.clock.advance(9 * HOUR)
        second = await storage.schedules.update(schedule(cron="15 * * * *"), revision=1)
        assert (second.revision, second.schedule_id, second.created_at_ms) == (
            2,
            first.schedule_id,
            first.created_at_ms,
        )
        assert second.updated_at_ms == harness.clock.now_ms()
        # It is 20:30.
        assert second.next_tick_ms == second.next_fire_ms == at("2026-06-01T21:15:00Z")
        assert await storage.schedules.update(schedule(cron="15 * * * *"), revision=2) == second
        assert await storage.schedules.get(HOST, "k") == second

    async def test_switching_off_and_on(self, harness: Harness) -> None:
        """A disabled schedule has no next tick; enabled again, it continues after now. Both are idempotent."""
        storage = await opened(harness)
        await made(storage, schedule())
        off = await storage.schedules.disable(HOST, "k", revision=1)
        assert (off.enabled, off.revision, off.next_tick_ms, off.next_fire_ms) == (False, 2, None, None)
        assert await storage.schedules.disable(HOST, "k", revision=2) == off
        assert await storage.schedules.next_fire_at_ms() is None
        changed = await storage.schedules.update(schedule(cron="15 * * * *"), revision=2)
        assert (changed.enabled, changed.next_tick_ms) == (False, None)
        await harness.clock.advance(50 * HOUR)
        on = await storage.schedules.enable(HOST, "k", revision=3)
        assert (on.enabled, on.revision) == (True, 4)
        assert on.next_tick_ms == at("2026-06-03T14:15:00Z")
        assert await storage.schedules.enable(HOST, "k", revision=4) == on

    async def test_a_revision_that_is_not_current(self, harness: Harness) -> None:
        """A change that expects another revision raises ScheduleConflict with both numbers and writes nothing."""
        storage = await opened(harness)
        await made(storage, schedule())
        await storage.schedules.disable(HOST, "k", revision=1)
        now = await storage.schedules.enable(HOST, "k", revision=2)
        for revision in (1, 2, 4):
            for call in (
                storage.schedules.update(schedule(cron="1 1 * * *"), revision=revision),
                storage.schedules.enable(HOST, "k", revision=revision),
                storage.schedules.disable(HOST, "k", revision=revision),
                storage.schedules.delete(HOST, "k", revision=revision),
            ):
                with pytest.raises(ScheduleConflict, match=f"at revision 3, the caller expected {revision}"):
                    await call
        assert await _all(storage) == (now,)

    async def test_one_of_many_changes_wins(self, harness: Harness) -> None:
        """Of concurrent changes that expect the same revision one succeeds."""
        storage = await opened(harness)
        await made(storage, schedule())
        storages = [await harness.open() for _ in range(3)]
        drafts = [schedule(cron=f"{number} * * * *") for number in range(1, 7)]
        calls = (storages[number % 3].schedules.update(each, revision=1) for number, each in enumerate(drafts))
        assert await _race(*calls) == (1, [ScheduleConflict] * 5)
        [left] = await _all(storage)
        assert left.revision == 2

    async def test_deleting(self, harness: Harness) -> None:
        """A deleted schedule is not found; a new one of its name continues above its revision."""
        storage = await opened(harness)
        await made(storage, schedule())
        await storage.schedules.delete(HOST, "k", revision=1)
        assert await storage.schedules.get(HOST, "k") is None
        assert await _all(storage) == ()
        assert await storage.schedules.next_fire_at_ms() is None
        again = await made(storage, schedule(cron="30 * * * *"))
        assert again.revision == 3
        with pytest.raises(ScheduleConflict, match="at revision 3, the caller expected 1"):
            await storage.schedules.delete(HOST, "k", revision=1)
        assert await _all(storage) == (again,)

    async def test_deletions_can_be_forgotten(self, harness: Harness) -> None:
        """Pruning removes old tombstones, limited per call, and no schedule."""
        storage = await opened(harness)
        for number in range(5):
            await made(storage, schedule(f"k{number}"))
        for number in range(4):
            await storage.schedules.delete(HOST, f"k{number}", revision=1)
            await harness.clock.advance(HOUR)
        prune = storage.schedules.prune_deleted
        assert await prune(before_ms=at(START)) == 0
        assert [await prune(before_ms=at(START) + 3 * HOUR, limit=2) for _ in range(3)] == [2, 1, 0]
        assert [each.key for each in await _all(storage)] == ["k4"]
        assert (await made(storage, schedule("k0"))).revision == 1
        assert (await made(storage, schedule("k3"))).revision == 3

    async def test_what_is_not_there(self, harness: Harness) -> None:
        """Changing an unknown or deleted schedule raises ScheduleNotFound; reading it returns None."""
        storage = await opened(harness)
        await made(storage, schedule("gone"))
        await storage.schedules.delete(HOST, "gone", revision=1)
        for key in ("never", "gone"):
            assert await storage.schedules.get(HOST, key) is None
            for call in (
                storage.schedules.update(schedule(key), revision=2),
                storage.schedules.enable(HOST, key, revision=2),
                storage.schedules.disable(HOST, key, revision=2),
                storage.schedules.delete(HOST, key, revision=2),
            ):
                with pytest.raises(ScheduleNotFound, match=f"the host has no schedule '{key}'"):
                    await call

    async def test_lists(self, harness: Harness) -> None:
        """Lists are ordered by owner and key, in pages, filtered by owner and by ``enabled``."""
        storage = await opened(harness)
        await storage.sessions.create("s")
        for key in ("b", "a", "Z", "ä"):
            await made(storage, schedule(key))
            await made(storage, schedule(key, owner=of_session("s")))
        await storage.schedules.disable(HOST, "b", revision=1)
        await storage.schedules.delete(HOST, "Z", revision=1)

        async def walk(**filters: object) -> list[tuple[bool, str]]:
            found: list[Schedule] = []
            cursor: str | None = None
            while True:
                page = await storage.schedules.list(limit=2, cursor=cursor, **filters)  # type: ignore[arg-type]
                assert len(page.schedules) <= 2
                found += page.schedules
                cursor = page.next_cursor
                if cursor is None:
                    return [(each.owner == HOST, each.key) for each in found]

        host = [(True, "a"), (True, "b"), (True, "ä")]
        session = [(False, "Z"), (False, "a"), (False, "b"), (False, "ä")]
        assert await walk() == host + session
        assert await walk(owner=HOST) == host
        assert await walk(owner=of_session("s", "f")) == session
        assert await walk(owner=of_session("missing")) == []
        assert await walk(enabled=False) == [(True, "b")]
        assert await walk(owner=HOST, enabled=True) == [host[0], host[2]]

    async def test_when_something_is_due(self, harness: Harness) -> None:
        """The next moment is the earliest of all enabled schedules."""
        storage = await opened(harness)
        assert await storage.schedules.next_fire_at_ms() is None
        await made(storage, schedule("day", "0 0 * * *"))
        hour = await made(storage, schedule("hour", jitter_ms=MINUTE))
        assert await storage.schedules.next_fire_at_ms() == hour.next_fire_ms
        await storage.schedules.disable(HOST, "hour", revision=1)
        assert await storage.schedules.next_fire_at_ms() == at("2026-06-02T00:00:00Z")

    @pytest.mark.parametrize(
        "draft",
        [
            schedule(cron="0 0 31 2 *"),
            schedule(cron="* * */20 * 1L"),
            schedule(cron="61 * * * *"),
            schedule(cron="@daily"),
            schedule(cron="0 0 * * * *"),
            schedule(time_zone="Mars/Olympus"),
            schedule(time_zone=""),
            schedule(" "),
            schedule("x" * 256),
            schedule(jitter_ms=-1),
            schedule(jitter_ms=86_400_001),
            schedule(grace_ms=0),
            schedule(payload={"scheduled_at": "now"}),
            schedule(payload={"x": 2**70}),
            schedule(payload={"x": "y" * 70_000}),
            schedule(source_key=" "),
            schedule(owner=of_session("")),
        ],
    )
    async def test_bad_input_writes_nothing(self, harness: Harness, draft: ScheduleDraft) -> None:
        """Impossible expressions, unknown zones, blank keys and the like are refused by register and update."""
        storage = await opened(harness)
        kept = await made(storage, schedule())
        with pytest.raises(InvalidInput):
            await storage.schedules.register(draft)
        with pytest.raises(InvalidInput):
            await storage.schedules.update(draft, revision=1)
        assert await _all(storage) == (kept,)

    async def test_bad_arguments(self, harness: Harness) -> None:
        """Invalid owners, keys, revisions, limits and cursors are refused."""
        storage = await opened(harness)
        await made(storage, schedule())
        store = storage.schedules
        for call in (
            store.get("host", "k"),  # type: ignore[arg-type]
            store.get(HOST, ""),
            store.register({"key": "k"}),  # type: ignore[arg-type]
            store.delete(HOST, "k", revision=0),
            store.enable(HOST, "k", revision="1"),  # type: ignore[arg-type]
            store.list(limit=0),
            store.list(limit=1_001),
            store.list(cursor="nonsense"),
            store.list("host"),  # type: ignore[arg-type]
            store.fire_due(limit=0),
            store.delete_session(""),
            store.prune_deleted(before_ms="then"),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidInput):
                await call
        assert len(await _all(storage)) == 1


class TestSessionSchedule:
    """Laws of the schedules of sessions."""

    @pytest.mark.parametrize(("existed", "error"), [(False, SessionNotFound), (True, SessionDeleted)])
    async def test_a_session_that_is_not_there(
        self, harness: Harness, *, existed: bool, error: type[LashError]
    ) -> None:
        """A session that does not exist or was deleted cannot own a schedule."""
        storage = await opened(harness)
        if existed:
            await storage.sessions.create("s")
            await storage.sessions.delete("s")
        with pytest.raises(error, match="'s'"):
            await storage.schedules.register(schedule(owner=of_session("s")))
        assert await _all(storage) == ()

    async def test_a_session_takes_its_schedules_with_it(self, harness: Harness) -> None:
        """Deleting a session deletes its schedules and no others; its successor continues the revisions."""
        storage = await opened(harness)
        for session_id in ("s", "t"):
            await storage.sessions.create(session_id)
        await made(storage, schedule("mine", owner=of_session("s")))
        left = [await made(storage, schedule("host")), await made(storage, schedule("other", owner=of_session("t")))]
        assert await storage.sessions.delete("s")
        assert list(await _all(storage)) == left
        await move(harness, "2026-06-01T12:00:00Z")
        assert {fired.key for fired in await storage.schedules.fire_due()} == {"host", "other"}
        await storage.sessions.create("s")
        again = await made(storage, schedule("mine", owner=of_session("s")))
        assert again.revision == 3

    async def test_schedules_of_a_session_can_go_alone(self, harness: Harness) -> None:
        """Deleting the schedules of a session returns their number, once."""
        storage = await opened(harness)
        await storage.sessions.create("s")
        for key in ("a", "b", "c"):
            await made(storage, schedule(key, owner=of_session("s")))
        await storage.schedules.delete(of_session("s"), "c", revision=1)
        kept = await made(storage, schedule("a"))
        assert [await storage.schedules.delete_session("s") for _ in range(2)] == [2, 0]
        assert await _all(storage) == (kept,)

    async def test_a_session_and_its_schedule_at_once(self, harness: Harness) -> None:
        """A deleted session has no schedule, whichever of deletion and registration comes first."""
        storage = await opened(harness)
        other = await harness.open()
        for number in range(8):
            session_id = f"s{number}"
            await storage.sessions.create(session_id)
            succeeded, failed = await _race(
                other.schedules.register(schedule(owner=of_session(session_id))), storage.sessions.delete(session_id)
            )
            assert succeeded >= 1
            assert set(failed) <= {SessionDeleted}
            assert await storage.schedules.get(of_session(session_id), "k") is None
