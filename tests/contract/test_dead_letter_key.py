"""The contract of a dead letter's source key, session, wake and position in the list."""

from __future__ import annotations

import msgspec
import pytest

from lash.errors import ClaimLost, InvalidInput, SessionDeleted, SessionNotFound, SourceKeyConflict
from lash.model.lease import Lease, LeaseFence
from lash.model.maintenance import PruneReport
from lash.model.process.event import Constant, EventDraft, EventType, WakeState
from lash.model.queue import BatchState, Claim, EmptyReason, Enqueued
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import opened
from tests.contract.queue_state import (
    claimed,
    consuming,
    late,
    leased,
    nothing,
    observe_queue,
    queued,
    texts,
)
from tests.contract.test_dead_letter import batches_of, held, take
from tests.factories.process import DONE, NEWS, consume, event, news, process, waking
from tests.factories.session import commit, created, node, started


class TestDeadLetterKey:
    """Laws of a dead letter's source key, its session and its position in the list."""

    async def test_a_source_key_stays_reserved(self, harness: Harness) -> None:
        """A resend of buried work is recognised and does not requeue it; other content is a conflict."""
        storage, fence, claim = await _keyed(harness)
        await storage.queue.bury(claim, reason="r")
        batch_id = claim.batches[0].batch_id
        resent = await storage.queue.enqueue(late("hello", source_key="k"))
        assert resent == Enqueued(batch_id=batch_id, created=False, state=BatchState.DEAD, batch=None)
        with pytest.raises(SourceKeyConflict):
            await storage.queue.enqueue(late("other", source_key="k"))
        assert nothing(await take(storage, fence)) is EmptyReason.EMPTY

    async def test_a_requeued_source_key_is_pending(self, harness: Harness) -> None:
        """A resend of requeued work returns that batch; its commit consumes the key."""
        storage, fence, claim = await _keyed(harness)
        await storage.queue.bury(claim, reason="r")
        batch = await storage.queue.requeue("s", claim.batches[0].batch_id)
        resent = await storage.queue.enqueue(late("hello", source_key="k"))
        assert (resent.state, resent.batch) == (BatchState.PENDING, batch)
        again = claimed(await take(storage, fence))
        await storage.session("s").commit(consuming(commit(1, node("b", "a")), again))
        assert (await storage.queue.enqueue(late("hello", source_key="k"))).state is BatchState.CONSUMED

    async def test_a_discarded_source_key_is_cancelled(self, harness: Harness) -> None:
        """The key of a discarded letter counts as cancelled, and is pruned by age."""
        storage, _, claim = await _keyed(harness)
        await storage.queue.bury(claim, reason="r")
        await harness.clock.advance(1_000)
        assert await storage.maintenance.prune_source_keys(older_than_ms=0) == PruneReport(removed_count=0)
        assert await storage.queue.discard("s", claim.batches[0].batch_id)
        assert (await storage.queue.enqueue(late("hello", source_key="k"))).state is BatchState.CANCELLED
        await harness.clock.advance(1_000)
        assert await storage.maintenance.prune_source_keys(older_than_ms=999) == PruneReport(removed_count=1)
        assert (await storage.queue.enqueue(late("hello", source_key="k"))).created

    async def test_letters_go_with_their_session(self, harness: Harness) -> None:
        """Deleting a session deletes its letters; a new session of the same id has none."""
        storage, _, claim = await held(harness)
        await storage.queue.bury(claim, reason="r")
        await storage.sessions.delete("s")
        assert await storage.queue.dead() == ()
        for act in (
            storage.queue.bury(claim, reason="r"),
            storage.queue.requeue("s", claim.batches[0].batch_id),
            storage.queue.discard("s", claim.batches[0].batch_id),
            storage.queue.dead(session_id="s"),
        ):
            with pytest.raises(SessionDeleted):
                await act
        await created(storage)
        assert await storage.queue.dead(session_id="s") == ()
        with pytest.raises(ClaimLost):
            await storage.queue.bury(claim, reason="r")

    async def test_there_must_be_a_session(self, harness: Harness) -> None:
        """Each operation on a session that never existed raises SessionNotFound."""
        storage, _, claim = await held(harness)
        for act in (
            storage.queue.bury(msgspec.structs.replace(claim, session_id="missing"), reason="r"),
            storage.queue.requeue("missing", "b"),
            storage.queue.discard("missing", "b"),
            storage.queue.dead(session_id="missing"),
        ):
            with pytest.raises(SessionNotFound, match="'missing'"):
                await act

    async def test_letters_are_read_in_pages(self, harness: Harness) -> None:
        """Pages, of one session or of all, continue behind a cursor and hold no more than the limit."""
        storage = await harness.open()
        for number in range(6):
            name = f"s{number % 2}"
            if number < 2:
                await created(storage, name)
            await queued(storage, late(str(number), session_id=name))
            fence = await leased(storage, session_id=name)
            await storage.queue.bury(claimed(await take(storage, fence)), reason="r")
        every = await storage.queue.dead()
        assert texts(batches_of(every)) == ["0", "1", "2", "3", "4", "5"]
        assert [letter.batch.session_id for letter in every] == ["s0", "s1"] * 3
        assert await storage.queue.dead(limit=2) == every[:2]
        assert await storage.queue.dead(limit=2, after=every[1].position) == every[2:4]
        assert await storage.queue.dead(after=every[5].position) == ()
        assert await storage.queue.dead(session_id="s1") == every[1::2]
        assert await storage.queue.dead(session_id="s1", limit=1, after=every[1].position) == every[3:4]
        assert await storage.queue.dead(session_id="s1", after=every[2].position) == (every[3], every[5])

    async def test_bad_input_is_refused(self, harness: Harness) -> None:
        """Each bad argument is refused with its own message, and nothing is written."""
        storage, _, claim = await held(harness)
        before = await observe_queue(storage)
        for act in (
            storage.queue.bury("claim", reason="r"),  # type: ignore[arg-type]
            storage.queue.bury(msgspec.structs.replace(claim, batches=()), reason="r"),
            storage.queue.bury(claim, reason=""),
            storage.queue.bury(claim, reason=" "),
            storage.queue.bury(claim, reason=None),  # type: ignore[arg-type]
            storage.queue.bury(claim, reason="r" * 5_000),
            storage.queue.bury(claim, reason="r", error=object()),  # type: ignore[arg-type]
            storage.queue.bury(claim, reason="r", error=2**70),
            storage.queue.bury(claim, reason="r", error="\ud800"),
            storage.queue.dead(session_id=""),
            storage.queue.dead(limit=0),
            storage.queue.dead(after=-1),
            storage.queue.dead(after="1"),  # type: ignore[arg-type]
            storage.queue.requeue("s", ""),
            storage.queue.requeue("", "b"),
            storage.queue.discard("s", "\0"),
            storage.queue.discard(" ", "b"),
            storage.queue.abandon(claim, count_attempt=1),  # type: ignore[arg-type]
            storage.queue.abandon(claim, count_attempt=None),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidInput):
                await act
        assert await observe_queue(storage) == before
        assert await storage.queue.dead() == ()
        assert await storage.queue.bury(claim, reason="r") == 2


class TestDeadLetterWake:
    """Laws of wakes of processes in dead letters."""

    async def test_a_buried_wake_is_not_acknowledged(self, harness: Harness) -> None:
        """A buried wake stays open and its process is kept; requeued and consumed, it is acknowledged."""
        storage, claim = await _woken(harness)
        await storage.queue.bury(claim, reason="r")
        assert [wake.state for wake in await storage.events.wakes_after("p")] == [WakeState.QUEUED]
        await storage.processes.complete("p", DONE)
        await harness.clock.advance(1_000)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        assert await storage.processes.get("p") is not None
        batch = await storage.queue.requeue("s", claim.batches[0].batch_id)
        assert [wake.batch_id for wake in await storage.events.wakes_after("p")] == [batch.batch_id]
        await storage.leases.release((await _holder(storage)).fence)
        assert [each.batch_id for each in await consume(storage)] == [batch.batch_id]
        assert await storage.events.wakes_after("p") == ()

    async def test_a_discarded_wake_is_acknowledged(self, harness: Harness) -> None:
        """Discarding acknowledges the wake, as cancelling its batch does."""
        storage, claim = await _woken(harness)
        await storage.queue.bury(claim, reason="r")
        assert await storage.queue.discard("s", claim.batches[0].batch_id)
        assert await storage.events.wakes_after("p") == ()

    async def test_a_replayed_wake_does_not_bring_a_letter_back(self, harness: Harness) -> None:
        """Repeating the event, or another event of the same wake, enqueues nothing while the letter exists."""
        keyed = waking("w", Constant(value="x"), dedupe_key=Constant(value="k"))
        storage, claim = await _woken(harness, keyed, event("w", key="r"))
        await storage.queue.bury(claim, reason="r")
        await storage.events.append("p", event("w", key="r"))
        second = await storage.events.append("p", event("w"))
        assert second.wake is not None
        assert (second.wake.state, second.wake.batch_id) == (WakeState.MERGED, claim.batches[0].batch_id)
        assert await storage.queue.list("s") == ()
        assert len(await storage.queue.dead()) == 1

    async def test_the_wake_of_a_deleted_session_is_undeliverable(self, harness: Harness) -> None:
        """A wake buried in a deleted session becomes undeliverable."""
        storage, claim = await _woken(harness)
        await storage.queue.bury(claim, reason="r")
        await storage.sessions.delete("s")
        assert [wake.process_id for wake in await storage.events.undeliverable_wakes()] == ["p"]


async def _keyed(harness: Harness) -> tuple[Storage, LeaseFence, Claim]:
    """Return a storage, the lease on its session ``s``, and a claim on its only batch, whose source key is ``k``."""
    storage = await harness.open()
    await started(storage)
    fence = await leased(storage)
    await queued(storage, late("hello", source_key="k"))
    return storage, fence, claimed(await take(storage, fence))


async def _woken(
    harness: Harness, declared: EventType = NEWS, happened: EventDraft | None = None
) -> tuple[Storage, Claim]:
    """Return a storage with a process ``p`` that has woken session ``s``, and a claim on the wake."""
    storage = await opened(harness)
    await created(storage)
    await storage.processes.register(process("p", declared, wake_session_id="s"))
    await storage.events.append("p", news() if happened is None else happened)
    return storage, claimed(await take(storage, await leased(storage)))


async def _holder(storage: Storage) -> Lease:
    holder = await storage.leases.holder("s")
    assert holder is not None
    return holder
