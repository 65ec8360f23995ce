"""The contract of parking: a parked process is not polled until its time or a reason to run; none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from lash.errors import InvalidInput, LeaseLost
from lash.model.lease import LeaseFence
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import Call, log, opened, refuse, world
from tests.contract.work_state import BOB, FOREVER, TTL, looked, opened_with_process, park, parked, ready, run
from tests.factories.process import (
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


class TestPark:
    """Laws of parking and waking one process."""

    async def test_a_registration_is_ready(self, harness: Harness) -> None:
        """A new process is on the work list at once, and a repeated registration does not change that."""
        storage = await opened_with_process(harness)
        assert await ready(storage) == ["p"]
        await parked(storage)
        await storage.processes.register(process("p", NOTE, GO))
        assert await ready(storage) == []

    async def test_an_external_process_is_never_ready(self, harness: Harness) -> None:
        """An external process is never on the list, whatever is sent to it."""
        storage = await opened(harness)
        await storage.processes.register(external("p", GO))
        await storage.events.signal("p", "go", signal_id="1")
        await storage.processes.request_cancel("p")
        assert await ready(storage) == []

    async def test_what_runs_is_not_looked_at(self, harness: Harness) -> None:
        """A live lease keeps a process off the list, woken or not; release and expiry put it back."""
        storage = await opened_with_process(harness)
        first = await run(storage)
        await storage.events.signal("p", "go", signal_id="1")
        assert await ready(storage, BOB) == []
        assert await storage.process_leases.release(first.lease.fence)
        assert await ready(storage, BOB) == ["p"]
        await run(storage)
        await harness.clock.advance(TTL - 1)
        assert await ready(storage, BOB) == []
        await harness.clock.advance(1)
        assert await ready(storage, BOB) == ["p"]

    async def test_parked_until_woken(self, harness: Harness) -> None:
        """Without a time, only a reason to run puts a parked process back on the list; its lease is free."""
        storage = await opened_with_process(harness)
        first = await run(storage)
        assert first.wake_seq == 0
        assert await park(storage, first) is True
        assert await storage.process_leases.holder("p") is None
        await harness.clock.advance(FOREVER)
        assert (await ready(storage), (await looked(storage)).next_at_ms) == ([], None)
        await storage.events.signal("p", "go", signal_id="1")
        assert await ready(storage) == ["p"]
        assert (await run(storage)).wake_seq == 1

    async def test_parked_until_a_moment(self, harness: Harness) -> None:
        """A timer is due at its moment, not before, and a poll returns that moment."""
        storage = await opened_with_process(harness)
        due = harness.clock.now_ms() + 5_000
        await parked(storage, until_ms=due)
        await harness.clock.advance(4_999)
        work = await looked(storage)
        assert (work.process_ids, work.next_at_ms, work.now_ms) == ((), due, due - 1)
        await harness.clock.advance(1)
        work = await looked(storage)
        assert (work.process_ids, work.next_at_ms, work.now_ms) == (("p",), None, due)
        assert (await run(storage)).wake_seq == 0

    @pytest.mark.parametrize("until_ms", [0, 1])
    async def test_a_moment_of_the_past_is_due(self, harness: Harness, until_ms: int) -> None:
        """Parking until a past moment leaves the process ready; the answer is that no reason came meanwhile."""
        storage = await opened_with_process(harness)
        assert await park(storage, await run(storage), until_ms) is True
        assert await ready(storage) == ["p"]

    @pytest.mark.parametrize("reason", ["signal", "cancel", "abandon"])
    @pytest.mark.parametrize("moment", ["before the claim", "between", "after"])
    async def test_no_reason_is_lost(self, harness: Harness, reason: str, moment: str) -> None:
        """No wake-up is lost: a reason to run counts before, during and after a run that parks."""
        storage = await opened_with_process(harness)
        if moment == "before the claim":
            await parked(storage)
            await _ask(storage, reason)
            assert await ready(storage) == ["p"]
            second = await run(storage)
            assert second.wake_seq == 1
            assert await park(storage, second) is True
            assert await ready(storage) == []
            return
        first = await run(storage)
        if moment == "between":
            await _ask(storage, reason)
            assert await park(storage, first, FOREVER) is False
            assert await storage.process_leases.holder("p") is None
        else:
            assert await park(storage, first, FOREVER) is True
            await _ask(storage, reason)
        work = await looked(storage)
        assert (work.process_ids, work.next_at_ms) == (("p",), None)
        assert (await run(storage)).wake_seq == 1

    async def test_what_a_process_does_itself_does_not_wake_it(self, harness: Harness) -> None:
        """Events, waits and references that a run writes are not reasons to run again."""
        storage = await opened_with_process(harness)
        first = await run(storage)
        await storage.events.append("p", event())
        await storage.processes.set_wait("p", wait())
        await storage.processes.clear_wait("p", wait())
        assert await park(storage, first) is True
        await storage.events.append("p", event())
        assert await ready(storage) == []

    async def test_a_burst_of_signals_is_counted(self, harness: Harness) -> None:
        """Every signal is a separate reason, also from concurrent storages; a replayed one is none."""
        storage = await opened_with_process(harness)
        await parked(storage)
        others = [await harness.open() for _ in range(3)]
        calls = [each.events.signal("p", "go", signal_id=f"{n}") for n, each in enumerate(others * 7)]
        await asyncio.gather(*calls)
        await storage.events.signal("p", "go", signal_id="0")
        assert (await run(storage)).wake_seq == 21

    async def test_an_older_reason_keeps_its_place(self, harness: Harness) -> None:
        """Processes come in the order in which they became ready; more reasons do not move one to the end."""
        storage = await opened(harness)
        for process_id in ("b", "a", "c"):
            await storage.processes.register(process(process_id, NOTE, GO))
            await parked(storage, process_id)
        for number, process_id in enumerate(("c", "a", "b", "c")):
            await storage.events.signal(process_id, "go", signal_id=f"{number}")
            await harness.clock.advance(10)
        assert await ready(storage) == ["c", "a", "b"]

    async def test_a_re_entry_counts_anew(self, harness: Harness) -> None:
        """The count of a re-entry includes the reasons since the first claim."""
        storage = await opened_with_process(harness)
        first = await run(storage)
        await storage.events.signal("p", "go", signal_id="1")
        again = await run(storage)
        assert (again.reentered, first.wake_seq, again.wake_seq) == (True, 0, 1)
        assert await park(storage, again) is True

    async def test_a_claim_makes_a_parked_process_ready(self, harness: Harness) -> None:
        """A worker that dies while running a parked process leaves it on the list."""
        storage = await opened_with_process(harness)
        await parked(storage, until_ms=FOREVER)
        await run(storage)
        assert (await looked(storage)).next_at_ms is None
        await harness.clock.advance(TTL)
        assert await ready(storage) == ["p"]

    @pytest.mark.parametrize("how", ["expired", "released", "taken over", "other token", "parked before"])
    async def test_a_lost_fence_parks_nothing(self, harness: Harness, how: str) -> None:
        """Parking with a lost fence is refused and changes nothing."""
        storage = await opened_with_process(harness)
        fence, seen = await _lose(storage, harness, how)
        ready_before = await ready(storage)
        call = storage.process_leases.park(fence, wake_seq=seen, until_ms=None)
        await refuse(storage, call, LeaseLost, naming="p")
        assert await ready(storage) == ready_before

    async def test_fencing_numbers_grow_over_parking(self, harness: Harness) -> None:
        """Parking frees the lease and keeps its number; the next run has a larger one."""
        storage = await opened_with_process(harness)
        numbers = []
        for _ in range(3):
            acquired = await run(storage)
            numbers.append(acquired.lease.fencing)
            await park(storage, acquired, 0)
        assert numbers == [1, 2, 3]

    async def test_parking_is_no_event(self, harness: Harness) -> None:
        """The log and the record do not show parking, timers or readiness."""
        storage = await opened_with_process(harness)
        first = await run(storage)
        record, events = await stored(storage), await log(storage)
        before = await world(storage)
        await park(storage, first, FOREVER)
        after = await world(storage)
        assert (await stored(storage), await log(storage)) == (record, events)
        assert after.changes == before.changes

    async def test_parking_survives_reopening(self, harness: Harness) -> None:
        """A timer and the seen reasons are stored: another storage finds them unchanged."""
        storage = await harness.open()
        await registered(storage, "p", "q")
        due = harness.clock.now_ms() + 50
        await parked(storage, "p", due)
        await storage.processes.request_cancel("q")
        storage = await harness.reopen()
        assert await ready(storage) == ["q"]
        assert (await run(storage, "q")).wake_seq == 1
        await harness.clock.advance(50)
        assert await ready(storage) == ["p"]

    @pytest.mark.parametrize(("wake_seq", "until_ms"), [(-1, None), ("0", None), (True, None), (0, -1), (0, 2**63)])
    async def test_bad_numbers_are_refused(self, harness: Harness, wake_seq: Any, until_ms: Any) -> None:  # noqa: ANN401
        """An invalid number is refused before anything is written."""
        storage = await opened_with_process(harness)
        fence = (await run(storage)).lease.fence
        call = storage.process_leases.park(fence, wake_seq=wake_seq, until_ms=until_ms)
        await refuse(storage, call, InvalidInput)
        assert (await storage.process_leases.holder("p")) is not None


async def _ask(storage: Storage, reason: str) -> None:
    calls: dict[str, Call] = {
        "signal": lambda: storage.events.signal("p", "go", signal_id="1"),
        "cancel": lambda: storage.processes.request_cancel("p"),
        "abandon": lambda: storage.processes.request_abandon("p"),
    }
    await calls[reason]()


async def _lose(storage: Storage, harness: Harness, how: str) -> tuple[LeaseFence, int]:
    """Run the process, lose its lease, and return the lost fence and the reasons seen."""
    first = await run(storage)
    fence = first.lease.fence
    match how:
        case "expired":
            await harness.clock.advance(TTL)
        case "released":
            await storage.process_leases.release(fence)
        case "taken over":
            await harness.clock.advance(TTL)
            process_lease(await storage.process_leases.claim("p", BOB, ttl_ms=TTL))
        case "other token":
            return msgspec.structs.replace(fence, token="another"), first.wake_seq
        case "parked before":
            await park(storage, first)
    return fence, first.wake_seq
