"""The contract of process leases: one holder, fenced ends, and processes that are never claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import msgspec
import pytest

from lash.backend.liveness import current_process
from lash.errors import EventConflict, InvalidInput, LeaseLost, ProcessTerminal
from lash.model.lease import Lease, LocalProcess
from lash.model.process.process import (
    Failure,
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRefused,
    ProcessStatus,
    Recovery,
    RefusalReason,
    Success,
)
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import check_logs, log, opened, refuse, world
from tests.factories.effect import RUN, effect
from tests.factories.process import (
    DONE,
    GO,
    NOTE,
    event,
    external,
    process,
    process_lease,
    registered,
    stored,
    wait,
)
from tests.factories.session import owner

TTL: Final = 1_000
ANN, BOB = owner("ann"), owner("bob")
FAILED: Final = Failure(code="c", message="m")


class TestProcessLease:
    """Laws of claiming, renewing and releasing."""

    async def test_a_claim_says_who_runs_it(self, harness: Harness) -> None:
        """The first claim acquires from now on, and records that its owner started."""
        storage = await _storage(harness)
        assert await storage.process_leases.holder("p") is None
        outcome = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
        now = harness.clock.now_ms()
        assert isinstance(outcome, ProcessAcquired)
        lease = outcome.lease
        assert (outcome.reentered, outcome.displaced) == (False, None)
        assert (lease.resource.id, lease.owner, lease.claimed_at_ms, lease.expires_at_ms) == ("p", ANN, now, now + TTL)
        assert await (await harness.open()).process_leases.holder("p") == lease
        assert outcome.record == await stored(storage)
        assert outcome.record.projection.started_by == ANN
        assert [each.event_type for each in await log(storage)] == ["process.started"]

    async def test_an_owner_begins_once(self, harness: Harness) -> None:
        """Claims of one owner write one event; each other owner or incarnation writes its own."""
        storage = await _storage(harness)
        for claimant in (ANN, ANN, BOB, ANN, owner("ann", "2")):
            lease = process_lease(await storage.process_leases.claim("p", claimant, ttl_ms=TTL))
            await storage.process_leases.release(lease.fence)
        began = [each.payload for each in await log(storage)]
        assert began == [{"owner": _plain("ann", "1")}, {"owner": _plain("bob", "1")}, {"owner": _plain("ann", "2")}]

    async def test_an_owner_may_learn_its_own_process(self, harness: Harness) -> None:
        """The same worker and incarnation claims again, with or without naming its operating system process."""
        storage = await _storage(harness)
        first = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await storage.process_leases.release(first.fence)
        described = owner("ann", process=LocalProcess(host_id="h", boot_id="b", pid=1, process_start="1"))
        assert process_lease(await storage.process_leases.claim("p", described, ttl_ms=TTL)).fencing > first.fencing

    async def test_fencing_numbers_only_grow(self, harness: Harness) -> None:
        """Every acquisition has a larger number and a new token, across release, expiry and takeover."""
        storage = await _storage(harness)
        leases: list[Lease] = []
        for turn in range(6):
            leases.append(process_lease(await storage.process_leases.claim("p", (ANN, BOB)[turn % 2], ttl_ms=TTL)))
            if turn % 3:
                assert await storage.process_leases.release(leases[-1].fence)
            else:
                await harness.clock.advance(TTL)
        assert [lease.fencing for lease in leases] == [1, 2, 3, 4, 5, 6]
        assert len({lease.token for lease in leases}) == 6

    async def test_another_owner_is_refused_and_told_why(self, harness: Harness) -> None:
        """A live lease is Busy with its holder, until the exact expiry, and does not change."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL - 1)
        before = await world(storage)
        for rival in (BOB, owner("ann", "2")):
            answer = await storage.process_leases.claim("p", rival, ttl_ms=TTL)
            assert answer == ProcessRefused(reason=RefusalReason.BUSY, holder=lease)
        assert await world(storage) == before

    async def test_the_same_holder_re_enters(self, harness: Harness) -> None:
        """A claim repeated by the holder keeps token and number, and never shortens the lease."""
        storage = await _storage(harness)
        first = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await harness.clock.advance(400)
        outcome = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
        assert isinstance(outcome, ProcessAcquired)
        assert outcome.reentered
        assert outcome.lease == msgspec.structs.replace(first, expires_at_ms=first.expires_at_ms + 400)
        assert process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=1)) == outcome.lease
        assert await storage.process_leases.holder("p") == outcome.lease

    async def test_a_claim_says_whether_anything_is_recorded(self, harness: Harness) -> None:
        """A first claim reports no recorded effects; a later claim or re-entry reports those recorded since."""
        storage = await _storage(harness)
        await storage.processes.register(process("q", NOTE))
        first = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
        assert isinstance(first, ProcessAcquired)
        assert not first.has_effects
        await storage.effects.record(first.lease.fence, effect(scope=RUN), 1)
        again = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
        assert isinstance(again, ProcessAcquired)
        assert again.reentered
        assert again.has_effects
        await storage.process_leases.release(first.lease.fence)
        second = await (await harness.open()).process_leases.claim("p", BOB, ttl_ms=TTL)
        assert isinstance(second, ProcessAcquired)
        assert second.has_effects
        other = await storage.process_leases.claim("q", ANN, ttl_ms=TTL)
        assert isinstance(other, ProcessAcquired)
        assert not other.has_effects

    async def test_a_lapsed_lease_is_taken_over(self, harness: Harness) -> None:
        """Once a lease expires, another owner takes it and sees whom it displaced; the holder cannot renew it."""
        storage = await _storage(harness)
        lapsed = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL)
        outcome = await storage.process_leases.claim("p", BOB, ttl_ms=TTL)
        assert isinstance(outcome, ProcessAcquired)
        assert (outcome.displaced, outcome.lease.fencing) == (lapsed, lapsed.fencing + 1)
        await refuse(storage, storage.process_leases.renew(lapsed.fence, ttl_ms=TTL), LeaseLost, naming="p")

    async def test_runs_that_crash_in_a_row_are_counted(self, harness: Harness) -> None:
        """A lease that lapses or is taken from a dead holder is a crash; a release is not, and parking ends the row."""
        storage, alive = await _storage(harness), current_process()
        if alive is None:
            pytest.skip("this machine cannot prove that a process is dead")
        leases = storage.process_leases
        held = process_lease(await leases.claim("p", ANN, ttl_ms=TTL))
        await leases.release(held.fence)
        counts = [await _crashes(leases.claim("p", ANN, ttl_ms=TTL))]
        for _ in range(2):
            await harness.clock.advance(TTL)
            counts.append(await _crashes(leases.claim("p", BOB, ttl_ms=TTL)))
        await harness.clock.advance(TTL)
        dead = owner("dead", process=msgspec.structs.replace(alive, process_start="1"))
        taken = process_lease(await leases.claim("p", dead, ttl_ms=TTL))
        outcome = await leases.reclaim("p", owner("next", process=alive), observed=taken, ttl_ms=TTL)
        assert isinstance(outcome, ProcessAcquired)
        counts.append(outcome.crashes)
        await leases.release(outcome.lease.fence)
        outcome = await leases.claim("p", ANN, ttl_ms=TTL)
        assert isinstance(outcome, ProcessAcquired)
        counts.append(outcome.crashes)
        await leases.park(outcome.lease.fence, wake_seq=outcome.wake_seq, until_ms=None)
        counts.append(await _crashes(leases.claim("p", ANN, ttl_ms=TTL)))
        assert counts == [0, 1, 2, 4, 4, 0]

    async def test_a_lapsed_lease_that_was_not_taken_is_renewed(self, harness: Harness) -> None:
        """Until another owner takes an expired lease, its holder can renew it, and the fence proves it again."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL * 3)
        end = storage.process_leases.complete(lease.fence, Success(value=1))
        await refuse(storage, end, LeaseLost, naming="p")
        renewed = await storage.process_leases.renew(lease.fence, ttl_ms=TTL)
        assert renewed == msgspec.structs.replace(lease, expires_at_ms=harness.clock.now_ms() + TTL)
        assert isinstance(await storage.process_leases.claim("p", BOB, ttl_ms=TTL), ProcessRefused)
        assert (await storage.process_leases.complete(lease.fence, Success(value=1))).is_terminal

    async def test_no_time_to_live_is_over_at_once(self, harness: Harness) -> None:
        """A lease of zero milliseconds can be taken by another owner at once."""
        storage = await _storage(harness)
        process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=0))
        process_lease(await storage.process_leases.claim("p", BOB, ttl_ms=0))
        assert [record.process_id for record in await storage.processes.runnable()] == ["p"]

    async def test_a_renewed_lease_lives_on(self, harness: Harness) -> None:
        """Renewing moves the expiry, never back, and changes nothing else."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        renewed = lease
        for _ in range(3):
            await harness.clock.advance(TTL - 1)
            renewed = await storage.process_leases.renew(lease.fence, ttl_ms=TTL)
            assert renewed == msgspec.structs.replace(lease, expires_at_ms=harness.clock.now_ms() + TTL)
        assert await storage.process_leases.renew(lease.fence, ttl_ms=1) == renewed
        assert await storage.process_leases.holder("p") == renewed

    @pytest.mark.parametrize("changed", ["token", "fencing", "owner_id", "incarnation_id"])
    async def test_a_false_fence_does_nothing(self, harness: Harness, changed: str) -> None:
        """A fence that differs in any field neither renews nor releases nor ends."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        false = msgspec.structs.replace(lease.fence, **{changed: 99 if changed == "fencing" else "false"})
        await refuse(storage, storage.process_leases.renew(false, ttl_ms=TTL * 5), LeaseLost, naming="p")
        await refuse(storage, storage.process_leases.complete(false, DONE), LeaseLost, naming="p")
        assert await storage.process_leases.release(false) is False
        assert await storage.process_leases.holder("p") == lease

    async def test_a_late_release_changes_nothing(self, harness: Harness) -> None:
        """A late release by an earlier holder changes nothing, and neither does a second release."""
        storage = await _storage(harness)
        old = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        assert [await storage.process_leases.release(old.fence) for _ in range(2)] == [True, False]
        new = process_lease(await storage.process_leases.claim("p", BOB, ttl_ms=TTL))
        assert await storage.process_leases.release(old.fence) is False
        assert await storage.process_leases.holder("p") == new

    async def test_of_many_claims_one_acquires(self, harness: Harness) -> None:
        """Of concurrent claims by different owners exactly one acquires, and the others name it."""
        storages = [await harness.open() for _ in range(4)]
        for attempt in range(4):
            name = f"p{attempt}"
            await registered(storages[0], name)
            answers = await asyncio.gather(
                *(storages[each % 4].process_leases.claim(name, owner(f"w{each}"), ttl_ms=TTL) for each in range(8))
            )
            won = [answer.lease for answer in answers if isinstance(answer, ProcessAcquired)]
            assert won == [await storages[0].process_leases.holder(name)]
            refused = [answer for answer in answers if isinstance(answer, ProcessRefused)]
            assert refused == [ProcessRefused(reason=RefusalReason.BUSY, holder=won[0])] * 7
            assert len(await log(storages[1], name)) == 1
        await check_logs(storages[0])

    @pytest.mark.parametrize(
        "bad", [{"ttl_ms": -1}, {"ttl_ms": 86_400_001}, {"ttl_ms": 1.5}, {"owner": None}, {"owner": owner("")}]
    )
    async def test_a_bad_claim_is_refused(self, harness: Harness, bad: dict[str, Any]) -> None:
        """Invalid owners and times acquire nothing."""
        storage = await _storage(harness)
        arguments: dict[str, Any] = {"owner": ANN, "ttl_ms": TTL} | bad
        await refuse(storage, storage.process_leases.claim("p", **arguments), InvalidInput)

    @pytest.mark.parametrize("bad", [None, "token", ("p", "t")])
    async def test_a_bad_fence_is_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """An invalid fence is refused by every call that takes one."""
        storage = await _storage(harness)
        leases = storage.process_leases
        for call in (leases.renew(bad, ttl_ms=1), leases.release(bad), leases.complete(bad, DONE)):
            await refuse(storage, call, InvalidInput)
        await refuse(storage, leases.reclaim("p", ANN, observed=bad, ttl_ms=1), InvalidInput)


class TestFencedEnd:
    """Laws of ending a process under its lease, and of owners that may not run it."""

    async def test_a_fenced_end_frees_the_lease(self, harness: Harness) -> None:
        """The outcome, the status and the release of the lease are one transaction."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        record = await storage.process_leases.complete(lease.fence, DONE)
        assert (record.status, record.projection.outcome) == (ProcessStatus.COMPLETED, DONE)
        assert await storage.process_leases.holder("p") is None
        assert await storage.processes.runnable() == ()

    async def test_repeating_a_fenced_end_is_safe(self, harness: Harness) -> None:
        """A holder that lost the answer repeats the end safely; another outcome is refused."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        record = await storage.process_leases.complete(lease.fence, DONE)
        await harness.clock.advance(TTL * 2)
        assert await storage.process_leases.complete(lease.fence, DONE) == record
        other = storage.process_leases.complete(lease.fence, Success(value="other"))
        await refuse(storage, other, EventConflict, naming="p")
        failed = storage.process_leases.complete(lease.fence, FAILED)
        await refuse(storage, failed, ProcessTerminal, naming="p")

    @pytest.mark.parametrize("how", ["lapsed", "released", "taken over"])
    async def test_a_stale_fence_ends_nothing(self, harness: Harness, how: str) -> None:
        """A holder that lost its lease can neither end the process nor free the new lease."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        if how == "released":
            await storage.process_leases.release(lease.fence)
        else:
            await harness.clock.advance(TTL)
        if how == "taken over":
            process_lease(await storage.process_leases.claim("p", BOB, ttl_ms=TTL))
        await refuse(storage, storage.process_leases.complete(lease.fence, DONE), LeaseLost, naming="p")

    @pytest.mark.parametrize("how", ["lapsed", "released", "taken over", "ended"])
    async def test_a_stale_fence_notes_nothing(self, harness: Harness, how: str) -> None:
        """A holder that lost its lease or its process cannot append, even under a known key."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await storage.events.append("p", event(key="known"), fence=lease.fence)
        if how == "released":
            await storage.process_leases.release(lease.fence)
        elif how == "ended":
            await storage.process_leases.complete(lease.fence, DONE)
        else:
            await harness.clock.advance(TTL)
        if how == "taken over":
            process_lease(await storage.process_leases.claim("p", BOB, ttl_ms=TTL))
        for call in (
            storage.events.append("p", event(), fence=lease.fence),
            storage.events.append("p", event(key="known"), fence=lease.fence),
            storage.processes.set_wait("p", wait(), fence=lease.fence),
            storage.processes.clear_wait("p", wait(), fence=lease.fence),
        ):
            await refuse(storage, call, LeaseLost, naming="p")

    async def test_a_live_fence_notes_and_stays(self, harness: Harness) -> None:
        """A run appends and records waits under its lease, which is neither freed nor extended."""
        storage = await opened(harness)
        await storage.processes.register(process("p", NOTE, GO))
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        appended = await storage.events.append("p", event(payload=1), fence=lease.fence)
        assert (appended.replayed, appended.event.sequence) == (False, 2)
        assert (await storage.processes.set_wait("p", wait(), fence=lease.fence)).projection.wait == wait()
        assert (await storage.processes.clear_wait("p", wait(), fence=lease.fence)).projection.wait is None
        assert await storage.process_leases.holder("p") == lease
        await storage.process_leases.complete(lease.fence, DONE)

    async def test_a_fence_of_an_earlier_life_ends_nothing(self, harness: Harness) -> None:
        """A fence from before the process was pruned and registered again is refused."""
        storage = await _storage(harness)
        lease = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await storage.processes.complete("p", FAILED)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms() + 1, through_cursor=None)
        await registered(storage)
        await refuse(storage, storage.process_leases.complete(lease.fence, DONE), LeaseLost, naming="p")
        assert await storage.process_leases.release(lease.fence) is False

    async def test_an_ended_process_is_not_claimed(self, harness: Harness) -> None:
        """An ended process cannot be claimed, even if its lease was never released."""
        storage = await _storage(harness)
        process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await storage.processes.complete("p", DONE)
        for claimant in (ANN, BOB):
            answer = await storage.process_leases.claim("p", claimant, ttl_ms=TTL)
            assert answer == ProcessRefused(reason=RefusalReason.TERMINAL)
        await harness.clock.advance(TTL)
        assert await storage.processes.runnable() == ()

    async def test_an_external_process_is_never_claimed(self, harness: Harness) -> None:
        """An external process cannot be claimed, however long it takes."""
        storage = await opened(harness)
        await storage.processes.register(external())
        answer = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
        assert answer == ProcessRefused(reason=RefusalReason.EXTERNAL)
        assert (await stored(storage)).last_sequence == 0

    async def test_bound_work_is_never_run_by_another(self, harness: Harness) -> None:
        """Once started, owner-bound work is refused to every other owner and incarnation, lapsed or released."""
        storage = await opened(harness)
        await storage.processes.register(process(recovery=Recovery.OWNER_BOUND))
        first = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL)
        refused = ProcessRefused(reason=RefusalReason.OWNER_BOUND)
        assert await storage.process_leases.claim("p", BOB, ttl_ms=TTL) == refused
        assert await storage.process_leases.claim("p", owner("ann", "2"), ttl_ms=TTL) == refused
        assert await storage.process_leases.reclaim("p", BOB, observed=first, ttl_ms=TTL) == refused
        again = process_lease(await storage.process_leases.claim("p", ANN, ttl_ms=TTL))
        await storage.process_leases.release(again.fence)
        assert await storage.process_leases.claim("p", BOB, ttl_ms=TTL) == refused
        assert (await stored(storage)).status is ProcessStatus.RUNNING
        assert len(await log(storage)) == 1

    async def test_of_racing_first_claims_bound_work_has_one_owner(self, harness: Harness) -> None:
        """The first claim owns bound work; a lease of zero milliseconds does not let a second owner in."""
        storages = [await harness.open() for _ in range(4)]
        for attempt in range(4):
            name = f"p{attempt}"
            await storages[0].processes.register(process(name, recovery=Recovery.OWNER_BOUND))
            answers = await asyncio.gather(
                *(storages[each % 4].process_leases.claim(name, owner(f"w{each}"), ttl_ms=0) for each in range(8))
            )
            assert sum(isinstance(answer, ProcessAcquired) for answer in answers) == 1
            assert len(await log(storages[0], name)) == 1

    async def test_racing_ends_have_one_winner(self, harness: Harness) -> None:
        """A fenced end concurrent with an unfenced one, appends and a takeover ends the process once."""
        storages = [await harness.open() for _ in range(4)]
        for attempt in range(6):
            name = f"p{attempt}"
            await registered(storages[0], name)
            lease = process_lease(await storages[0].process_leases.claim(name, ANN, ttl_ms=TTL))
            answers = await asyncio.gather(
                storages[0].process_leases.complete(lease.fence, DONE),
                storages[1].processes.complete(name, FAILED),
                storages[2].processes.request_cancel(name, reason="r"),
                storages[3].events.append(name, event()),
                return_exceptions=True,
            )
            ended = [each.event_type for each in await log(storages[0], name)]
            assert sum(each in {"process.completed", "process.failed"} for each in ended) == 1
            assert sum(isinstance(answer, ProcessTerminal) for answer in answers) == 1
        await check_logs(storages[0])

    async def test_a_dead_holder_is_displaced(self, harness: Harness) -> None:
        """Only a reclaim takes the lease of a provably dead process before its expiry."""
        storage = await _storage(harness)
        alive = current_process()
        if alive is None:
            pytest.skip("this machine cannot prove that a process is dead")
        dead = owner("dead", process=msgspec.structs.replace(alive, process_start="1"))
        held = process_lease(await storage.process_leases.claim("p", dead, ttl_ms=TTL))
        busy = ProcessRefused(reason=RefusalReason.BUSY, holder=held)
        next_one = owner("next", process=alive)
        assert await storage.process_leases.claim("p", next_one, ttl_ms=TTL) == busy
        assert await storage.process_leases.reclaim("p", BOB, observed=held, ttl_ms=TTL) == busy
        outdated = msgspec.structs.replace(held, token="outdated")
        assert await storage.process_leases.reclaim("p", next_one, observed=outdated, ttl_ms=TTL) == busy
        namesake = owner("dead", process=alive)
        again = await storage.process_leases.reclaim("p", namesake, observed=held, ttl_ms=TTL)
        assert isinstance(again, ProcessAcquired)
        assert (again.reentered, again.lease) == (True, held)
        outcome = await storage.process_leases.reclaim("p", next_one, observed=held, ttl_ms=TTL)
        assert isinstance(outcome, ProcessAcquired)
        assert (outcome.displaced, outcome.lease.fencing) == (held, held.fencing + 1)
        assert outcome.record.projection.started_by == next_one
        await refuse(storage, storage.process_leases.complete(held.fence, DONE), LeaseLost, naming="p")


def _plain(owner_id: str, incarnation_id: str) -> dict[str, object]:
    return {"owner_id": owner_id, "incarnation_id": incarnation_id}


async def _storage(harness: Harness) -> Storage:
    storage = await opened(harness)
    await registered(storage)
    return storage


async def _crashes(claim: Awaitable[ProcessLeaseOutcome]) -> int:
    outcome = await claim
    assert isinstance(outcome, ProcessAcquired)
    return outcome.crashes
