"""The contract of the change feed: a reader that keeps its cursor sees every change of every process once."""

from __future__ import annotations

import asyncio
import base64
from typing import Final

from lash.model.gap import GapReason
from lash.model.process.event import ProcessEvent
from lash.model.process.process import ChangeKind, ProcessChange, ProcessStatus
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import feed, opened
from tests.factories.process import DONE, event, process, registered

WRITERS: Final = 48


class TestChangeFeed:
    """Laws of the feed: a reader that keeps its cursor sees every change once."""

    async def test_every_kind_of_change_is_told(self, harness: Harness) -> None:
        """Registration, events with the status they lead to, a cleared wake target and removal are changes."""
        storage = await opened(harness)
        await storage.processes.register(process("p", wake_session_id="s"))
        await storage.events.append("p", event())
        await storage.grants.detach_session("s")
        await storage.processes.complete("p", DONE)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms() + 1, through_cursor=None)
        changes, cursor = await feed(storage, limit=2)
        running, completed = ProcessStatus.RUNNING, ProcessStatus.COMPLETED
        assert changes == [
            ProcessChange(process_id="p", kind=ChangeKind.REGISTERED, status=running),
            ProcessChange(process_id="p", kind=ChangeKind.EVENT, sequence=1, status=running),
            ProcessChange(process_id="p", kind=ChangeKind.CHANGED),
            ProcessChange(process_id="p", kind=ChangeKind.EVENT, sequence=2, status=completed),
            ProcessChange(process_id="p", kind=ChangeKind.PRUNED, status=completed),
        ]
        assert await feed(storage, cursor) == ([], cursor)
        await registered(storage, "q")
        assert [change.process_id for change in (await feed(storage, cursor))[0]] == ["q"]

    async def test_the_entries_of_a_pruned_process_stay_for_readers(self, harness: Harness) -> None:
        """A reader behind sees the entries of a process that is gone, but none of which the feed was pruned."""
        storage = await opened(harness)
        await registered(storage, "p", "q")
        seen = (await storage.events.changes(limit=1)).cursor
        assert (await storage.processes.prune(ended_before_ms=0, through_cursor=seen)).pruned_process_ids == ()
        await storage.events.append("p", event())
        await storage.processes.complete("p", DONE)
        later = harness.clock.now_ms() + 1
        assert (await storage.processes.prune(ended_before_ms=later, through_cursor=None)).pruned_process_ids == ("p",)
        for cursor in (None, seen):
            changes, _ = await feed(storage, cursor, limit=1)
            assert [(change.process_id, change.kind.value, change.sequence) for change in changes] == [
                ("q", "registered", None),
                ("p", "event", 1),
                ("p", "event", 2),
                ("p", "pruned", None),
            ]

    async def test_a_reader_at_the_end_sees_a_removal(self, harness: Harness) -> None:
        """The last event of the feed belongs to the process that is removed: the removal has a place after it."""
        storage = await opened(harness)
        await registered(storage, outcome=DONE)
        _, cursor = await feed(storage)
        later = harness.clock.now_ms() + 1
        await storage.processes.prune(ended_before_ms=later, through_cursor=cursor)
        changes, cursor = await feed(storage, cursor)
        assert [(change.process_id, change.kind) for change in changes] == [("p", ChangeKind.PRUNED)]
        await registered(storage, "p")
        changes, _ = await feed(storage, cursor)
        assert [(change.process_id, change.kind) for change in changes] == [("p", ChangeKind.REGISTERED)]

    async def test_the_feed_begins_after_what_it_was_pruned_of(self, harness: Harness) -> None:
        """Events of a process that still exists leave the feed, not its log; the number of them is reported."""
        storage = await opened(harness)
        await registered(storage, "p")
        for number in range(3):
            await storage.events.append("p", event(payload=number))
        await harness.clock.advance(10)
        await storage.events.append("p", event(payload=3))
        late = harness.clock.now_ms()
        assert await storage.processes.prune_changes(before_ms=late, limit=3) == 3
        assert await storage.processes.prune_changes(before_ms=late) == 1
        assert await storage.processes.prune_changes(before_ms=late) == 0
        assert [change.sequence for change in (await feed(storage))[0]] == [4]
        assert [each.sequence for each in (await storage.events.tail()).events] == [4]
        assert [each.sequence for each in await storage.events.after("p")] == [1, 2, 3, 4]

    async def test_the_tail_shows_the_events_of_all_processes(self, harness: Harness) -> None:
        """The tail has every event once, in order, page by page, with the cursors of the feed."""
        storage = await opened(harness)
        for name in ("p", "q"):
            await registered(storage, name)
        appended = [
            (await storage.events.append(name, event(payload=number))).event
            for number in range(3)
            for name in ("p", "q")
        ]
        shown: list[ProcessEvent] = []
        cursor: str | None = None
        while (page := await storage.events.tail(cursor, limit=2)).events:
            shown.extend(page.events)
            cursor = page.cursor
        assert shown == appended
        assert (await storage.events.changes(cursor)).changes == ()
        await storage.processes.complete("p", DONE)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms() + 1, through_cursor=None)
        left = await storage.events.tail(limit=10)
        assert {each.process_id for each in left.events} == {"q"}

    async def test_a_new_life_has_a_tail_of_its_own(self, harness: Harness) -> None:
        """Events of a pruned process are not attributed to a new process of the same id."""
        storage = await opened(harness)
        await registered(storage)
        await storage.events.append("p", event(payload="old"))
        await storage.processes.complete("p", DONE)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms() + 1, through_cursor=None)
        await registered(storage)
        fresh = (await storage.events.append("p", event(payload="new"))).event
        page = await storage.events.tail(limit=10)
        assert page.events == (fresh,)
        assert (await storage.events.changes(page.cursor)).changes == ()

    async def test_old_changes_are_forgotten_from_the_front(self, harness: Harness) -> None:
        """Pruning removes changes from before a moment, limited per call; later changes and the logs stay."""
        storage = await opened(harness)
        await registered(storage, "old")
        await storage.events.append("old", event(payload=1))
        await harness.clock.advance(10)
        moment = harness.clock.now_ms()
        await registered(storage, "young")
        assert await storage.processes.prune_changes(before_ms=moment, limit=1) == 1
        assert await storage.processes.prune_changes(before_ms=moment) == 1
        assert await storage.processes.prune_changes(before_ms=moment) == 0
        changes, _ = await feed(storage)
        assert [change.process_id for change in changes] == ["young"]
        assert len(await storage.events.after("old", 0)) == 1

    async def test_a_reader_of_pruned_changes_gets_a_gap(self, harness: Harness) -> None:
        """A cursor from before pruned changes gets a gap once, and then the changes that are kept."""
        storage = await opened(harness)
        await registered(storage, "old")
        begin = (await storage.events.changes()).cursor
        await storage.events.append("old", event(payload=1))
        await harness.clock.advance(10)
        assert await storage.processes.prune_changes(before_ms=harness.clock.now_ms()) == 2
        for read in (storage.events.changes, storage.events.tail):
            empty = await read(begin)
            assert empty.gap is GapReason.TRIMMED
            assert (await read(empty.cursor)).gap is None
        await registered(storage, "young")
        page = await storage.events.changes(begin)
        assert (page.gap, [change.process_id for change in page.changes]) == (GapReason.TRIMMED, ["young"])
        assert (await storage.events.changes()).gap is None
        assert (await storage.events.changes(page.cursor)).gap is None

    async def test_a_cursor_of_another_epoch_gets_a_gap(self, harness: Harness) -> None:
        """It continues at the end of the feed; the changes after that come once, in order."""
        storage = await opened(harness)
        await registered(storage)
        end = (await storage.events.changes()).cursor
        for foreign in (other_epoch(end), cursor_text("c1:0:0")):
            for read in (storage.events.changes, storage.events.tail):
                page = await read(foreign)
                assert (page.gap, page.cursor) == (GapReason.UNAVAILABLE, end)
        await storage.events.append("p", event(payload=1))
        await storage.events.append("p", event(payload=2))
        changes, _ = await feed(storage, end, limit=1)
        assert [change.sequence for change in changes] == [1, 2]

    async def test_a_cursor_beyond_the_feed_gets_a_gap(self, harness: Harness) -> None:
        """A change that the feed does not have was lost; its reader continues at the end."""
        storage = await opened(harness)
        await registered(storage)
        end = (await storage.events.changes()).cursor
        _version, epoch, *_position = base64.urlsafe_b64decode(end).decode().split(":")
        page = await storage.events.changes(cursor_text(f"c2:{epoch}:9000000000:9000000000"))
        assert (page.changes, page.gap, page.cursor) == ((), GapReason.UNAVAILABLE, end)

    async def test_a_cursor_of_another_epoch_prunes_nothing(self, harness: Harness) -> None:
        """Pruning up to the cursor of a reader whose feed this is not removes no process and no change."""
        storage = await opened(harness)
        await registered(storage)
        await storage.processes.complete("p", DONE)
        end = (await storage.events.changes()).cursor
        before = harness.clock.now_ms() + 1
        pruned = await storage.processes.prune(ended_before_ms=before, through_cursor=other_epoch(end))
        assert (pruned.pruned_process_ids, pruned.more) == ((), False)
        assert len((await storage.events.changes()).changes) == 2
        pruned = await storage.processes.prune(ended_before_ms=before, through_cursor=end)
        assert pruned.pruned_process_ids == ("p",)

    async def test_many_writers_hide_nothing(self, harness: Harness) -> None:
        """Beside 48 writers a reader of two changes at a time sees each once, in the order of each log."""
        storages = [await harness.open() for _ in range(4)]
        seen: list[ProcessChange] = []
        reading = asyncio.create_task(_read_until(await harness.open(), seen, WRITERS))
        try:
            await asyncio.gather(*(_live_and_end(storages[each % 4], f"p{each}") for each in range(WRITERS)))
            await asyncio.wait_for(reading, 60)
        finally:
            reading.cancel()
        for each in range(WRITERS):
            mine = [(change.kind.value, change.sequence) for change in seen if change.process_id == f"p{each}"]
            assert mine == [("registered", None), ("event", 1), ("event", 2), ("event", 3)]
        assert len(seen) == 4 * WRITERS
        again, _ = await feed(storages[0], limit=7)
        assert again == seen


def cursor_text(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def other_epoch(cursor: str) -> str:
    """Return the cursor of the same position in a feed of another epoch."""
    version, _epoch, *position = base64.urlsafe_b64decode(cursor).decode().split(":")
    return cursor_text(":".join((version, "another", *position)))


async def _live_and_end(storage: Storage, process_id: str) -> None:
    await storage.processes.register(process(process_id))
    for number in range(2):
        await storage.events.append(process_id, event(payload=number))
    await storage.processes.complete(process_id, DONE)


async def _read_until(storage: Storage, seen: list[ProcessChange], ends: int) -> None:
    """Follow the feed two changes at a time until this many ends were seen."""
    cursor: str | None = None
    while sum(change.status is ProcessStatus.COMPLETED for change in seen) < ends:
        page = await storage.events.changes(cursor, limit=2)
        cursor = page.cursor
        seen += page.changes
        await asyncio.sleep(0)
