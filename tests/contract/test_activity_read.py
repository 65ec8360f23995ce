"""The contract of reading a session besides its activity: the queue, and the changes of its processes."""

from __future__ import annotations

import base64

from msgspec.structs import replace

from lash.model.activity import QueueMark
from lash.model.gap import GapReason
from lash.model.process.process import ChangeKind, ProcessChange, ProcessStatus
from lash.model.queue import Boundary
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import TTL, claimed, consuming, late, leased, queued
from tests.contract.test_activity import sessions
from tests.factories.process import DONE, event, granted, process, scope
from tests.factories.session import commit, node, started

RUNNING = ProcessStatus.RUNNING


class TestActivityQueue:
    """How a read shows the queue of a session."""

    async def test_a_look_shows_how_the_queue_stands(self, harness: Harness) -> None:
        """A read counts queued, claimed and dead work; every step of a batch changes the mark."""
        storage = await sessions(harness, "other")
        session = await started(storage)
        assert await queue(storage) == QueueMark()
        first, second = await queued(storage, late("a"), late("b"))
        await queued(storage, late("x", session_id="other"))
        assert await queue(storage) == QueueMark(queued=2, newest_seq=second.seq)
        fence = await leased(storage)
        claim = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL))
        assert await queue(storage) == QueueMark(queued=2, claimed=1, newest_seq=second.seq)
        await storage.queue.bury(claim, reason="r")
        assert await queue(storage) == QueueMark(queued=1, newest_seq=second.seq, dead=1)
        await storage.queue.requeue("s", first.batch_id)
        revived = (await storage.queue.list("s"))[-1]
        assert revived.seq > second.seq
        assert await queue(storage) == QueueMark(queued=2, newest_seq=revived.seq)
        claim = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL))
        await session.commit(consuming(commit(1, node("n", "a"), fence=fence), claim))
        assert await queue(storage) == QueueMark(queued=1, newest_seq=revived.seq)
        await storage.queue.cancel("s", first.batch_id)
        assert await queue(storage) == QueueMark()


class TestActivityProcess:
    """Which changes of processes a session sees."""

    async def test_a_session_sees_what_wakes_it_and_what_it_was_granted(self, harness: Harness) -> None:
        """A session sees changes of processes that wake it or are granted to it, in order, and no others."""
        storage = await sessions(harness, "s", "other")
        begin = await change(storage)
        await storage.processes.register(process("wakes", wake_session_id="s"))
        await storage.processes.register(process("granted"))
        await storage.processes.register(process("hidden", wake_session_id="other"))
        await storage.grants.grant(granted("s", "granted"))
        await storage.grants.grant(granted("other", "hidden"))
        for process_id in ("granted", "hidden", "wakes"):
            await storage.events.append(process_id, event())
        await storage.processes.complete("wakes", DONE)
        assert await changes(storage, begin) == [
            ProcessChange(process_id="wakes", kind=ChangeKind.REGISTERED, status=RUNNING),
            ProcessChange(process_id="granted", kind=ChangeKind.REGISTERED, status=RUNNING),
            ProcessChange(process_id="granted", kind=ChangeKind.EVENT, sequence=1, status=RUNNING),
            ProcessChange(process_id="wakes", kind=ChangeKind.EVENT, sequence=1, status=RUNNING),
            ProcessChange(process_id="wakes", kind=ChangeKind.EVENT, sequence=2, status=ProcessStatus.COMPLETED),
        ]
        assert await changes(storage, await change(storage)) == []

    async def test_a_process_that_cannot_be_seen_any_more_is_not_told(self, harness: Harness) -> None:
        """Revoking a grant or pruning a process hides its changes; the cursor still advances."""
        storage = await sessions(harness, "s")
        begin = await change(storage)
        await storage.processes.register(process("p"))
        await storage.grants.grant(granted("s", "p"))
        await storage.grants.revoke(scope("s"), "p")
        await storage.processes.register(process("q", wake_session_id="s"))
        await storage.processes.complete("q", DONE)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms() + 1, through_cursor=None)
        assert await changes(storage, begin) == []

    async def test_each_change_has_its_cursor(self, harness: Harness) -> None:
        """Reading on from any change repeats none and skips none, at any page size."""
        storage = await sessions(harness, "s")
        begin = await change(storage)
        await storage.processes.register(process("p", wake_session_id="s"))
        for number in range(5):
            await storage.processes.register(process(f"hidden-{number}"))
            await storage.events.append("p", event(payload=number))
        whole = await storage.activity.process_changes("s", begin)
        assert whole is not None
        found = [each.change.sequence for each in whole.changes]
        assert found == [None, 1, 2, 3, 4, 5]
        for index, each in enumerate(whole.changes):
            assert await changes(storage, each.cursor, limit=2) == [one.change for one in whole.changes[index + 1 :]]

    async def test_pruned_changes_are_a_gap(self, harness: Harness) -> None:
        """A cursor from before pruned changes is a gap; a cursor at the end missed nothing."""
        storage = await sessions(harness, "s")
        begin = await change(storage)
        await storage.processes.register(process("p", wake_session_id="s"))
        end = await change(storage)
        await storage.processes.prune(ended_before_ms=0, through_cursor=end)
        assert await storage.activity.process_changes("s", begin) is None
        assert await changes(storage, end) == []
        assert await change(storage) == end
        await storage.events.append("p", event())
        assert len(await changes(storage, end)) == 1

    async def test_a_pruning_that_removes_nothing_is_no_gap(self, harness: Harness) -> None:
        """A pruning that removes no change reports no gap."""
        storage = await sessions(harness, "s")
        begin = await change(storage)
        await storage.processes.register(process("p", wake_session_id="s"))
        await storage.processes.prune(ended_before_ms=0, through_cursor=None)
        await storage.processes.prune(ended_before_ms=0, through_cursor=begin)
        assert len(await changes(storage, begin)) == 1

    async def test_a_feed_that_was_cut_back_is_a_gap(self, harness: Harness) -> None:
        """A cursor ahead of the feed is unavailable."""
        storage = await sessions(harness, "s")
        await storage.processes.register(process("p", wake_session_id="s"))
        here = (await storage.activity.read("s")).newest
        forged = base64.urlsafe_b64encode(b"c1:9000000000:9000000000").decode()
        look = await storage.activity.read("s", replace(here, change=forged))
        assert look.gap is GapReason.UNAVAILABLE


async def queue(storage: Storage) -> QueueMark:
    """Return the queue state of session ``s``."""
    return (await storage.activity.read("s")).newest.queue


async def change(storage: Storage) -> str:
    """Return the end of the feed of changes."""
    return (await storage.activity.read("s")).newest.change


async def changes(storage: Storage, cursor: str, *, limit: int = 256) -> list[ProcessChange]:
    """Return all changes behind a cursor that session ``s`` may see; fail the test if some are missing."""
    found: list[ProcessChange] = []
    end = await change(storage)
    while cursor != end:
        seen = await storage.activity.process_changes("s", cursor, limit=limit)
        assert seen is not None
        found += [each.change for each in seen.changes]
        cursor = seen.cursor
    return found
