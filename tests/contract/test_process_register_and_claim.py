"""The contract of registering and claiming in one transaction: the same result as the two calls."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import pytest

from lash.backend.liveness import current_process
from lash.errors import InvalidInput, RegistrationConflict
from lash.model.lease import LeaseOwner, process_resource
from lash.model.process.process import ChangeKind, ProcessAcquired, Registered, Registration, Success
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import check_logs, feed, log, opened, refuse, world
from tests.factories.effect import RUN, effect
from tests.factories.process import DONE, GO, NEWS, NOTE, external, process, process_lease, stored
from tests.factories.session import owner

TTL: Final = 1_000
ANN, BOB = owner("ann", process=current_process()), owner("bob")


class TestProcessBegin:
    """Laws of claiming a process with its registration."""

    async def test_it_leaves_what_registering_and_claiming_leave(self, harness: Harness) -> None:
        """Record, log, lease, feed and work list are those of a registration and a claim."""
        storage = await opened(harness)
        begun = await _begun(storage, "p")
        assert (await storage.processes.register(_registration("q"))).created
        claimed = await storage.process_leases.claim("q", ANN, ttl_ms=TTL)
        assert isinstance(claimed, ProcessAcquired)
        assert await _shown(storage, "p", begun) == await _shown(storage, "q", claimed)
        assert begun.record == await stored(storage, "p")
        assert begun.lease == await (await harness.open()).process_leases.holder("p")
        assert (begun.lease.fencing, begun.lease.owner, begun.reentered, begun.displaced) == (1, ANN, False, None)
        assert begun.lease.expires_at_ms == begun.lease.claimed_at_ms + TTL == harness.clock.now_ms() + TTL
        assert (begun.wake_seq, begun.has_effects) == (claimed.wake_seq, claimed.has_effects) == (0, False)
        assert begun.record.projection.started_by == ANN
        assert [each.event_type for each in await log(storage)] == ["process.started"]

    async def test_its_changes_come_in_order(self, harness: Harness) -> None:
        """The feed has the registration first, then the start."""
        storage = await harness.open()
        await _begun(storage, "p")
        changes, _ = await feed(storage)
        assert [(each.kind, each.sequence) for each in changes] == [
            (ChangeKind.REGISTERED, None),
            (ChangeKind.EVENT, 1),
        ]

    async def test_it_is_on_nobodys_list_until_the_holder_lets_go(self, harness: Harness) -> None:
        """While held the process is not ready; released or lapsed it is, like any claimed process."""
        storage = await harness.open()
        begun = await _begun(storage, "p")
        await _begun(storage, "q")
        assert await _ready(storage) == ()
        await storage.process_leases.release(begun.lease.fence)
        assert await _ready(storage) == ("p",)
        await harness.clock.advance(TTL)
        assert await _ready(storage) == ("p", "q")
        taken = await storage.process_leases.claim("q", BOB, ttl_ms=TTL)
        assert isinstance(taken, ProcessAcquired)
        assert taken.displaced is not None
        assert (taken.displaced.owner, taken.lease.fencing) == (ANN, 2)

    async def test_the_holder_goes_on_like_any_other(self, harness: Harness) -> None:
        """Effects, signals, parking and the end accept the fence of the call."""
        storage = await opened(harness)
        begun = await _begun(storage, "p")
        await storage.effects.record(begun.lease.fence, effect(scope=RUN), 1)
        await storage.events.signal("p", "go", signal_id="1")
        assert not await storage.process_leases.park(begun.lease.fence, wake_seq=begun.wake_seq, until_ms=None)
        again = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
        assert isinstance(again, ProcessAcquired)
        assert (again.wake_seq, again.has_effects, again.lease.fencing) == (1, True, 2)
        assert [each.event_type for each in await log(storage)] == ["process.started", "signal.go"]
        ended = await storage.process_leases.complete(again.lease.fence, DONE)
        assert ended.projection.outcome == DONE

    async def test_what_was_registered_is_left_alone(self, harness: Harness) -> None:
        """An equal registration is returned as it is, free, held or ended; nothing is claimed."""
        storage = await opened(harness)
        await storage.processes.register(_registration("p"))
        begun = await _begun(storage, "q")
        await _begun(storage, "r", BOB)
        await storage.process_leases.complete((await _begun(storage, "s")).lease.fence, Success(value=1))
        before = await world(storage)
        for process_id in "pqrs":
            answer = await storage.process_leases.register_and_claim(_registration(process_id), ANN, ttl_ms=TTL)
            assert answer == Registered(record=await stored(storage, process_id), created=False)
        assert await world(storage) == before
        assert await storage.process_leases.holder("q") == begun.lease

    async def test_another_registration_is_refused(self, harness: Harness) -> None:
        """A different registration under the id raises and changes nothing."""
        storage = await opened(harness)
        await _begun(storage, "p")
        other = process("p", GO)
        await refuse(
            storage, storage.process_leases.register_and_claim(other, ANN, ttl_ms=TTL), RegistrationConflict, naming="p"
        )

    async def test_what_is_done_elsewhere_is_only_registered(self, harness: Harness) -> None:
        """An external process is registered and not claimed."""
        storage = await opened(harness)
        answer = await storage.process_leases.register_and_claim(external("p"), ANN, ttl_ms=TTL)
        assert answer == Registered(record=await stored(storage), created=True)
        assert await log(storage) == ()
        assert await storage.process_leases.holder("p") is None
        assert await _ready(storage) == ()

    async def test_fencing_goes_on_above_a_pruned_process(self, harness: Harness) -> None:
        """After pruning, a process of the same id gets a larger fencing number than any before."""
        storage = await harness.open()
        begun = await _begun(storage, "p")
        await storage.process_leases.complete(begun.lease.fence, DONE)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms() + 1, through_cursor=None)
        assert (await _begun(storage, "p")).lease.fencing == begun.lease.fencing + 1
        await check_logs(storage)

    async def test_one_of_many_begins_it(self, harness: Harness) -> None:
        """Of concurrent equal calls one acquires; the others return the registration."""
        one, two = await harness.open(), await harness.open()
        owners = [owner(f"w{number}") for number in range(8)]
        stores = [storage.process_leases for storage in (one, two) * 4]
        calls = zip(stores, owners, strict=True)
        answers = await asyncio.gather(
            *(store.register_and_claim(_registration("p"), each, ttl_ms=TTL) for store, each in calls)
        )
        acquired = [each for each in answers if isinstance(each, ProcessAcquired)]
        assert [each.lease for each in acquired] == [await one.process_leases.holder("p")]
        assert [each.created for each in answers if isinstance(each, Registered)] == [False] * 7
        assert len(await log(one)) == 1

    @pytest.mark.parametrize("ttl_ms", [-1, 10**9, "1", True])
    async def test_nonsense_is_refused(self, harness: Harness, ttl_ms: Any) -> None:  # noqa: ANN401 (any kind of wrong)
        """If the claim or the registration is invalid, nothing is written."""
        storage = await opened(harness)
        await refuse(storage, storage.process_leases.register_and_claim(process("p"), ANN, ttl_ms=ttl_ms), InvalidInput)
        await refuse(storage, storage.process_leases.register_and_claim(process(" "), ANN, ttl_ms=TTL), InvalidInput)
        nobody: Any = "ann"
        await refuse(storage, storage.process_leases.register_and_claim(process("p"), nobody, ttl_ms=TTL), InvalidInput)


def _registration(process_id: str) -> Registration:
    return process(process_id, NOTE, NEWS, GO, wake_session_id="s")


async def _begun(storage: Storage, process_id: str, who: LeaseOwner = ANN) -> ProcessAcquired:
    answer = await storage.process_leases.register_and_claim(_registration(process_id), who, ttl_ms=TTL)
    assert isinstance(answer, ProcessAcquired)
    assert process_lease(answer).resource.id == process_id
    return answer


async def _ready(storage: Storage) -> tuple[str, ...]:
    work = await storage.work.poll(sessions=0, processes=10, owner=BOB)
    return tuple(sorted(work.process_ids))


async def _shown(storage: Storage, process_id: str, acquired: ProcessAcquired) -> tuple[object, ...]:
    """Return everything visible of a claimed process, except what no two processes share."""
    record = await stored(storage, process_id)
    lease = await storage.process_leases.holder(process_id)
    assert lease is not None
    assert lease == acquired.lease
    return (
        msgspec.structs.replace(
            record,
            process_id="",
            registration_hash="",
            registration=msgspec.structs.replace(record.registration, process_id=""),
        ),
        msgspec.structs.replace(lease, resource=process_resource(""), token=""),
        [msgspec.structs.replace(each, process_id="", replay_key="") for each in await log(storage, process_id)],
        [(each.kind, each.sequence, each.status) for each in (await feed(storage))[0] if each.process_id == process_id],
        await storage.events.wakes_after(process_id),
    )
