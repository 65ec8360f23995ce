"""The contract of logs whose start and end are stored with their process: nothing but the count of rows differs."""

from __future__ import annotations

from typing import Final

import pytest

from lash.errors import EventConflict, ProcessTerminal
from lash.model.lease import Lease
from lash.model.process.event import (
    EventDraft,
    EventSemantics,
    EventType,
    Pointer,
    ProcessEvent,
    TerminalSpec,
    TerminalState,
    WakeState,
)
from lash.model.process.process import ProcessAcquired, ProcessStatus
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import feed, log, opened, refuse
from tests.factories.process import DONE, NOTE, event, process, registered, stored, waking
from tests.factories.session import owner, started

TTL: Final = 60_000
LAST: Final = EventType(
    name="last",
    semantics=EventSemantics(
        terminal=TerminalSpec(state=TerminalState.COMPLETED), wake=waking("any", Pointer(path="/text")).semantics.wake
    ),
)
"""Ends its process and wakes a session with the ``text`` of its payload."""
Place = tuple[str, str, int | None]


async def begun(storage: Storage, process_id: str = "p", *types: EventType, wake: str | None = None) -> Lease:
    """Register a process and claim it in one call."""
    registration = process(process_id, NOTE, *types, wake_session_id=wake)
    answer = await storage.process_leases.register_and_claim(registration, owner("ann"), ttl_ms=TTL)
    assert isinstance(answer, ProcessAcquired)
    return answer.lease


async def told(storage: Storage, limit: int, cursor: str | None = None) -> list[Place]:
    """Return the feed, read in pages of a size."""
    changes, _ = await feed(storage, cursor, limit=limit)
    return [(each.process_id, each.kind.value, each.sequence) for each in changes]


async def tail(storage: Storage, limit: int) -> list[ProcessEvent]:
    """Return the events of all processes, read in pages of a size."""
    events: list[ProcessEvent] = []
    cursor: str | None = None
    while (page := await storage.events.tail(cursor, limit=limit)).events:
        events += page.events
        cursor = page.cursor
    return events


async def mixed(storage: Storage) -> list[Place]:
    """Write the starts and ends of three processes and events between them; return the feed that this makes."""
    first = await begun(storage, "p")
    await registered(storage, "q")
    await storage.events.append("q", event())
    second = await begun(storage, "r")
    await storage.events.append("p", event())
    await storage.process_leases.complete(second.fence, DONE)
    await storage.events.append("r", event())
    await storage.processes.complete("q", DONE)
    await storage.process_leases.complete(first.fence, DONE)
    return [
        *(("p", "registered", None), ("p", "event", 1), ("q", "registered", None), ("q", "event", 1)),
        *(("r", "registered", None), ("r", "event", 1), ("p", "event", 2), ("r", "event", 2), ("r", "event", 3)),
        *(("q", "event", 2), ("p", "event", 3)),
    ]


class TestInlineEvents:
    """Laws of the first and the last event of a process."""

    async def test_every_reader_of_a_log_finds_them(self, harness: Harness) -> None:
        """Pages, pages of one type, the newest events and counts include the start and the end."""
        storage = await opened(harness)
        lease = await begun(storage)
        await storage.events.append("p", event(payload=1))
        await storage.process_leases.complete(lease.fence, DONE)
        await storage.events.append("p", event(payload=2))
        events = storage.events
        kinds = ["process.started", "note", "process.completed", "note"]
        found = await log(await harness.open())
        assert [each.event_type for each in found] == kinds
        assert [each.sequence for each in found] == [1, 2, 3, 4]
        assert [(await events.after("p", number, limit=1))[0] for number in range(4)] == list(found)
        assert await events.recent("p", 3) == found[1:]
        assert await events.recent("p", 1) == found[3:]
        for kind, sequences in (("process.started", [1]), ("process.completed", [3]), ("note", [2, 4])):
            alike = await events.after("p", event_type=kind)
            assert [each.sequence for each in alike] == sequences
            counts = [sum(each <= number for each in sequences) for number in range(5)]
            assert [await events.count_through("p", kind, number) for number in range(5)] == counts
        record = await stored(storage)
        assert found[0].occurred_at_ms == record.created_at_ms
        assert found[0].payload == {"owner": {"owner_id": "ann", "incarnation_id": "1"}}

    @pytest.mark.parametrize("which", [0, 1], ids=["start", "end"])
    async def test_their_replay_keys_are_used_up(self, harness: Harness, which: int) -> None:
        """An append under the key of the start or the end returns that event, or is refused if it is another event."""
        storage = await opened(harness)
        lease = await begun(storage)
        await storage.process_leases.complete(lease.fence, DONE)
        known = (await log(storage))[which]
        assert known.replay_key is not None
        for other in (storage, await harness.open()):
            same = EventDraft(event_type=known.event_type, payload=known.payload, replay_key=known.replay_key)
            again = await other.events.append("p", same)
            assert (again.event, again.replayed) == (known, True)
        await refuse(storage, storage.events.append("p", event(key=known.replay_key)), EventConflict)
        assert len(await log(storage)) == 2

    async def test_an_end_under_the_key_of_the_start_is_refused(self, harness: Harness) -> None:
        """Neither this storage nor one that has not seen the process writes it; the process goes on."""
        storage = await opened(harness)
        lease = await begun(storage, "p", LAST)
        key = (await log(storage))[0].replay_key
        for other in (storage, await harness.open()):
            await refuse(storage, other.events.append("p", event("last", {"text": "x"}, key=key)), EventConflict)
        assert (await stored(storage)).projection.status is ProcessStatus.RUNNING
        assert (await storage.process_leases.complete(lease.fence, DONE)).last_sequence == 2

    async def test_a_start_is_written_once(self, harness: Harness) -> None:
        """The same owner that claims its process again appends no other start; another owner does."""
        storage = await opened(harness)
        lease = await begun(storage)
        for number, name in ((1, "ann"), (2, "bob"), (2, "bob"), (2, "ann")):
            await storage.process_leases.release(lease.fence)
            taken = await storage.process_leases.claim("p", owner(name), ttl_ms=TTL)
            assert isinstance(taken, ProcessAcquired)
            lease = taken.lease
            assert [each.event_type for each in await log(storage)] == ["process.started"] * number

    async def test_a_second_end_is_refused(self, harness: Harness) -> None:
        """An end under another key does not replace the end that is stored."""
        storage = await opened(harness)
        lease = await begun(storage, "p", LAST)
        await storage.process_leases.complete(lease.fence, DONE)
        before = await log(storage)
        end = event("last", {"text": "x"}, key="another")
        await refuse(storage, storage.events.append("p", end), ProcessTerminal)
        assert await log(await harness.open()) == before

    @pytest.mark.parametrize("limit", [1, 2, 100])
    async def test_the_feed_has_them_in_order(self, harness: Harness, limit: int) -> None:
        """Pages of every size return registrations, starts, events and ends of all processes as they were written."""
        storage = await opened(harness)
        expected = await mixed(storage)
        assert await told(storage, limit) == expected
        events = [(each.process_id, "event", each.sequence) for each in await tail(storage, limit)]
        assert events == [place for place in expected if place[1] == "event"]
        cursor = (await storage.events.changes(limit=6)).cursor
        assert await told(storage, limit, cursor) == expected[6:]

    async def test_the_end_of_the_feed_is_after_them(self, harness: Harness) -> None:
        """A removal comes after an end that was the last entry, and a new registration after that."""
        storage = await opened(harness)
        lease = await begun(storage)
        await storage.process_leases.complete(lease.fence, DONE)
        later = harness.clock.now_ms() + 1
        _, cursor = await feed(storage)
        await storage.processes.prune(ended_before_ms=later, through_cursor=cursor)
        await begun(storage, "q")
        assert await told(storage, 1, cursor) == [("p", "pruned", None), ("q", "registered", None), ("q", "event", 1)]

    async def test_a_reader_keeps_them(self, harness: Harness) -> None:
        """A process stays until the reader has seen its end; its entries outlive it for readers behind."""
        storage = await opened(harness)
        lease = await begun(storage)
        await storage.process_leases.complete(lease.fence, DONE)
        later = harness.clock.now_ms() + 1
        for left in ([("p", "event", 1), ("p", "event", 2)], [("p", "event", 2)]):
            cursor = (await storage.events.changes(limit=1)).cursor
            pruned = await storage.processes.prune(ended_before_ms=later, through_cursor=cursor)
            assert pruned.pruned_process_ids == ()
            # What the reader has seen leaves the feed, and the next pass begins after it.
            assert await told(storage, 1) == left
        assert len(await log(storage)) == 2

    async def test_entries_of_a_removed_process_stay(self, harness: Harness) -> None:
        """A process that is removed without a reader leaves its start and its end in the feed."""
        storage = await opened(harness)
        lease = await begun(storage)
        await storage.process_leases.complete(lease.fence, DONE)
        later = harness.clock.now_ms() + 1
        assert (await storage.processes.prune(ended_before_ms=later, through_cursor=None)).pruned_process_ids == ("p",)
        expected = [("p", "registered", None), ("p", "event", 1), ("p", "event", 2), ("p", "pruned", None)]
        assert await told(storage, 1) == expected

    async def test_the_feed_is_pruned_of_them(self, harness: Harness) -> None:
        """The floor is raised to any of them, and the logs stay whole."""
        storage = await opened(harness)
        expected = await mixed(storage)
        later = harness.clock.now_ms() + 1
        for number in range(1, len(expected) + 1):
            assert await storage.processes.prune_changes(before_ms=later, limit=1) == 1
            assert await told(storage, 100) == expected[number:]
        assert await storage.processes.prune_changes(before_ms=later, limit=1) == 0
        assert [len(await log(storage, name)) for name in "pqr"] == [3, 2, 3]

    @pytest.mark.parametrize("target", ["s", "gone"])
    async def test_an_end_wakes(self, harness: Harness, target: str) -> None:
        """The wake of an end is queued, listed, found if its session is missing, and acknowledged."""
        storage = await opened(harness)
        await started(storage)
        lease = await begun(storage, "p", LAST, wake=target)
        end = event("last", {"text": "it is done"}, key="end")
        appended = await storage.events.append("p", end, fence=lease.fence)
        state = WakeState.QUEUED if target == "s" else WakeState.UNDELIVERABLE
        assert appended.wake is not None
        assert (appended.wake.state, appended.wake.wake.input) == (state, "it is done")
        assert await storage.events.wakes_after("p") == (appended.wake,)
        lost = () if target == "s" else (appended.wake,)
        assert await storage.events.undeliverable_wakes() == lost
        again = await (await harness.open()).events.append("p", end)
        assert (again.replayed, again.wake) == (True, appended.wake)
        assert await storage.events.acknowledge_wake("p", 2)
        assert await storage.events.wakes_after("p") == ()
