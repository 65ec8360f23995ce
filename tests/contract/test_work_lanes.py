"""The contract of the lanes: what order sessions are found in, and what a priority changes."""

from __future__ import annotations

from typing import Any, Final

import pytest

from lash.errors import InvalidInput
from lash.model.queue import MAX_PRIORITY, Boundary, ClaimedTurn
from lash.model.work import SessionLanes
from lash.plan.lane import take_turns
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import claimed, late, leased, queued
from tests.contract.work_state import ANN, TTL, looked
from tests.factories.session import created, owner

ORDER: Final = ("c", "a", "d", "b")
"""The order in which messages arrive; the sessions are created by their names."""


async def _sessions(harness: Harness, **priorities: int) -> Storage:
    """Open a storage with the sessions a to d, each with a message."""
    storage = await harness.open()
    for name in sorted(ORDER):
        await created(storage, name)
    for name in ORDER:
        await queued(storage, late("x", session_id=name, priority=priorities.get(name, 0)))
    return storage


async def test_sessions_wait_by_arrival(harness: Harness) -> None:
    """The waiting lane has the order of arrival, whatever the age of the sessions; the newest lane the reverse."""
    storage = await _sessions(harness)
    assert (await looked(storage)).lanes == SessionLanes(waiting=ORDER, newest=tuple(reversed(ORDER)))


async def test_priorities_come_first(harness: Harness) -> None:
    """The urgent lane has the sessions with priorities, the highest first, then by arrival."""
    storage = await _sessions(harness, a=1, b=9, d=1)
    lanes = (await looked(storage)).lanes
    assert (lanes.urgent, lanes.waiting) == (("b", "a", "d"), ORDER)
    assert (await storage.work.poll(sessions=2, processes=0, owner=ANN)).lanes.urgent == ("b", "a")


async def test_the_order_within_a_session_stays(harness: Harness) -> None:
    """An urgent message brings its session forward, and the messages before it with it."""
    storage = await _sessions(harness)
    await queued(storage, late("urgent", session_id="b", priority=5), late("later", session_id="b"))
    assert (await looked(storage)).lanes.urgent == ("b",)
    for priority, left in ((0, ("b",)), (5, ()), (0, ())):
        turn = await storage.queue.claim_turn("b", ANN, ttl_ms=TTL)
        assert isinstance(turn, ClaimedTurn)
        assert [batch.priority for batch in turn.claim.batches] == [priority]
        await storage.queue.bury(turn.claim, reason="seen")
        await storage.leases.release(turn.lease.fence)
        assert (await looked(storage)).lanes.urgent == left


async def test_running_and_paused_sessions_are_in_no_lane(harness: Harness) -> None:
    """A live lease and a pause keep a session out of every lane; a lapsed lease puts it back where it was."""
    storage = await _sessions(harness, a=9, c=9)
    await leased(storage, session_id="c", ttl_ms=TTL)
    await storage.leases.release(await leased(storage, session_id="a"), pause_ms=TTL)
    assert (await looked(storage)).lanes == SessionLanes(waiting=("d", "b"), newest=("b", "d"))
    await harness.clock.advance(TTL)
    lanes = (await looked(storage)).lanes
    assert (lanes.urgent, lanes.waiting) == (("c", "a"), ORDER)


async def test_a_crashed_turn_is_found_in_its_place(harness: Harness) -> None:
    """A session whose turn was claimed and whose worker is gone waits by the arrival of its message."""
    storage = await _sessions(harness)
    assert isinstance(await storage.queue.claim_turn("c", owner("gone"), ttl_ms=TTL), ClaimedTurn)
    assert (await looked(storage)).lanes.waiting == ORDER[1:]
    await harness.clock.advance(TTL)
    assert (await looked(storage)).lanes.waiting == ORDER


async def test_resumed_sessions_have_a_lane(harness: Harness) -> None:
    """Parked turns that can continue and delayed messages that are due come by their moment."""
    storage = await _sessions(harness)
    now = harness.clock.now_ms()
    for name, moment in (("e", now + 20), ("f", now + 10)):
        await created(storage, name)
        await queued(storage, late("x", session_id=name, available_at_ms=moment))
    turn = await storage.queue.claim_turn("a", ANN, ttl_ms=TTL)
    assert isinstance(turn, ClaimedTurn)
    assert await storage.leases.park(turn.lease.fence, wake_seq=0, until_ms=now + 15, waiting_for="time")
    assert (await looked(storage)).lanes.resumed == ()
    await harness.clock.advance(20)
    lanes = (await looked(storage)).lanes
    assert (lanes.resumed, lanes.waiting) == (("f", "a", "e"), ("c", "d", "b"))


async def test_a_long_queue_hides_no_session(harness: Harness) -> None:
    """Sessions behind more messages of one session than a poll reads are found by their age."""
    storage = await harness.open()
    for name in ("busy", *sorted(ORDER)):
        await created(storage, name)
    await queued(storage, *(late("x", session_id="busy") for _ in range(300)))
    for name in ORDER:
        await queued(storage, late("x", session_id=name))
    work = await storage.work.poll(sessions=5, processes=0, owner=ANN)
    assert work.lanes.waiting == ("busy", *sorted(ORDER))
    await leased(storage, session_id="busy", ttl_ms=TTL)
    work = await storage.work.poll(sessions=3, processes=0, owner=ANN)
    assert work.lanes == SessionLanes(waiting=("a", "b", "c"), newest=("b",))


async def test_a_priority_stays_with_its_message(harness: Harness) -> None:
    """Lists, dead letters and requeued messages have the priority; a resend under the key may name another."""
    storage = await harness.open()
    await created(storage)
    sent = await storage.queue.enqueue(late("x", source_key="k", priority=MAX_PRIORITY))
    again = await storage.queue.enqueue(late("x", source_key="k"))
    assert (again.batch_id, again.created) == (sent.batch_id, False)
    assert [batch.priority for batch in await storage.queue.list("s")] == [9]
    assert [each.batch.priority for each in await storage.queue.list_all()] == [9]
    fence = await leased(storage)
    await storage.queue.bury(
        claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL)), reason="seen"
    )
    assert [letter.batch.priority for letter in await storage.queue.dead()] == [9]
    assert (await storage.queue.requeue("s", sent.batch_id)).priority == 9


@pytest.mark.parametrize("priority", [-1, 10, "1", 1.0, True, None])
async def test_a_bad_priority_is_refused(harness: Harness, priority: Any) -> None:  # noqa: ANN401
    """A priority is a whole number from 0 to 9."""
    storage = await harness.open()
    await created(storage)
    with pytest.raises(InvalidInput, match="priority"):
        await storage.queue.enqueue(late("x", priority=priority))


async def test_a_new_conversation_waits_for_few_others(harness: Harness) -> None:
    """Behind a backlog, a worker with one slot runs at most three other turns before a new conversation.

    An urgent one comes at once, and the backlog gets its places too.
    """
    storage = await harness.open()
    for number in range(30):
        await created(storage, f"s{number:02}")
        await queued(storage, late("x", session_id=f"s{number:02}"))
    ran: list[str] = []
    for new in range(4):
        await _run(storage, ran, count=new)
        await created(storage, f"new{new}")
        await queued(storage, late("x", session_id=f"new{new}"))
        before = len(ran)
        while f"new{new}" not in ran:
            await _run(storage, ran)
        assert len(ran) - before <= 4
    assert [each for each in ran if each < "s"][:4] == ["new0", "new1", "new2", "new3"]
    await queued(storage, *(late("x", session_id=f"s{number}", priority=1) for number in range(20, 30)))
    before = len(ran)
    await _run(storage, ran, count=8)
    urgent = [each >= "s20" for each in ran[before:]]
    assert 4 <= sum(urgent) <= 7


async def _run(storage: Storage, ran: list[str], count: int = 1) -> None:
    """Poll and run one turn at a time, as a worker with one slot does."""
    for _ in range(count):
        work = await storage.work.poll(sessions=1, processes=0, owner=ANN)
        session_id = take_turns(work.lanes, first=len(ran))[0]
        turn = await storage.queue.claim_turn(session_id, ANN, ttl_ms=TTL)
        assert isinstance(turn, ClaimedTurn)
        await storage.queue.bury(turn.claim, reason="done")
        await storage.leases.release(turn.lease.fence)
        ran.append(session_id)
