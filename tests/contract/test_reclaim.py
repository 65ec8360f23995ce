"""The contract of taking a lease from a dead process."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lash.backend.liveness import current_process
from lash.errors import LeaseLost
from lash.model.lease import Acquired, Busy, Lease, LocalProcess
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.session import acquired, owner, started

TTL = 60_000


class TestReclaim:
    """Laws of displacing a provably dead holder. They need /proc to know which processes are dead."""

    async def test_only_a_reclaim_displaces_a_dead_holder(self, harness: Harness) -> None:
        """A plain claim against a dead holder is Busy; a reclaim acquires before the expiry."""
        storage, dead = await _held(harness, _dead())
        claimant = owner("next", process=_alive())
        assert await storage.leases.claim("s", claimant, ttl_ms=TTL) == Busy(holder=dead)

        outcome = await storage.leases.reclaim("s", claimant, observed=dead, ttl_ms=TTL)

        assert isinstance(outcome, Acquired)
        assert (outcome.displaced, outcome.reentered) == (dead, False)
        assert outcome.lease.fencing > dead.fencing
        assert await storage.leases.holder("s") == outcome.lease
        with pytest.raises(LeaseLost):
            await storage.leases.renew(dead.fence, ttl_ms=TTL)

    async def test_an_outdated_observation_displaces_nobody(self, harness: Harness) -> None:
        """A reclaim that saw an earlier acquisition is Busy and names the current holder."""
        storage, seen = await _held(harness, _dead())
        await storage.leases.release(seen.fence)
        current = acquired(await storage.leases.claim("s", seen.owner, ttl_ms=TTL))
        claimant = owner("next", process=_alive())
        assert await storage.leases.reclaim("s", claimant, observed=seen, ttl_ms=TTL) == Busy(holder=current)
        assert await storage.leases.holder("s") == current

    async def test_of_two_reclaims_one_acquires(self, harness: Harness) -> None:
        """Of concurrent reclaims on several handles exactly one acquires."""
        storages = [await harness.open() for _ in range(3)]
        for attempt in range(4):
            session_id = f"s{attempt}"
            await started(storages[0], session_id)
            dead = acquired(await storages[0].leases.claim(session_id, owner("dead", process=_dead()), ttl_ms=TTL))
            outcomes = await asyncio.gather(
                *(
                    storage.leases.reclaim(session_id, owner(f"w{index}", process=_alive()), observed=dead, ttl_ms=TTL)
                    for index, storage in enumerate(storages)
                )
            )
            winners = [outcome.lease for outcome in outcomes if isinstance(outcome, Acquired)]
            assert winners == [await storages[0].leases.holder(session_id)]

    @pytest.mark.parametrize("case", ["live process", "opaque holder", "opaque claimant", "other host", "other boot"])
    async def test_what_cannot_be_proven_dead_is_alive(self, harness: Harness, case: str) -> None:
        """No reclaim from a live process or an opaque holder, by an opaque claimant, across hosts or boots."""
        dead, alive = _dead(), _alive()
        holders = {
            "live process": alive,
            "opaque holder": None,
            "other host": msgspec.structs.replace(dead, host_id="elsewhere"),
            "other boot": msgspec.structs.replace(dead, boot_id="an earlier boot"),
        }
        storage, held = await _held(harness, holders.get(case, dead))
        claimant = owner("next", process=None if case == "opaque claimant" else alive)
        assert await storage.leases.reclaim("s", claimant, observed=held, ttl_ms=TTL) == Busy(holder=held)
        assert await storage.leases.holder("s") == held

    async def test_a_reclaim_is_otherwise_a_claim(self, harness: Harness) -> None:
        """A reclaim of a lapsed or free lease acquires, and the holder itself re-enters."""
        storage, held = await _held(harness, None)
        again = await storage.leases.reclaim("s", held.owner, observed=held, ttl_ms=TTL)
        assert again == Acquired(lease=held, reentered=True)
        await harness.clock.advance(TTL)
        outcome = await storage.leases.reclaim("s", owner("next"), observed=held, ttl_ms=TTL)
        assert isinstance(outcome, Acquired)
        assert outcome.displaced == held
        await storage.leases.release(outcome.lease.fence)
        assert acquired(await storage.leases.reclaim("s", owner("third"), observed=held, ttl_ms=TTL)).fencing > 2

    async def test_a_holder_displaces_nobody_under_its_own_name(self, harness: Harness) -> None:
        """A claimant with both ids of a dead holder re-enters its lease, also by a reclaim."""
        storage, held = await _held(harness, _dead())
        namesake = owner("holder", process=_alive())
        again = await storage.leases.reclaim("s", namesake, observed=held, ttl_ms=TTL)
        assert again == Acquired(lease=held, reentered=True)
        assert await storage.leases.holder("s") == held

    async def test_a_forged_observation_displaces_nobody(self, harness: Harness) -> None:
        """An observation that calls a live holder dead under another token is Busy."""
        storage, held = await _held(harness, _alive())
        forged = msgspec.structs.replace(
            held, token="forged", owner=msgspec.structs.replace(held.owner, process=_dead())
        )
        claimant = owner("next", process=_alive())
        assert await storage.leases.reclaim("s", claimant, observed=forged, ttl_ms=TTL) == Busy(holder=held)


def _alive() -> LocalProcess:
    """Return this process."""
    process = current_process()
    if process is None:
        pytest.skip("this machine cannot prove that a process is dead")
    return process


def _dead() -> LocalProcess:
    """Return a process that had this one's pid and is gone: it started at another time."""
    return msgspec.structs.replace(_alive(), process_start="1")


async def _held(harness: Harness, process: LocalProcess | None) -> tuple[Storage, Lease]:
    """Return a storage and the lease on its session ``s``, held by a worker in that process."""
    storage = await harness.open()
    await started(storage)
    return storage, acquired(await storage.leases.claim("s", owner("holder", process=process), ttl_ms=TTL))
