"""The contract of parked turns: no turn of the session runs until the turn is woken; no reason to wake it is lost."""

from __future__ import annotations

import msgspec
import pytest

from lash.errors import InvalidInput, LeaseLost
from lash.model.effect import TurnScope
from lash.model.lease import LeaseOwner, ParkedTurn
from lash.model.process.process import Success
from lash.model.queue import BatchDraft, Boundary, ClaimedTurn, EmptyReason, NothingClaimed, QueuedState
from lash.model.session.session import SessionFilter, SessionState
from lash.model.wait import CustomIdentity, Resolved
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, claimed, command, consuming, early, late, leased, queued, texts
from tests.contract.work_state import FOREVER, looked, run
from tests.factories.process import process
from tests.factories.session import commit, created, node, owner

ANN, BOB = owner("ann"), owner("bob")


class TestParkTurn:
    """Laws of parking and waking one turn."""

    async def test_a_parked_turn_is_off_the_work_list(self, harness: Harness) -> None:
        """Neither a poll nor a claim finds the session, whatever else is queued; its lease is free."""
        storage = await _storage(harness)
        turn = await _turn(storage)
        assert turn.wake_seq == 0
        assert await _park(storage, turn) is True
        assert await storage.leases.holder("s") is None
        assert await storage.leases.parked("s") == ParkedTurn(waiting_for="session child")
        await queued(storage, late("next"), early("soon"))
        await harness.clock.advance(FOREVER)
        work = await looked(storage)
        assert (work.session_ids, work.next_at_ms, work.wakes_due) == ((), None, False)
        answer = await storage.queue.claim_turn("s", BOB, ttl_ms=LONG)
        assert answer == NothingClaimed(reason=EmptyReason.PARKED, next_available_at_ms=None)

    async def test_a_parked_session_waits(self, harness: Harness) -> None:
        """A list shows the session as waiting, and for what; once it is woken, as queued."""
        storage = await _storage(harness)
        assert await storage.leases.parked("s") is None
        await _parked(storage)
        waiting = SessionFilter(state=SessionState.WAITING)
        (shown,) = (await storage.sessions.list(waiting, with_state=True)).sessions
        assert (shown.state, shown.waiting_for) == (SessionState.WAITING, "session child")
        assert (await storage.counts()).sessions[SessionState.WAITING] == 1
        await queued(storage, command("x"))
        await storage.work.wake()
        assert (await storage.sessions.list(waiting)).sessions == ()
        (shown,) = (await storage.sessions.list(with_state=True)).sessions
        assert (shown.state, shown.waiting_for) == (SessionState.QUEUED, None)
        assert (await storage.counts()).sessions[SessionState.QUEUED] == 1

    async def test_a_list_of_input_shows_the_reason(self, harness: Harness) -> None:
        """The input of the turn is parked, with what it waits for and until when; at that moment it is ready."""
        storage = await _storage(harness)
        turn = await _turn(storage)
        await queued(storage, late("next"), late("later", available_at_ms=2**62))
        until = harness.clock.now_ms() + 50
        assert await _park(storage, turn, until)
        parked = ParkedTurn(waiting_for="session child", until_ms=until)
        states = [QueuedState.PARKED, QueuedState.READY, QueuedState.DELAYED]
        for prefix in (None, "s"):
            found = await storage.queue.list_all(prefix=prefix)
            assert [each.state for each in found] == states
            assert [each.parked for each in found] == [parked, None, None]
            for each in found:
                assert await storage.queue.list_all(prefix=prefix, state=each.state) == (each,)
        await harness.clock.advance(50)
        found = await storage.queue.list_all()
        assert [(each.state.value, each.parked) for each in found] == [
            ("ready", None),
            ("ready", None),
            ("delayed", None),
        ]

    async def test_a_moment_makes_it_ready(self, harness: Harness) -> None:
        """At its moment the turn can be claimed, before later input, under the same id and as the same attempt."""
        storage = await _storage(harness)
        turn = await _turn(storage)
        due = harness.clock.now_ms() + 5_000
        assert await _park(storage, turn, until_ms=due)
        await queued(storage, late("next"))
        assert (await looked(storage)).next_at_ms == due
        assert await storage.leases.parked("s") == ParkedTurn(waiting_for="session child", until_ms=due)
        await harness.clock.advance(4_999)
        assert (await looked(storage)).session_ids == ()
        await harness.clock.advance(1)
        assert (await looked(storage)).session_ids == ("s",)
        again = await _turn(storage, BOB)
        assert (texts(again.claim.batches), again.claim.batches[0].attempts) == (["a"], 1)
        assert again.claim.batches[0].batch_id == turn.claim.batches[0].batch_id
        assert again.lease.fencing == turn.lease.fencing + 1

    async def test_a_batch_that_leaves_the_queue_wakes_its_waiter(self, harness: Harness) -> None:
        """A consumed, buried or cancelled batch, or one deleted with its session, is a reason to continue."""
        storage = await _storage(harness)
        for number, leave in enumerate((_consume, _bury, _cancel, _delete)):
            child = f"child{number}"
            await created(storage, child)
            (asked,) = await queued(storage, _asking(child))
            assert await _park(storage, await _turn(storage))
            await leave(storage, child, asked.batch_id)
            assert (await looked(storage)).wakes_due
            assert await storage.work.wake() == ("s",)
            assert (await looked(storage)).session_ids == ("s",)
            turn = await _turn(storage)
            assert (texts(turn.claim.batches), turn.wake_seq) == (["a"], number + 1)
            await storage.queue.abandon(turn.claim, count_attempt=False)
            await storage.leases.release(turn.lease.fence)

    async def test_the_end_of_a_process_wakes_its_session(self, harness: Harness) -> None:
        """The end of a process that works for the session is a reason to continue; its other events are none."""
        storage = await _storage(harness)
        registration = msgspec.structs.replace(process("p"), wake_session_id="s")
        await storage.processes.register(registration)
        await _parked(storage)
        acquired = await run(storage)
        assert await storage.work.wake() == ()
        await storage.process_leases.complete(acquired.lease.fence, Success(value=1))
        assert await storage.work.wake() == ("s",)
        assert (await looked(storage)).session_ids == ("s",)

    async def test_a_resolved_wait_wakes_its_session(self, harness: Harness) -> None:
        """A resolution, and the deadline of a wait, are reasons to continue; a wait of another session is none."""
        storage = await _storage(harness)
        await created(storage, "other")
        scope = TurnScope(session_id="s", turn_id="t")
        key = await storage.waits.key(scope, CustomIdentity(key="approval"))
        other = await storage.waits.key(TurnScope(session_id="other", turn_id="t"), CustomIdentity(key="approval"))
        limited = await storage.waits.key(scope, CustomIdentity(key="limited"))
        for each in (key, other):
            await storage.waits.open(each)
        await storage.waits.open(limited, timeout_ms=1_000)
        await _parked(storage)
        await storage.waits.resolve(other, Resolved(value=1))
        assert await storage.work.wake() == ()
        await storage.waits.resolve(key, Resolved(value=1))
        assert await storage.work.wake() == ("s",)
        assert await _park(storage, await _turn(storage))
        await harness.clock.advance(1_000)
        assert await storage.waits.expire() == 1
        assert await storage.work.wake() == ("s",)

    async def test_a_command_wakes_its_session(self, harness: Harness) -> None:
        """A command that is enqueued continues the parked turn; the turn comes first."""
        storage = await _storage(harness)
        await _parked(storage)
        await queued(storage, command("cancel"))
        assert await storage.work.wake() == ("s",)
        assert texts((await _turn(storage)).claim.batches) == ["a"]

    async def test_a_reason_during_the_run_is_not_lost(self, harness: Harness) -> None:
        """A turn is not parked if it was woken since its claim: its input is queued, and no attempt is counted."""
        storage = await _storage(harness)
        await created(storage, "child")
        (asked,) = await queued(storage, _asking("child"))
        turn = await _turn(storage)
        await _consume(storage, "child", asked.batch_id)
        assert await storage.work.wake() == ()
        assert await _park(storage, turn) is False
        assert (await looked(storage)).session_ids == ("s",)
        again = await _turn(storage)
        assert (again.claim.batches[0].attempts, again.wake_seq) == (1, 1)

    async def test_a_reason_that_was_not_counted_stays(self, harness: Harness) -> None:
        """A reason that no worker has counted when the turn parks wakes it afterwards; each is counted once."""
        storage = await _storage(harness)
        await created(storage, "child")
        (asked,) = await queued(storage, _asking("child"))
        turn = await _turn(storage)
        await _consume(storage, "child", asked.batch_id)
        assert await _park(storage, turn) is True
        assert (await looked(storage)).wakes_due
        second = await harness.open()
        assert await second.work.wake() == ("s",)
        assert (await looked(storage)).wakes_due is False
        assert await storage.work.wake() == ()

    async def test_early_input_is_parked_with_its_turn(self, harness: Harness) -> None:
        """Everything that was claimed under the lease is parked, and is there again at the next claim."""
        storage = await _storage(harness)
        turn = await _turn(storage)
        await queued(storage, early("b"))
        fence = turn.lease.fence
        claimed(await storage.queue.claim(fence, boundary=Boundary.ACTIVE_TURN_CHECKPOINT, ttl_ms=LONG))
        assert await _park(storage, turn)
        assert [batch.attempts for batch in await storage.queue.list("s")] == [1, 1]
        await queued(storage, command("x"))
        await storage.work.wake()
        again = await _turn(storage)
        assert texts(again.claim.batches) == ["a"]
        second = await storage.queue.claim(again.lease.fence, boundary=Boundary.ACTIVE_TURN_CHECKPOINT, ttl_ms=LONG)
        assert texts(claimed(second).batches) == ["b"]

    async def test_cancelled_input_frees_the_session(self, harness: Harness) -> None:
        """If the input of a parked turn is cancelled, later input gets its turn."""
        storage = await _storage(harness)
        turn = await _turn(storage)
        await _park(storage, turn)
        await queued(storage, late("next"))
        assert await storage.queue.cancel("s", turn.claim.batches[0].batch_id) is not None
        assert await storage.work.wake() == ("s",)
        assert texts((await _turn(storage)).claim.batches) == ["next"]

    async def test_a_claim_of_the_lease_makes_it_ready(self, harness: Harness) -> None:
        """A worker that takes the lease of a parked session and releases it, or dies, leaves the turn ready."""
        storage = await _storage(harness)
        await _parked(storage)
        await storage.leases.release(await leased(storage))
        assert (await looked(storage)).session_ids == ("s",)
        await leased(storage, ttl_ms=1_000)
        assert (await looked(storage)).session_ids == ()
        await harness.clock.advance(1_000)
        assert (await looked(storage)).session_ids == ("s",)
        assert texts((await _turn(storage)).claim.batches) == ["a"]
        assert (await looked(storage)).session_ids == ()

    async def test_a_lost_lease_parks_nothing(self, harness: Harness) -> None:
        """A fence that does not hold a live lease is refused, and nothing changes."""
        storage = await _storage(harness)
        turn = await _turn(storage)
        await harness.clock.advance(LONG)
        with pytest.raises(LeaseLost, match="expired"):
            await _park(storage, turn)
        other = await _turn(storage, BOB)
        with pytest.raises(LeaseLost):
            await _park(storage, turn)
        assert await storage.leases.holder("s") == other.lease
        assert other.claim.batches[0].attempts == 2

    async def test_arguments(self, harness: Harness) -> None:
        """Arguments that cannot be stored are refused."""
        storage = await _storage(harness)
        fence = (await _turn(storage)).lease.fence
        with pytest.raises(InvalidInput, match="wake_seq"):
            await storage.leases.park(fence, wake_seq=-1, until_ms=None, waiting_for="x")
        with pytest.raises(InvalidInput, match="until_ms"):
            await storage.leases.park(fence, wake_seq=0, until_ms=-1, waiting_for="x")
        with pytest.raises(InvalidInput, match="waiting_for"):
            await storage.leases.park(fence, wake_seq=0, until_ms=None, waiting_for="")
        with pytest.raises(InvalidInput, match="limit"):
            await storage.work.wake(limit=0)


async def _storage(harness: Harness) -> Storage:
    """Open a storage with the session ``s``, which has the input ``a``."""
    storage = await harness.open()
    await created(storage, "s")
    await queued(storage, late("a"))
    return storage


async def _turn(storage: Storage, who: LeaseOwner = ANN) -> ClaimedTurn:
    turn = await storage.queue.claim_turn("s", who, ttl_ms=LONG)
    assert isinstance(turn, ClaimedTurn), turn
    return turn


async def _park(storage: Storage, turn: ClaimedTurn, until_ms: int | None = None) -> bool:
    assert turn.wake_seq is not None
    return await storage.leases.park(
        turn.lease.fence, wake_seq=turn.wake_seq, until_ms=until_ms, waiting_for="session child"
    )


async def _parked(storage: Storage) -> None:
    assert await _park(storage, await _turn(storage))


def _asking(child: str) -> BatchDraft:
    return msgspec.structs.replace(late("question", session_id=child), wake_session_id="s")


async def _consume(storage: Storage, child: str, batch_id: str) -> None:
    turn = await storage.queue.claim_turn(child, BOB, ttl_ms=LONG)
    assert isinstance(turn, ClaimedTurn)
    assert turn.claim.batches[0].batch_id == batch_id
    plain = commit(0, node("reply"), session_id=child, fence=turn.lease.fence, release=turn.lease.fence)
    await storage.session(child).commit(consuming(plain, turn.claim))


async def _bury(storage: Storage, child: str, _batch_id: str) -> None:
    turn = await storage.queue.claim_turn(child, BOB, ttl_ms=LONG)
    assert isinstance(turn, ClaimedTurn)
    await storage.queue.bury(turn.claim, reason="it failed")


async def _cancel(storage: Storage, child: str, batch_id: str) -> None:
    assert await storage.queue.cancel(child, batch_id) is not None


async def _delete(storage: Storage, child: str, _batch_id: str) -> None:
    assert await storage.sessions.delete(child)
