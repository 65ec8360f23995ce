"""How a claim ends: renewed, abandoned, lapsed or taken over."""

from __future__ import annotations

import msgspec
import pytest

from lash.errors import ClaimLost, LeaseLost
from lash.model.lease import LeaseFence
from lash.model.queue import Boundary, Claim, ClaimOutcome, EmptyReason
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import (
    LONG,
    TTL,
    claimed,
    joining,
    leased,
    nothing,
    observe_queue,
    queued,
    texts,
)
from tests.factories.session import started


class TestQueueLife:
    """Laws of keeping and losing a claim."""

    async def test_renewal_extends_and_keeps_the_rest(self, harness: Harness) -> None:
        """Id, token and batches stay, the expiry moves, and the work stays claimed."""
        storage, fence, claim = await _held(harness)
        for _ in range(3):
            await harness.clock.advance(TTL - 1)
            renewed = await storage.queue.renew(claim, ttl_ms=TTL)
            expected = msgspec.structs.replace(claim, expires_at_ms=harness.clock.now_ms() + TTL)
            assert renewed == expected
        await harness.clock.advance(TTL - 1)
        assert nothing(await _try(storage, fence)) is EmptyReason.CLAIMED
        await harness.clock.advance(1)
        assert texts(claimed(await _try(storage, fence)).batches) == ["a", "b"]

    async def test_renewal_never_shortens(self, harness: Harness) -> None:
        """Neither a short time to live nor a clock that jumped back brings the expiry nearer."""
        storage, _, claim = await _held(harness)
        assert await storage.queue.renew(claim, ttl_ms=0) == claim
        await harness.clock.advance(-500)
        assert await storage.queue.renew(claim, ttl_ms=TTL) == claim
        forged = msgspec.structs.replace(claim, expires_at_ms=0)
        assert (await storage.queue.renew(forged, ttl_ms=0)).expires_at_ms == claim.expires_at_ms

    async def test_a_forged_expiry_is_not_believed(self, harness: Harness) -> None:
        """The expiry in the caller's copy of a claim is ignored: a renewal returns the stored one."""
        storage, fence, claim = await _held(harness)
        for forged in (0, 2**63 - 1):
            renewed = await storage.queue.renew(msgspec.structs.replace(claim, expires_at_ms=forged), ttl_ms=TTL)
            assert renewed == claim
        await harness.clock.advance(TTL)
        assert texts(claimed(await _try(storage, fence)).batches) == ["a", "b"]

    async def test_a_claim_that_ran_out_untaken_renews(self, harness: Harness) -> None:
        """A lapsed claim renews as long as no other claim took its work."""
        storage, fence, claim = await _held(harness)
        await harness.clock.advance(TTL * 5)
        assert texts(await storage.queue.list_pending("s")) == ["a", "b"]
        await storage.queue.renew(claim, ttl_ms=TTL)
        assert await storage.queue.list_pending("s") == ()
        assert nothing(await _try(storage, fence)) is EmptyReason.CLAIMED

    @pytest.mark.parametrize("taken", [1, 2])
    async def test_a_claim_that_was_taken_does_not_renew(self, harness: Harness, taken: int) -> None:
        """A claim is lost once one of its batches is in another claim; the others are not extended."""
        storage, fence, claim = await _held(harness)
        await harness.clock.advance(TTL)
        newer = claimed(await _try(storage, fence, max_batches=taken))
        before = await observe_queue(storage)
        with pytest.raises(ClaimLost) as lost:
            await storage.queue.renew(claim, ttl_ms=LONG)
        assert (lost.value.session_id, lost.value.claim_id) == ("s", claim.claim_id)
        assert await observe_queue(storage) == before
        assert await storage.queue.renew(newer, ttl_ms=TTL) == newer

    async def test_abandoned_work_is_free_at_once(self, harness: Harness) -> None:
        """Abandoning releases all batches of the claim, once, as failed; the next claim counts one more attempt."""
        storage, fence, claim = await _held(harness)
        assert await storage.queue.abandon(claim) == 2
        assert await storage.queue.abandon(claim) == 0
        with pytest.raises(ClaimLost):
            await storage.queue.renew(claim, ttl_ms=TTL)
        again = claimed(await _try(storage, fence))
        assert texts(again.batches) == ["a", "b"]
        assert [(batch.attempts, batch.failures) for batch in again.batches] == [(2, 1), (2, 1)]

    async def test_a_clean_stop_counts_no_attempt(self, harness: Harness) -> None:
        """Work that is released unfinished without a failure keeps its number of attempts."""
        storage, fence, claim = await _held(harness)
        for _ in range(3):
            assert await storage.queue.abandon(claim, count_attempt=False) == 2
            assert [batch.attempts for batch in await storage.queue.list("s")] == [0, 0]
            assert await storage.queue.abandon(claim, count_attempt=False) == 0
            claim = claimed(await _try(storage, fence))
            assert [batch.attempts for batch in claim.batches] == [1, 1]
        await storage.queue.abandon(claim)
        claim = claimed(await _try(storage, fence))
        await storage.queue.abandon(claim, count_attempt=False)
        assert [(batch.attempts, batch.failures) for batch in await storage.queue.list("s")] == [(1, 1), (1, 1)]

    async def test_a_claim_that_is_never_given_back_has_not_failed(self, harness: Harness) -> None:
        """A worker that dies adds an attempt and no failure; a dead letter keeps both, a requeue forgets both."""
        storage, fence, claim = await _held(harness)
        await storage.queue.abandon(claim)
        claimed(await _try(storage, fence))
        await harness.clock.advance(TTL)
        claim = claimed(await _try(storage, fence))
        assert [(batch.attempts, batch.failures) for batch in claim.batches] == [(3, 1), (3, 1)]
        await storage.queue.bury(claim, reason="enough")
        letters = await storage.queue.dead()
        assert [(letter.attempts, letter.batch.failures) for letter in letters] == [(3, 1), (3, 1)]
        revived = await storage.queue.requeue("s", letters[0].batch.batch_id)
        assert (revived.attempts, revived.failures) == (0, 0)

    async def test_a_late_stop_takes_no_attempt_of_the_successor(self, harness: Harness) -> None:
        """An old claim takes back its attempts only for batches that it still holds."""
        storage, fence, claim = await _held(harness)
        await harness.clock.advance(TTL)
        claimed(await _try(storage, fence, max_batches=1))
        assert await storage.queue.abandon(claim, count_attempt=False) == 1
        assert [batch.attempts for batch in await storage.queue.list("s")] == [2, 0]

    async def test_attempts_are_counted_for_each_batch(self, harness: Harness) -> None:
        """A batch that was claimed more often than its neighbours keeps its own count."""
        storage, fence, claim = await _held(harness)
        await storage.queue.abandon(claim)
        await storage.queue.abandon(claimed(await _try(storage, fence, max_batches=1)))
        await queued(storage, joining("c"))
        assert [batch.attempts for batch in claimed(await _try(storage, fence)).batches] == [3, 2, 1]

    async def test_a_late_abandon_leaves_the_successor_alone(self, harness: Harness) -> None:
        """A late abandon releases only the batches that the old claim still holds."""
        storage, fence, claim = await _held(harness)
        await harness.clock.advance(TTL)
        newer = claimed(await _try(storage, fence, max_batches=1))
        assert await storage.queue.abandon(claim) == 1
        assert texts(await storage.queue.list_pending("s")) == ["b"]
        assert await storage.queue.renew(newer, ttl_ms=TTL) == newer

    async def test_the_heartbeat_keeps_every_claim(self, harness: Harness) -> None:
        """Renewing the lease extends all claims made under it, and shortens none."""
        storage, fence, first = await _held(harness)
        await queued(storage, joining("c"))
        second = claimed(await _try(storage, fence))
        await harness.clock.advance(TTL - 1)
        await storage.leases.renew(fence, ttl_ms=LONG * 2)
        await harness.clock.advance(LONG * 2 - 1)
        assert nothing(await _try(storage, fence)) is EmptyReason.CLAIMED
        renewed = [await storage.queue.renew(claim, ttl_ms=0) for claim in (first, second)]
        assert [claim.expires_at_ms for claim in renewed] == [harness.clock.now_ms() + 1] * 2
        await storage.leases.renew(fence, ttl_ms=1)
        await harness.clock.advance(1)
        assert texts(await storage.queue.list_pending("s")) == ["a", "b", "c"]

    async def test_re_entry_keeps_every_claim(self, harness: Harness) -> None:
        """A holder that claims its lease again extends its claims, as a renewal does."""
        storage, fence, claim = await _held(harness)
        await harness.clock.advance(TTL - 1)
        assert await leased(storage, ttl_ms=LONG) == fence
        await harness.clock.advance(LONG - 1)
        assert nothing(await _try(storage, fence)) is EmptyReason.CLAIMED
        assert (await storage.queue.renew(claim, ttl_ms=0)).expires_at_ms == harness.clock.now_ms() + 1

    async def test_a_refused_heartbeat_keeps_no_claim(self, harness: Harness) -> None:
        """The claims of a lost lease lapse."""
        storage, fence, _ = await _held(harness)
        with pytest.raises(LeaseLost):
            await storage.leases.renew(msgspec.structs.replace(fence, token="false"), ttl_ms=LONG)
        await harness.clock.advance(TTL)
        assert texts(await storage.queue.list_pending("s")) == ["a", "b"]

    async def test_a_takeover_frees_the_work_at_once(self, harness: Harness) -> None:
        """The successor claims at once what the dead holder had claimed, and keeps it."""
        storage, fence, _ = await _held(harness, ttl_ms=LONG * 10)
        await harness.clock.advance(LONG)
        assert await storage.queue.list_pending("s") == ()
        successor = await leased(await harness.open(), "successor")
        newer = claimed(await _try(storage, successor))
        assert (texts(newer.batches), newer.lease_fencing) == (["a", "b"], successor.fencing)
        assert [batch.attempts for batch in newer.batches] == [2, 2]
        with pytest.raises(LeaseLost):
            await _try(storage, fence)
        assert nothing(await _try(storage, successor)) is EmptyReason.CLAIMED

    async def test_the_heartbeat_of_a_successor_is_not_for_old_claims(self, harness: Harness) -> None:
        """A claim left by the predecessor stays free, however often the new lease is renewed."""
        storage, _, _ = await _held(harness, ttl_ms=LONG * 10)
        await harness.clock.advance(LONG)
        successor = await leased(storage, "successor")
        await storage.leases.renew(successor, ttl_ms=LONG)
        assert texts(await storage.queue.list_pending("s")) == ["a", "b"]
        assert texts(claimed(await _try(storage, successor)).batches) == ["a", "b"]


async def _held(harness: Harness, *, ttl_ms: int = TTL) -> tuple[Storage, LeaseFence, Claim]:
    """Return a storage, the lease on its session ``s``, and a claim on all its batches, ``a`` and ``b``."""
    storage = await harness.open()
    await started(storage)
    fence = await leased(storage)
    await queued(storage, joining("a"), joining("b"))
    return storage, fence, claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=ttl_ms))


async def _try(storage: Storage, fence: LeaseFence, max_batches: int = 100) -> ClaimOutcome:
    return await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=max_batches)
