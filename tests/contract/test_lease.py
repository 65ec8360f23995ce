"""The contract of leases: one holder at a time, fencing numbers that only grow, and expiry by time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lash.backend.liveness import current_owner
from lash.errors import LeaseLost, RevisionConflict
from lash.model.lease import Acquired, Busy, Lease, session_resource
from lash.model.queue import Boundary, NothingClaimed
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.state import loaded, refuse
from tests.factories.session import acquired, commit, created, node, owner, started

TTL = 1_000
ANN, BOB = owner("ann"), owner("bob")


class TestLease:
    """Laws of claiming, renewing and releasing."""

    async def test_a_lease_says_who_holds_it_and_until_when(self, harness: Harness) -> None:
        """The first claim acquires with a positive number, from now until its expiry."""
        storage = await _storage(harness)
        assert await storage.leases.holder("s") is None
        outcome = await storage.leases.claim("s", ANN, ttl_ms=TTL)
        now = harness.clock.now_ms()
        assert isinstance(outcome, Acquired)
        assert (outcome.reentered, outcome.displaced) == (False, None)
        lease = outcome.lease
        assert (lease.resource.id, lease.owner, lease.claimed_at_ms, lease.expires_at_ms) == ("s", ANN, now, now + TTL)
        assert lease.fencing >= 1
        assert await (await harness.open()).leases.holder("s") == lease

    async def test_fencing_numbers_only_grow(self, harness: Harness) -> None:
        """Each acquisition after release or expiry has a larger number, and tokens never repeat."""
        storage = await _storage(harness)
        leases: list[Lease] = []
        for turn in range(6):
            leases.append(acquired(await storage.leases.claim("s", (ANN, BOB)[turn % 2], ttl_ms=TTL)))
            if turn % 3:
                assert await storage.leases.release(leases[-1].fence)
            else:
                await harness.clock.advance(TTL)
        numbers = [lease.fencing for lease in leases]
        assert numbers == sorted(set(numbers))
        assert len({lease.token for lease in leases}) == 6

    async def test_the_same_holder_re_enters(self, harness: Harness) -> None:
        """A claim repeated by the holder keeps token and number and extends the lease."""
        storage = await _storage(harness)
        first = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        await harness.clock.advance(400)
        outcome = await (await harness.open()).leases.claim("s", ANN, ttl_ms=TTL)
        assert isinstance(outcome, Acquired)
        assert (outcome.reentered, outcome.displaced) == (True, None)
        assert outcome.lease == msgspec.structs.replace(first, expires_at_ms=first.expires_at_ms + 400)
        assert await storage.leases.holder("s") == outcome.lease

    async def test_neither_re_entry_nor_renewal_shortens(self, harness: Harness) -> None:
        """A shorter time to live, or a clock that jumped back, never brings the expiry nearer."""
        storage = await _storage(harness)
        first = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        assert acquired(await storage.leases.claim("s", ANN, ttl_ms=1)) == first
        assert await storage.leases.renew(first.fence, ttl_ms=0) == first
        await harness.clock.advance(-500)
        assert acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL)) == first
        assert await storage.leases.renew(first.fence, ttl_ms=TTL) == first
        assert await storage.leases.holder("s") == first

    async def test_another_owner_is_told_who_holds_it(self, harness: Harness) -> None:
        """A live lease is Busy for other owners, names its holder and does not change."""
        storage = await _storage(harness)
        lease = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL - 1)
        for rival in (BOB, owner("ann", "2")):
            assert await storage.leases.claim("s", rival, ttl_ms=TTL) == Busy(holder=lease)
        assert await storage.leases.holder("s") == lease

    async def test_a_lease_ends_when_its_time_is_over(self, harness: Harness) -> None:
        """At the exact moment of expiry another owner may acquire, and learns whom it displaced."""
        storage = await _storage(harness)
        lapsed = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL)
        assert await storage.leases.holder("s") == lapsed
        outcome = await storage.leases.claim("s", BOB, ttl_ms=TTL)
        assert isinstance(outcome, Acquired)
        assert (outcome.reentered, outcome.displaced) == (False, lapsed)
        assert outcome.lease.fencing > lapsed.fencing

    async def test_a_holder_whose_lease_lapsed_acquires_anew(self, harness: Harness) -> None:
        """After expiry the same holder gets a new token and number; the old fence stays invalid."""
        storage = await _storage(harness)
        lapsed = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL)
        outcome = await storage.leases.claim("s", ANN, ttl_ms=TTL)
        assert isinstance(outcome, Acquired)
        assert not outcome.reentered
        assert outcome.lease.token != lapsed.token
        with pytest.raises(LeaseLost):
            await storage.leases.renew(lapsed.fence, ttl_ms=TTL)

    async def test_renewal_extends(self, harness: Harness) -> None:
        """Renewing keeps token, number and start, and moves the expiry, any number of times."""
        storage = await _storage(harness)
        lease = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        for _ in range(3):
            await harness.clock.advance(TTL - 1)
            renewed = await storage.leases.renew(lease.fence, ttl_ms=TTL)
            now = harness.clock.now_ms()
            assert renewed == msgspec.structs.replace(lease, expires_at_ms=now + TTL)
            assert await storage.leases.holder("s") == renewed

    @pytest.mark.parametrize("changed", ["token", "fencing", "owner_id", "incarnation_id"])
    async def test_renewal_by_somebody_else_is_refused(self, harness: Harness, changed: str) -> None:
        """A renewal or release whose fence is not the live one raises LeaseLost and moves nothing."""
        storage = await _storage(harness)
        lease = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        false_value = lease.fencing + 1 if changed == "fencing" else "false"
        false_fence = msgspec.structs.replace(lease.fence, **{changed: false_value})
        with pytest.raises(LeaseLost) as raised:
            await storage.leases.renew(false_fence, ttl_ms=TTL * 5)
        assert raised.value.resource == session_resource("s")
        assert await storage.leases.release(false_fence) is False
        assert await storage.leases.holder("s") == lease

    async def test_a_lapsed_lease_that_was_not_taken_is_renewed(self, harness: Harness) -> None:
        """Until another owner takes an expired lease, its holder can renew it, and the fence proves it again."""
        storage = await _storage(harness)
        lease = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL * 3)
        with pytest.raises(LeaseLost):
            await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL)
        renewed = await storage.leases.renew(lease.fence, ttl_ms=TTL)
        assert renewed == msgspec.structs.replace(lease, expires_at_ms=harness.clock.now_ms() + TTL)
        assert await storage.leases.claim("s", BOB, ttl_ms=TTL) == Busy(holder=renewed)
        under = await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL)
        assert isinstance(under, NothingClaimed)

    async def test_a_lost_lease_cannot_be_renewed(self, harness: Harness) -> None:
        """Renewing a lease that was taken over or released raises LeaseLost, also once its successor's has expired."""
        storage = await _storage(harness)
        lease = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL)
        again = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        for _ in range(2):
            with pytest.raises(LeaseLost):
                await storage.leases.renew(lease.fence, ttl_ms=TTL)
            assert await storage.leases.holder("s") == again
            await harness.clock.advance(TTL)
        assert await storage.leases.release(again.fence)
        with pytest.raises(LeaseLost):
            await storage.leases.renew(again.fence, ttl_ms=TTL)
        assert await storage.leases.holder("s") is None

    async def test_a_late_release_changes_nothing(self, harness: Harness) -> None:
        """A late release by an earlier holder changes nothing, and neither does a second release."""
        storage = await _storage(harness)
        old = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        assert [await storage.leases.release(old.fence) for _ in range(2)] == [True, False]
        new = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        assert await storage.leases.release(old.fence) is False
        assert await storage.leases.holder("s") == new

    async def test_an_expired_lease_can_be_released(self, harness: Harness) -> None:
        """A holder may release after expiry if no other owner took over; the next claim then displaced no one."""
        storage = await _storage(harness)
        lease = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL * 2)
        assert await storage.leases.release(lease.fence) is True
        outcome = await storage.leases.claim("s", BOB, ttl_ms=TTL)
        assert isinstance(outcome, Acquired)
        assert outcome.displaced is None

    async def test_no_time_to_live_is_over_at_once(self, harness: Harness) -> None:
        """A lease of zero milliseconds can be acquired by another owner at once."""
        storage = await _storage(harness)
        first = acquired(await storage.leases.claim("s", ANN, ttl_ms=0))
        second = acquired(await storage.leases.claim("s", BOB, ttl_ms=TTL))
        assert second.fencing > first.fencing
        with pytest.raises(LeaseLost):
            await storage.leases.renew(first.fence, ttl_ms=TTL)

    async def test_a_commit_can_free_its_lease(self, harness: Harness) -> None:
        """A commit with ``release`` frees the lease with its head; a refused one keeps the lease."""
        storage = await _storage(harness)
        lease = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        await refuse(storage, commit(9, fence=lease.fence, release=lease.fence), RevisionConflict)
        assert await storage.leases.holder("s") == lease

        await storage.session("s").commit(commit(1, node("b", "a"), fence=lease.fence, release=lease.fence))

        assert await storage.leases.holder("s") is None
        assert acquired(await storage.leases.claim("s", BOB, ttl_ms=TTL)).fencing > lease.fencing

    async def test_a_stale_release_does_not_veto_a_commit(self, harness: Harness) -> None:
        """A commit whose ``release`` is stale lands, and the successor keeps its lease."""
        storage = await _storage(harness)
        old = acquired(await storage.leases.claim("s", ANN, ttl_ms=0))
        new = acquired(await storage.leases.claim("s", BOB, ttl_ms=TTL))
        result = await storage.session("s").commit(commit(1, node("b", "a"), release=old.fence))
        assert result.revision == 2
        assert await storage.leases.holder("s") == new
        assert (await loaded(storage)).head.leaf_node_id == "b"

    async def test_of_two_first_claims_one_acquires(self, harness: Harness) -> None:
        """Of concurrent claims on several handles exactly one acquires; the others name the winner."""
        storages = [await harness.open() for _ in range(3)]
        for attempt in range(5):
            session_id = f"s{attempt}"
            await created(storages[0], session_id)
            outcomes = await asyncio.gather(
                *(
                    storage.leases.claim(session_id, owner(f"w{index}"), ttl_ms=TTL)
                    for index, storage in enumerate(storages)
                )
            )
            held = await storages[0].leases.holder(session_id)
            assert held is not None
            winners = [outcome.lease for outcome in outcomes if isinstance(outcome, Acquired)]
            assert winners == [held]
            assert [each.holder for each in outcomes if isinstance(each, Busy)] == [held, held]

    async def test_the_same_holder_claiming_at_once_acquires_once(self, harness: Harness) -> None:
        """Concurrent claims by one holder are one acquisition: one token, one number, one first entry."""
        storages = [await harness.open() for _ in range(2)]
        await created(storages[0])
        outcomes = await asyncio.gather(
            *(storage.leases.claim("s", ANN, ttl_ms=TTL) for storage in storages for _ in range(3))
        )
        assert len({acquired(outcome).fence for outcome in outcomes}) == 1
        assert sum(isinstance(outcome, Acquired) and not outcome.reentered for outcome in outcomes) == 1

    async def test_a_lapsed_lease_goes_to_one(self, harness: Harness) -> None:
        """Of concurrent claims on a lapsed lease exactly one acquires, with a larger number."""
        storages = [await harness.open() for _ in range(3)]
        await created(storages[0])
        last = 0
        for _ in range(4):
            outcomes = await asyncio.gather(
                *(storage.leases.claim("s", owner(f"w{index}"), ttl_ms=TTL) for index, storage in enumerate(storages))
            )
            (winner,) = [outcome.lease for outcome in outcomes if isinstance(outcome, Acquired)]
            assert winner.fencing > last
            last = winner.fencing
            await harness.clock.advance(TTL)

    async def test_a_renewal_racing_with_a_release(self, harness: Harness) -> None:
        """A release concurrent with a renewal always takes effect."""
        storages = [await harness.open() for _ in range(2)]
        await created(storages[0])
        for _ in range(5):
            lease = acquired(await storages[0].leases.claim("s", ANN, ttl_ms=TTL))
            renewed, released = await asyncio.gather(
                storages[0].leases.renew(lease.fence, ttl_ms=TTL * 9),
                storages[1].leases.release(lease.fence),
                return_exceptions=True,
            )
            assert released is True
            assert isinstance(renewed, Lease | LeaseLost)
            assert await storages[0].leases.holder("s") is None

    async def test_leases_of_different_sessions_are_independent(self, harness: Harness) -> None:
        """One owner may hold many sessions, and a fence of one is not valid for another."""
        storage = await _storage(harness)
        await started(storage, "other")
        first = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        second = acquired(await storage.leases.claim("other", ANN, ttl_ms=TTL))
        assert first.token != second.token
        moved = msgspec.structs.replace(first.fence, resource=session_resource("other"))
        assert await storage.leases.release(moved) is False
        assert await storage.leases.release(first.fence) is True
        assert await storage.leases.holder("other") == second

    async def test_two_workers_of_one_process_are_two_holders(self, harness: Harness) -> None:
        """The second identity made in one process is Busy and does not change the first one's token."""
        storage = await _storage(harness)
        first, second = current_owner("worker"), current_owner("worker")
        lease = acquired(await storage.leases.claim("s", first, ttl_ms=TTL))
        assert await (await harness.open()).leases.claim("s", second, ttl_ms=TTL) == Busy(holder=lease)
        assert await storage.leases.holder("s") == lease

    async def test_an_inner_piece_of_work_borrows_the_lease(self, harness: Harness) -> None:
        """A re-entry is marked as one, so inner work commits under the lease and leaves releasing it to the outer."""
        storage = await _storage(harness)
        outer = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        inner = await storage.leases.claim("s", ANN, ttl_ms=TTL)
        assert isinstance(inner, Acquired)
        release = None if inner.reentered else inner.lease.fence
        await storage.session("s").commit(commit(1, node("b", "a"), fence=inner.lease.fence, release=release))
        assert await storage.leases.holder("s") == outer
        assert await storage.leases.renew(outer.fence, ttl_ms=TTL) == outer

    async def test_a_lease_at_the_end_of_time(self, harness: Harness) -> None:
        """An expiry beyond the range of a 64-bit number is clamped, not wrapped."""
        storage = await _storage(harness)
        await harness.clock.advance(2**63 - 100 - harness.clock.now_ms())
        lease = acquired(await storage.leases.claim("s", ANN, ttl_ms=TTL))
        assert lease.expires_at_ms == 2**63 - 1
        assert (await storage.leases.renew(lease.fence, ttl_ms=TTL)).expires_at_ms == 2**63 - 1
        assert await storage.leases.claim("s", BOB, ttl_ms=TTL) == Busy(holder=lease)


async def _storage(harness: Harness) -> Storage:
    """Return a storage with the session ``s`` at revision 1."""
    storage = await harness.open()
    await started(storage)
    return storage
