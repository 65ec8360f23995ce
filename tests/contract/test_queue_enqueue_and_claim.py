"""The contract of `enqueue_and_claim`: a message and the turn that begins with it, in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec
import pytest

from lash.errors import SessionDeleted, SessionNotFound, SourceKeyConflict
from lash.model.queue import BatchDraft, BatchState, Boundary, ClaimedTurn, Enqueued
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, claimed, command, consuming, early, late, leased, queued, texts
from tests.factories.session import commit, created, node, owner, started

ANN, BOB = owner("ann"), owner("bob")


class TestQueueEnqueueAndClaim:
    """Laws of a message that begins its turn."""

    async def test_a_message_begins_its_turn(self, harness: Harness) -> None:
        """The answers are those of an enqueue and of a claim of the turn, and every storage sees both."""
        storage, now = await _storage(harness), harness.clock.now_ms()
        earlier = await leased(storage, "earlier")
        await storage.leases.release(earlier)
        enqueued, turn = await _send(storage, late("a", source_key="k"))
        assert turn is not None
        (batch,) = await (await harness.open()).queue.list("s")
        assert (texts([batch]), batch.attempts, batch.source_key, batch.enqueued_at_ms) == (["a"], 1, "k", now)
        assert enqueued == Enqueued(batch_id=batch.batch_id, created=True, batch=batch)
        lease, claim = turn.lease, turn.claim
        assert (lease.resource.id, lease.owner, lease.claimed_at_ms, lease.expires_at_ms) == ("s", ANN, now, now + LONG)
        assert lease.fencing == earlier.fencing + 1
        assert await (await harness.open()).leases.holder("s") == lease
        assert (claim.session_id, claim.lease_fencing, claim.batches) == ("s", lease.fencing, (batch,))
        assert (claim.claimed_at_ms, claim.expires_at_ms) == (now, now + LONG)
        assert (turn.revision, turn.leaf_node_id, turn.recorded, turn.wake_seq) == (1, "a", False, 0)
        assert await storage.queue.list_pending("s") == ()
        assert await storage.queue.ready_sessions() == ()

    async def test_the_turn_is_renewed_and_committed(self, harness: Harness) -> None:
        """Lease and claim hold like those of two calls: a renewal keeps both, a commit consumes the message."""
        storage = await _storage(harness)
        _, turn = await _send(storage, early("a", source_key="k"))
        assert turn is not None
        await harness.clock.advance(LONG - 1)
        await storage.leases.renew(turn.lease.fence, ttl_ms=LONG)
        await harness.clock.advance(LONG - 1)
        assert await storage.queue.list_pending("s") == ()
        values = consuming(commit(turn.revision, node("n", "a")), turn.claim)
        fence = turn.lease.fence
        await storage.session("s").commit(msgspec.structs.replace(values, fence=fence, release=fence))
        assert await storage.queue.list("s") == ()
        assert await storage.leases.holder("s") is None
        again, none = await _send(storage, early("a", source_key="k"))
        assert (again.created, again.state, none) == (False, BatchState.CONSUMED, None)
        _, following = await _send(storage, late("b"))
        assert following is not None
        assert (following.revision, following.leaf_node_id) == (2, "n")

    async def test_a_turn_that_is_not_finished_is_another_workers(self, harness: Harness) -> None:
        """Once the lease has expired, any worker claims the message, as its second attempt."""
        storage = await _storage(harness)
        _, turn = await _send(storage, late("a"))
        assert turn is not None
        await harness.clock.advance(LONG)
        assert await storage.queue.ready_sessions() == ("s",)
        taken = await storage.queue.claim_turn("s", BOB, ttl_ms=LONG)
        assert isinstance(taken, ClaimedTurn)
        assert (taken.lease.fencing, taken.claim.batches[0].attempts) == (turn.lease.fencing + 1, 2)

    @pytest.mark.parametrize(
        "draft",
        [pytest.param(late("b", available_at_ms=10**15), id="delayed"), pytest.param(command("b"), id="command")],
    )
    async def test_what_is_no_turn_yet_is_only_queued(self, harness: Harness, draft: BatchDraft) -> None:
        """Delayed work and commands take no lease."""
        storage = await _storage(harness)
        await _is_only_queued(storage, draft, ["b"])

    async def test_nothing_is_overtaken(self, harness: Harness) -> None:
        """Behind other queued work a message waits: ready, delayed, claimed under an expired lease, or a command."""
        storage = await _storage(harness)
        for session_id, before in (
            ("ready", late("a", session_id="ready")),
            ("delayed", late("a", session_id="delayed", available_at_ms=10**15)),
            ("due", late("a", session_id="due", available_at_ms=harness.clock.now_ms() + 1)),
            ("command", command("a", session_id="command")),
        ):
            await created(storage, session_id)
            await queued(storage, before)
            await harness.clock.advance(1)
            for text in ("early", "late"):
                draft = (early if text == "early" else late)(text, session_id=session_id)
                await _is_only_queued(storage, draft, ["a", "early", "late"][: 2 if text == "early" else 3])

    async def test_a_held_session_is_left_to_its_holder(self, harness: Harness) -> None:
        """With a lease that another caller or this one holds, live or lapsed, a message is only queued."""
        storage = await _storage(harness)
        for who, left_ms in (("bob", LONG), ("ann", LONG), ("bob", 1)):
            fence = await leased(storage, who, ttl_ms=left_ms)
            await harness.clock.advance(1)
            enqueued, turn = await _send(storage, late("a"))
            assert turn is None
            assert enqueued.batch is not None
            assert enqueued.batch.attempts == 0
            await storage.queue.cancel("s", enqueued.batch_id)
            await storage.leases.release(fence)

    async def test_a_claim_keeps_the_session(self, harness: Harness) -> None:
        """While its only batch is claimed, and while that claim is left over, a message is only queued."""
        storage = await _storage(harness)
        await queued(storage, late("a"))
        fence = await leased(storage, "bob")
        claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=LONG))
        await _is_only_queued(storage, late("b"), ["a", "b"])
        await storage.leases.release(fence)
        await _is_only_queued(storage, late("c"), ["a", "b", "c"])

    async def test_a_pause_is_kept(self, harness: Harness) -> None:
        """A paused or parked session gets the message and no turn; the pause ends as it would without it."""
        storage = await _storage(harness)
        fence = await leased(storage, "bob")
        await storage.leases.release(fence, pause_ms=500)
        await _is_only_queued(storage, late("a"), ["a"])
        await harness.clock.advance(500)
        taken = await storage.queue.claim_turn("s", BOB, ttl_ms=LONG)
        assert isinstance(taken, ClaimedTurn)
        await storage.leases.park(taken.lease.fence, wake_seq=0, until_ms=None, waiting_for="session c")
        await _is_only_queued(storage, late("b"), ["a", "b"])

    async def test_a_known_key_begins_nothing(self, harness: Harness) -> None:
        """A repeat returns the first batch; other content under the key is refused; neither takes the lease."""
        storage = await _storage(harness)
        (first,) = await queued(storage, late("a", source_key="k"))
        await storage.queue.cancel("s", first.batch_id)
        enqueued, turn = await _send(storage, late("a", source_key="k"))
        assert turn is None
        assert enqueued == Enqueued(batch_id=first.batch_id, created=False, state=BatchState.CANCELLED, batch=None)
        with pytest.raises(SourceKeyConflict):
            await _send(storage, late("b", source_key="k"))
        assert await storage.leases.holder("s") is None

    async def test_of_many_who_send_one_has_the_turn(self, harness: Harness) -> None:
        """Of concurrent senders on several storages one begins a turn, with its own message; no message is lost."""
        storages = [await harness.open() for _ in range(3)]
        for number in range(5):
            session_id = f"s{number}"
            await created(storages[0], session_id)
            calls: list[Awaitable[tuple[Enqueued, ClaimedTurn | None]]] = [
                storage.queue.enqueue_and_claim(late(f"{index}", session_id=session_id), ANN, ttl_ms=LONG)
                for index, storage in enumerate(2 * storages)
            ]
            answers = await asyncio.gather(*calls)
            # On PostgreSQL the one that would have begun may find the lease locked by another that does not begin.
            began = [(sent, turn) for sent, turn in answers if turn is not None]
            assert len(began) <= 1
            for sent, turn in began:
                assert [each.batch_id for each in turn.claim.batches] == [sent.batch_id]
            listed = await storages[0].queue.list(session_id)
            assert sorted(texts(listed)) == ["0", "1", "2", "3", "4", "5"]
            assert sum(batch.attempts for batch in listed) == len(began)

    async def test_a_session_must_be_there(self, harness: Harness) -> None:
        """A missing session raises SessionNotFound or SessionDeleted, as for every other message."""
        storage = await _storage(harness)
        with pytest.raises(SessionNotFound):
            await _send(storage, late("a", session_id="other"))
        await storage.sessions.delete("s")
        for draft in (late("a"), late("a", source_key="k")):
            with pytest.raises(SessionDeleted):
                await _send(storage, draft)


async def _storage(harness: Harness) -> Storage:
    storage = await harness.open()
    await started(storage)
    return storage


async def _send(storage: Storage, draft: BatchDraft) -> tuple[Enqueued, ClaimedTurn | None]:
    return await storage.queue.enqueue_and_claim(draft, ANN, ttl_ms=LONG)


async def _is_only_queued(storage: Storage, draft: BatchDraft, expected: list[str]) -> None:
    """Send a message to a session; nothing is claimed, and the lease stays as it is."""
    holder = await storage.leases.holder(draft.session_id)
    enqueued, turn = await _send(storage, draft)
    assert turn is None
    assert enqueued.created
    listed = await storage.queue.list(draft.session_id)
    assert texts(listed) == expected
    assert listed[-1].attempts == 0
    assert await storage.leases.holder(draft.session_id) == holder
