"""Sweep cases of queued work."""

from __future__ import annotations

from lash.errors import DeadLetterNotFound, LeaseLost
from lash.model.lease import LeaseFence
from lash.model.queue import Batch, Boundary, Claim, ClaimedTurn
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.contract.queue_state import claimed, command, joining, late, leased, queued
from tests.factories.session import created, owner
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case

TTL = 60_000


async def session(storage: Storage, _clock: ManualClock) -> None:
    await created(storage)


async def waiting(storage: Storage, _clock: ManualClock) -> tuple[LeaseFence, list[Batch]]:
    """A lease, and two batches that are claimed together."""
    await created(storage)
    batches = await queued(storage, joining("1", source_key="k"), joining("2"), late("3"))
    return await leased(storage), batches[:2]


async def unleased(storage: Storage, _clock: ManualClock) -> None:
    """Two batches that are claimed together, and a free lease."""
    await created(storage)
    await queued(storage, joining("1", source_key="k"), joining("2"), late("3"))


async def ordered(storage: Storage, _clock: ManualClock) -> LeaseFence:
    await created(storage)
    await queued(storage, command("compact"))
    return await leased(storage)


async def delayed(storage: Storage, clock: ManualClock) -> LeaseFence:
    """A batch that became due after it was queued."""
    await created(storage)
    await queued(storage, late("later", available_at_ms=clock.now_ms() + 1_000))
    fence = await leased(storage)
    await clock.advance(1_000)
    return fence


async def taken(storage: Storage, clock: ManualClock) -> Claim:
    fence, _batches = await waiting(storage, clock)
    claim = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL))
    await clock.advance(1_000)
    return claim


async def buried(storage: Storage, clock: ManualClock) -> str:
    claim = await taken(storage, clock)
    await storage.queue.bury(claim, reason="broken", error={"code": 1})
    return claim.batches[0].batch_id


async def parked(storage: Storage, clock: ManualClock) -> None:
    """A parked turn that was woken, with its input and a command behind it."""
    await unleased(storage, clock)
    turn = await storage.queue.claim_turn("s", owner("w"), ttl_ms=TTL)
    assert isinstance(turn, ClaimedTurn)
    await storage.leases.park(turn.lease.fence, wake_seq=0, until_ms=None, waiting_for="session c")
    await queued(storage, command("compact"))


async def woken(storage: Storage, clock: ManualClock) -> None:
    await parked(storage, clock)
    assert await storage.work.wake() == ("s",)


async def begun(storage: Storage, clock: ManualClock) -> LeaseFence:
    await unleased(storage, clock)
    turn = await storage.queue.claim_turn("s", owner("w"), ttl_ms=TTL)
    assert isinstance(turn, ClaimedTurn)
    return turn.lease.fence


CASES: tuple[AnyCase, ...] = (
    Case(
        method="LeaseStore.park",
        ground=begun,
        call=lambda storage, fence: storage.leases.park(fence, wake_seq=0, until_ms=None, waiting_for="session c"),
        again=LeaseLost,
    ),
    Case(
        method="WorkStore.wake",
        ground=parked,
        call=lambda storage, _: storage.work.wake(),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="QueueStore.claim_turn",
        variant="parked",
        ground=woken,
        call=lambda storage, _: storage.queue.claim_turn("s", owner("w"), ttl_ms=TTL),
        again=Again.REPORTED,
        steps="on PostgreSQL the input of a turn that is ready is first put back, which any claim may do for any other",
    ),
    Case(
        method="QueueStore.enqueue",
        variant="command",
        ground=session,
        call=lambda storage, _: storage.queue.enqueue(command("compact", source_key="k")),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="QueueStore.enqueue",
        ground=session,
        call=lambda storage, _: storage.queue.enqueue(late("x", source_key="k")),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="QueueStore.enqueue_and_claim",
        ground=session,
        call=lambda storage, _: storage.queue.enqueue_and_claim(late("x", source_key="k"), owner("w"), ttl_ms=TTL),
        again=Again.REPORTED,
    ),
    Case(
        method="QueueStore.enqueue_and_claim",
        variant="behind other work",
        ground=unleased,
        call=lambda storage, _: storage.queue.enqueue_and_claim(late("x", source_key="x"), owner("w"), ttl_ms=TTL),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="QueueStore.enqueue",
        variant="keyless",
        ground=session,
        call=lambda storage, _: storage.queue.enqueue(late("x")),
        again=Again.MORE,
    ),
    Case(
        method="QueueStore.claim",
        ground=waiting,
        call=lambda storage, given: storage.queue.claim(given[0], boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=2),
        again=Again.MORE,
    ),
    Case(
        method="QueueStore.claim",
        variant="due",
        ground=delayed,
        call=lambda storage, fence: storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL),
        again=Again.REPORTED,
        steps="on PostgreSQL work that became due is first marked as ready, which any claim may do for any other",
    ),
    Case(
        method="QueueStore.claim_turn",
        ground=unleased,
        call=lambda storage, _: storage.queue.claim_turn("s", owner("w"), ttl_ms=TTL),
        again=Again.REPORTED,
    ),
    Case(
        method="QueueStore.claim_command",
        ground=ordered,
        call=lambda storage, fence: storage.queue.claim_command(fence, ttl_ms=TTL),
        again=Again.REPORTED,
    ),
    Case(
        method="QueueStore.claim_batches",
        ground=waiting,
        call=lambda storage, given: storage.queue.claim_batches(
            given[0], [batch.batch_id for batch in given[1]], ttl_ms=TTL
        ),
        again=Again.REPORTED,
    ),
    Case(
        method="QueueStore.renew",
        ground=taken,
        call=lambda storage, claim: storage.queue.renew(claim, ttl_ms=TTL),
        again=Again.SAME,
    ),
    Case(
        method="QueueStore.abandon",
        ground=taken,
        call=lambda storage, claim: storage.queue.abandon(claim, count_attempt=False),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="QueueStore.bury",
        ground=taken,
        call=lambda storage, claim: storage.queue.bury(claim, reason="broken", error={"code": 1}),
        again=Again.SAME,
    ),
    Case(
        method="QueueStore.requeue",
        ground=buried,
        call=lambda storage, batch_id: storage.queue.requeue("s", batch_id),
        again=DeadLetterNotFound,
    ),
    Case(
        method="QueueStore.discard",
        ground=buried,
        call=lambda storage, batch_id: storage.queue.discard("s", batch_id),
        again=Again.REPORTED,
    ),
    Case(
        method="QueueStore.cancel",
        ground=waiting,
        call=lambda storage, given: storage.queue.cancel("s", given[1][0].batch_id),
        again=Again.REPORTED,
    ),
)
