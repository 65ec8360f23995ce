"""The contract of `claim_turn`: the lease and the work under it, both or neither."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lash.errors import SessionDeleted, SessionNotFound
from lash.model.effect import CheckpointPoint, Envelope, TurnCheckpoint, TurnScope
from lash.model.lease import Busy
from lash.model.queue import Boundary, ClaimedTurn, ClaimTurnOutcome, EmptyReason, NothingClaimed
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import (
    LONG,
    claimed,
    command,
    consuming,
    early,
    joining,
    late,
    leased,
    observe_queue,
    queued,
    texts,
)
from tests.factories.session import commit, created, node, owner, started

ANN, BOB = owner("ann"), owner("bob")


class TestQueueBegin:
    """Laws of claiming a turn."""

    async def test_a_turn_has_its_lease_and_its_input(self, harness: Harness) -> None:
        """One call returns what a claim of the lease and an idle claim of the queue return."""
        storage = await _storage(harness)
        earlier = await leased(storage, "earlier")
        await storage.leases.release(earlier)
        batches = await queued(storage, joining("a", source_key="k"), joining("b"), late("c"))
        begun = _begun(await storage.queue.claim_turn("s", ANN, ttl_ms=LONG))
        now = harness.clock.now_ms()
        lease, claim = begun.lease, begun.claim
        assert (lease.resource.id, lease.owner, lease.claimed_at_ms, lease.expires_at_ms) == ("s", ANN, now, now + LONG)
        assert lease.fencing == earlier.fencing + 1
        assert await (await harness.open()).leases.holder("s") == lease
        assert (claim.session_id, claim.lease_fencing) == ("s", lease.fencing)
        assert (claim.claimed_at_ms, claim.expires_at_ms) == (now, now + LONG)
        assert claim.batches == tuple(msgspec.structs.replace(batch, attempts=1) for batch in batches[:2])
        assert texts(await storage.queue.list_pending("s")) == ["c"]
        assert (begun.revision, begun.leaf_node_id, begun.recorded) == (1, "a", False)

    async def test_what_was_begun_is_renewed_and_committed(self, harness: Harness) -> None:
        """A renewal keeps lease and claim, a commit consumes and releases them, as after two calls."""
        storage = await _storage(harness)
        await queued(storage, late("a"))
        begun = _begun(await storage.queue.claim_turn("s", ANN, ttl_ms=LONG))
        await harness.clock.advance(LONG - 1)
        await storage.leases.renew(begun.lease.fence, ttl_ms=LONG)
        await harness.clock.advance(LONG - 1)
        assert await storage.queue.list_pending("s") == ()
        values = consuming(commit(begun.revision, node("n", "a")), begun.claim)
        fence = begun.lease.fence
        await storage.session("s").commit(msgspec.structs.replace(values, fence=fence, release=fence))
        assert await storage.queue.list("s") == ()
        assert await storage.leases.holder("s") is None

    async def test_a_live_lease_keeps_its_session(self, harness: Harness) -> None:
        """While a lease is live no turn is claimed, not even by its holder, until it expires."""
        storage = await _storage(harness)
        await queued(storage, late("a"))
        await leased(storage, "ann")
        held = await storage.leases.holder("s")
        assert held is not None
        before = await observe_queue(storage)
        await harness.clock.advance(LONG - 1)
        for who in (ANN, BOB):
            assert await storage.queue.claim_turn("s", who, ttl_ms=2 * LONG) == Busy(holder=held)
        assert await storage.leases.holder("s") == held
        assert (await observe_queue(storage)).queue == before.queue
        await harness.clock.advance(1)
        assert _begun(await storage.queue.claim_turn("s", BOB, ttl_ms=LONG)).lease.fencing == held.fencing + 1

    async def test_without_work_no_lease_is_taken(self, harness: Harness) -> None:
        """An empty queue, delayed work or a command in front leaves the lease alone, with the reason."""
        storage = await _storage(harness)
        due = harness.clock.now_ms() + 500
        assert await _try(storage) == NothingClaimed(reason=EmptyReason.EMPTY)
        await queued(storage, late("a", available_at_ms=due))
        assert await _try(storage) == NothingClaimed(reason=EmptyReason.NOT_YET_AVAILABLE, next_available_at_ms=due)
        await queued(storage, command("c"), late("b"))
        outcome = await _try(storage)
        assert isinstance(outcome, NothingClaimed)
        assert outcome.reason is EmptyReason.COMMAND_AT_HEAD
        assert await storage.leases.holder("s") is None
        assert [batch.attempts for batch in await storage.queue.list("s")] == [0, 0, 0]

    async def test_delayed_work_begins_when_it_is_due(self, harness: Harness) -> None:
        """Due work has the position at which it was enqueued."""
        storage = await _storage(harness)
        await queued(storage, late("a", available_at_ms=harness.clock.now_ms() + 10), early("b"))
        await harness.clock.advance(10)
        assert texts(_begun(await _try(storage)).claim.batches) == ["a"]

    async def test_claims_of_before_do_not_hold_anything_back(self, harness: Harness) -> None:
        """A claim ends with its lease, even before its expiry; the new claim counts another attempt."""
        storage = await _storage(harness)
        await queued(storage, late("a"))
        fence = await leased(storage, "ann")
        claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=LONG))
        await storage.leases.release(fence)
        (batch,) = _begun(await _try(storage)).claim.batches
        assert batch.attempts == 2

    async def test_a_paused_session_is_left_alone(self, harness: Harness) -> None:
        """No turn is claimed while its session pauses, until the exact end of the pause."""
        storage = await _storage(harness)
        await queued(storage, late("a"))
        fence = await leased(storage, "ann")
        await storage.leases.release(fence, pause_ms=500)
        until = harness.clock.now_ms() + 500
        await harness.clock.advance(499)
        assert await _try(storage) == NothingClaimed(reason=EmptyReason.PAUSED, next_available_at_ms=until)
        assert await storage.leases.holder("s") is None
        await harness.clock.advance(1)
        begun = _begun(await _try(storage))
        await storage.leases.release(begun.lease.fence)
        work = await storage.work.poll(sessions=5, processes=0, owner=BOB)
        assert (work.session_ids, work.next_at_ms) == (("s",), None)

    async def test_records_of_an_earlier_attempt_are_told(self, harness: Harness) -> None:
        """The answer says whether anything is recorded for the turn, which is named after its first batch."""
        storage = await _storage(harness)
        first, second = await queued(storage, late("a"), late("b"))
        begun = _begun(await _try(storage))
        scope = TurnScope(session_id="s", turn_id=f"turn:{first.batch_id}")
        step = Envelope(scope=scope, replay_key="k", command=TurnCheckpoint(checkpoint=CheckpointPoint.AFTER_WORK))
        await storage.effects.record(begun.lease.fence, step, {})
        await storage.queue.abandon(begun.claim, count_attempt=False)
        await storage.leases.release(begun.lease.fence)
        again = _begun(await _try(storage))
        assert (again.claim.batches[0].attempts, again.recorded) == (1, True)
        await storage.leases.release(again.lease.fence)
        await storage.queue.cancel("s", first.batch_id)
        other = _begun(await _try(storage))
        assert (other.claim.batches[0].batch_id, other.recorded) == (second.batch_id, False)

    async def test_of_many_who_begin_one_has_the_turn(self, harness: Harness) -> None:
        """Of concurrent callers on several handles one gets each turn, and the others get its holder."""
        storages = [await harness.open() for _ in range(3)]
        for number in range(5):
            session_id = f"s{number}"
            await created(storages[0], session_id)
            await queued(storages[0], late("a", session_id=session_id), late("b", session_id=session_id))
            outcomes = await asyncio.gather(
                *(
                    storage.queue.claim_turn(session_id, owner(f"w{index}"), ttl_ms=LONG)
                    for index, storage in enumerate(storages)
                )
            )
            (winner,) = [outcome for outcome in outcomes if isinstance(outcome, ClaimedTurn)]
            assert [outcome for outcome in outcomes if outcome is not winner] == 2 * [Busy(holder=winner.lease)]
            assert texts(winner.claim.batches) == ["a"]
            assert [batch.attempts for batch in await storages[1].queue.list(session_id)] == [1, 0]

    async def test_a_session_must_be_there(self, harness: Harness) -> None:
        """A missing session raises SessionNotFound or SessionDeleted, as for every other claim."""
        storage = await _storage(harness)
        with pytest.raises(SessionNotFound):
            await storage.queue.claim_turn("other", ANN, ttl_ms=LONG)
        await storage.sessions.delete("s")
        with pytest.raises(SessionDeleted):
            await storage.queue.claim_turn("s", ANN, ttl_ms=LONG)

    async def test_a_new_session_has_no_revision(self, harness: Harness) -> None:
        """Before the first commit the revision is zero."""
        storage = await harness.open()
        await created(storage)
        await queued(storage, late("a"))
        assert _begun(await _try(storage)).revision == 0


async def _storage(harness: Harness) -> Storage:
    storage = await harness.open()
    await started(storage)
    return storage


async def _try(storage: Storage) -> ClaimTurnOutcome:
    return await storage.queue.claim_turn("s", BOB, ttl_ms=LONG)


def _begun(outcome: ClaimTurnOutcome) -> ClaimedTurn:
    assert isinstance(outcome, ClaimedTurn), outcome
    return outcome
