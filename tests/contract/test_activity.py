"""The contract of live activity: positions without holes, reported gaps, nothing durable."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from msgspec.structs import replace

from lash.errors import InvalidInput, SessionDeleted, SessionNotFound
from lash.model.activity import Activity, ActivityDraft, ActivityPage, ObserveCursor
from lash.model.gap import GapReason
from lash.model.value import JSON
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.test_input import BAD_IDS
from tests.factories.session import commit, created, node, started

PAYLOADS: Final[dict[str, JSON]] = {
    "none": None,
    "text": "boom \0 \N{PILE OF POO} ' -- $1",
    "tree": {"delta": ["a", {"n": 1.5}], "deep": {"x": [None, True]}},
}
KEPT: Final = 2_048
KEPT_MS: Final = 120_000


class TestActivity:
    """What observers may rely on, as far as the store provides it."""

    async def test_positions_have_no_holes(self, harness: Harness) -> None:
        """Positions are 1, 2, 3… within each session, independent of other sessions."""
        storage = await sessions(harness, "s", "other")
        assert await show(storage, "a", "b") == 2
        assert await show(storage, "x", session_id="other") == 1
        assert await show(storage, "c") == 3
        assert [(item.position, item.payload) for item in await seen(storage)] == [(1, "a"), (2, "b"), (3, "c")]
        assert [(item.position, item.payload) for item in await seen(storage, "other")] == [(1, "x")]

    async def test_concurrent_appends_share_no_position(self, harness: Harness) -> None:
        """Concurrent appends all arrive, each whole and in its order."""
        storages = [await harness.open() for _ in range(4)]
        await created(storages[0])
        ends = await asyncio.gather(
            *(show(storages[each % 4], *(f"{each}:{part}" for part in range(3))) for each in range(20))
        )
        assert sorted(ends) == [3 * number for number in range(1, 21)]
        shown = await seen(storages[0])
        assert [item.position for item in shown] == list(range(1, 61))
        payloads = [item.payload for item in shown]
        assert {tuple(payloads[begin : begin + 3]) for begin in range(0, 60, 3)} == {
            (f"{each}:0", f"{each}:1", f"{each}:2") for each in range(20)
        }

    @pytest.mark.parametrize("payload", PAYLOADS)
    async def test_an_item_is_read_as_it_was_shown(self, harness: Harness, payload: str) -> None:
        """An item comes back with its turn, payload, loss flag and time, and with the session's revision."""
        storage = await harness.open()
        await started(storage)
        draft = ActivityDraft(turn_id="t:1", payload=PAYLOADS[payload], lost=4)
        await storage.activity.append("s", [draft, ActivityDraft(turn_id="t:2", lost=1)])
        now_ms = harness.clock.now_ms()
        assert await seen(await harness.open()) == (
            Activity(position=1, revision=1, turn_id="t:1", payload=PAYLOADS[payload], lost=4, created_at_ms=now_ms),
            Activity(position=2, revision=1, turn_id="t:2", lost=1, created_at_ms=now_ms),
        )

    async def test_a_look_goes_on_behind_its_place(self, harness: Harness) -> None:
        """Pages of any size join without a hole or a repetition; at the tail a page is empty."""
        storage = await sessions(harness, "s")
        begin = (await storage.activity.read("s")).newest
        await show(storage, *"abcdefg")
        place, pages = begin, list[list[JSON]]()
        while True:
            look = await storage.activity.read("s", place, limit=3)
            pages.append([text for item in look.activity if isinstance(text := item.payload, str)])
            if not look.more:
                break
            place = replace(look.newest, position=look.activity[-1].position)
        assert pages == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
        assert await storage.activity.read("s", look.newest) == ActivityPage(newest=look.newest)

    async def test_a_look_without_a_place_shows_where_the_session_stands(self, harness: Harness) -> None:
        """A read without a cursor returns the revision and the end of the activity, and no items."""
        storage = await harness.open()
        await started(storage)
        await show(storage, "a", "b")
        look = await storage.activity.read("s")
        assert (look.gap, look.activity, look.newest.revision, look.newest.position) == (None, (), 1, 2)

    async def test_what_is_too_much_is_trimmed(self, harness: Harness) -> None:
        """The last 2,048 items are kept; a reader that missed older ones gets a gap, never part of them."""
        storage = await sessions(harness, "s")
        begin = (await storage.activity.read("s")).newest
        for _ in range(4):
            await show(storage, *["x"] * 512)
        at_tail = (await storage.activity.read("s")).newest
        assert [item.position for item in await seen(storage)] == list(range(1, KEPT + 1))
        await show(storage, "y")
        assert (await storage.activity.read("s", replace(at_tail, position=0))).gap is GapReason.TRIMMED
        assert (await storage.activity.read("s", begin)).gap is GapReason.TRIMMED
        kept = await storage.activity.read("s", replace(at_tail, position=1), limit=1_000)
        assert kept.gap is None
        assert kept.activity[0].position == 2

    async def test_what_is_too_large_is_trimmed(self, harness: Harness) -> None:
        """The kept activity is bounded in bytes, not only in items."""
        storage = await sessions(harness, "s")
        begin = (await storage.activity.read("s")).newest
        for _ in range(20):
            await show(storage, *["x" * 60_000] * 10)
        look = await storage.activity.read("s", begin)
        assert look.gap is GapReason.TRIMMED
        kept_bytes = 8 * 1024 * 1024
        oldest = look.newest.position - kept_bytes // 60_000
        assert (await storage.activity.read("s", replace(look.newest, position=oldest + 10))).gap is None
        assert (await storage.activity.read("s", replace(look.newest, position=oldest - 10))).gap is GapReason.TRIMMED

    async def test_what_is_too_old_is_trimmed_by_the_next(self, harness: Harness) -> None:
        """An append removes items older than 120 seconds; an item exactly that old stays."""
        storage = await sessions(harness, "s")
        begin = (await storage.activity.read("s")).newest
        await show(storage, "old")
        await harness.clock.advance(1)
        await show(storage, "young")
        await harness.clock.advance(KEPT_MS)
        await show(storage, "new")
        assert (await storage.activity.read("s", begin)).gap is GapReason.TRIMMED
        assert [item.payload for item in await seen(storage, after=1)] == ["young", "new"]

    async def test_pruning_forgets_sessions_that_fell_silent(self, harness: Harness) -> None:
        """Maintenance removes old activity; positions continue, and a reader that missed it gets a gap."""
        storage = await sessions(harness, "s", "other")
        begin = (await storage.activity.read("s")).newest
        await show(storage, "a", "b")
        await harness.clock.advance(KEPT_MS + 1)
        await show(storage, "fresh", session_id="other")
        assert (await storage.maintenance.prune_activity()).removed_count == 2
        assert (await storage.maintenance.prune_activity()).removed_count == 0
        look = await storage.activity.read("s", begin)
        assert (look.gap, look.newest.position) == (GapReason.TRIMMED, 2)
        assert await storage.activity.read("s", look.newest) == ActivityPage(newest=look.newest)
        assert await show(storage, "c") == 3
        assert [item.payload for item in (await storage.activity.read("s", look.newest)).activity] == ["c"]
        assert [item.payload for item in await seen(storage, "other")] == ["fresh"]

    async def test_a_place_ahead_of_the_session_is_a_gap(self, harness: Harness) -> None:
        """A cursor beyond the session's position or revision is unavailable, not an empty answer."""
        storage = await harness.open()
        await started(storage)
        await show(storage, "a")
        here = (await storage.activity.read("s")).newest
        for ahead in (replace(here, position=2), replace(here, revision=2)):
            assert await storage.activity.read("s", ahead) == ActivityPage(newest=here, gap=GapReason.UNAVAILABLE)

    async def test_a_place_of_another_life_is_a_gap(self, harness: Harness) -> None:
        """A cursor from before a session was deleted and recreated is a gap, whatever the new one has shown."""
        storage = await sessions(harness, "s")
        await show(storage, "a")
        old = (await storage.activity.read("s")).newest
        await storage.sessions.delete("s")
        await created(storage)
        assert (await storage.activity.read("s", old)).gap is GapReason.UNAVAILABLE
        await show(storage, "b", "c")
        look = await storage.activity.read("s", old)
        assert (look.gap, look.newest.position) == (GapReason.UNAVAILABLE, 2)
        assert look.newest.life != old.life

    async def test_a_place_of_another_epoch_is_a_gap(self, harness: Harness) -> None:
        """A cursor of another epoch is a gap: its positions are not mistaken for current ones."""
        storage = await sessions(harness, "s")
        await show(storage, "a", "b")
        here = (await storage.activity.read("s")).newest
        elsewhere = replace(here, epoch="0123", position=1)
        assert await storage.activity.read("s", elsewhere) == ActivityPage(newest=here, gap=GapReason.UNAVAILABLE)

    async def test_who_waited_for_the_session_sees_all_of_it(self, harness: Harness) -> None:
        """A cursor from before a session existed is before everything in the session's first life."""
        storage = await sessions(harness, "s")
        await show(storage, "a")
        look = await storage.activity.read("s", ObserveCursor())
        assert [item.payload for item in look.activity] == ["a"]

    async def test_activity_is_not_history(self, harness: Harness) -> None:
        """Activity never changes the head, and a commit neither waits for it nor removes it."""
        storage = await harness.open()
        session = await started(storage)
        before = await session.load()
        await show(storage, "a")
        assert await session.load() == before
        await session.commit(commit(1, node("b", "a")))
        await show(storage, "b")
        assert [(item.payload, item.revision) for item in await seen(storage)] == [("a", 1), ("b", 2)]

    async def test_there_is_no_activity_without_a_session(self, harness: Harness) -> None:
        """A session that never existed or was deleted has no activity and accepts none."""
        storage = await sessions(harness, "gone")
        change = (await storage.activity.read("gone")).newest.change
        await show(storage, "a", session_id="gone")
        await storage.sessions.delete("gone")
        for session_id, error in (("gone", SessionDeleted), ("never", SessionNotFound)):
            with pytest.raises(error):
                await show(storage, "a", session_id=session_id)
            with pytest.raises(error):
                await storage.activity.read(session_id)
            with pytest.raises(error):
                await storage.activity.process_changes(session_id, change)

    @pytest.mark.parametrize(
        "items",
        [
            [],
            "text",
            [{"turn_id": "t"}],
            [ActivityDraft(turn_id="")],
            [ActivityDraft(turn_id="t", lost=-1)],
            [ActivityDraft(turn_id="t", payload={"x": float("nan")})],
            [ActivityDraft(turn_id="t", payload="x" * 70_000)],
            [ActivityDraft(turn_id="t", payload="x")] * 1_025,
        ],
    )
    async def test_what_cannot_be_shown_is_refused_whole(self, harness: Harness, items: object) -> None:
        """One bad item refuses the whole append before anything is written."""
        storage = await sessions(harness, "s")
        good = ActivityDraft(turn_id="t", payload="good")
        given: Any = [good, *items] if isinstance(items, list) and items else items
        with pytest.raises(InvalidInput):
            await storage.activity.append("s", given)
        assert (await storage.activity.read("s")).newest.position == 0

    async def test_a_foreign_value_is_no_place(self, harness: Harness) -> None:
        """An invalid cursor, feed cursor or page size is refused before anything is read."""
        storage = await harness.open()
        with pytest.raises(InvalidInput):
            await storage.activity.read("never", "x")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await storage.activity.read("never", limit=0)
        with pytest.raises(InvalidInput):
            await storage.activity.process_changes("never", "x")

    @pytest.mark.parametrize("name", BAD_IDS)
    async def test_what_is_no_id_is_refused(self, harness: Harness, name: str) -> None:
        """An invalid session id is refused by every call."""
        storage = await sessions(harness, "s")
        change = (await storage.activity.read("s")).newest.change
        with pytest.raises(InvalidInput, match="session_id"):
            await show(storage, "a", session_id=BAD_IDS[name])
        with pytest.raises(InvalidInput, match="session_id"):
            await storage.activity.read(BAD_IDS[name])
        with pytest.raises(InvalidInput, match="session_id"):
            await storage.activity.process_changes(BAD_IDS[name], change)

    async def test_appends_prunings_and_a_deletion_end_well(self, harness: Harness) -> None:
        """Concurrent appends, prunings and a deletion neither hang nor fail, except appends after the deletion."""
        storages = [await harness.open() for _ in range(4)]
        await created(storages[0])
        await created(storages[0], "doomed")

        async def append(storage: Storage, session_id: str) -> int:
            ends = [await show(storage, *["x"] * 20, session_id=session_id) for _ in range(15)]
            return len(ends)

        async def prune(storage: Storage) -> None:
            for _ in range(15):
                await harness.clock.advance(1)
                await storage.maintenance.prune_activity(older_than_ms=0)

        doomed = asyncio.ensure_future(append(storages[3], "doomed"))
        kept = asyncio.gather(append(storages[0], "s"), append(storages[1], "s"), prune(storages[2]))
        await asyncio.sleep(0.01)
        await storages[2].sessions.delete("doomed")
        first, second, _ = await kept
        assert (first, second) == (15, 15)
        assert isinstance((await asyncio.gather(doomed, return_exceptions=True))[0], SessionDeleted | int)
        assert (await storages[0].activity.read("s")).newest.position == 600

    async def test_an_append_is_a_hint(self, harness: Harness) -> None:
        """An append wakes listeners for everything."""
        storage = await sessions(harness, "s")
        with storage.hints.listen(everything=True) as hints:
            await hints.wait(0)
            await show(storage, "a")
            async with asyncio.timeout(50):
                await hints.wait(60)


async def sessions(harness: Harness, *session_ids: str) -> Storage:
    """Open a storage with these sessions in it."""
    storage = await harness.open()
    for session_id in session_ids:
        await created(storage, session_id)
    return storage


async def show(storage: Storage, *payloads: JSON, session_id: str = "s") -> int:
    """Append these payloads as activity of one turn."""
    return await storage.activity.append(session_id, [ActivityDraft(turn_id="t", payload=each) for each in payloads])


async def seen(storage: Storage, session_id: str = "s", *, after: int = 0) -> tuple[Activity, ...]:
    """Return all activity behind a position; fail the test if some is missing."""
    place, shown = replace((await storage.activity.read(session_id)).newest, position=after), list[Activity]()
    while True:
        look = await storage.activity.read(session_id, place, limit=1_000)
        assert look.gap is None
        shown += look.activity
        if not look.more:
            return tuple(shown)
        place = replace(look.newest, position=shown[-1].position)
