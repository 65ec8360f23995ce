"""The contract of runs that follow each other: one write ends a run and begins the next."""

from __future__ import annotations

import msgspec
import pytest

from lash.errors import EventConflict, InvalidInput, LeaseLost, ProcessTerminal
from lash.model.effect import AwaitEvent, Envelope, ProcessScope
from lash.model.lease import LeaseFence
from lash.model.process.continuation import Continuation, TakenSignals
from lash.model.process.event import CONTINUED, EventDraft
from lash.model.process.process import ProcessAcquired, Success
from lash.model.wait import CustomIdentity
from lash.plan.process.event import refold
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.process import GO, process
from tests.factories.session import owner

TTL = 60_000
SECOND = Continuation(run=2, input={"from": 7}, signals={"go": TakenSignals(count=1, sequence=2)})
SCOPE = ProcessScope(process_id="p")


async def _claimed(storage: Storage) -> ProcessAcquired:
    acquired = await storage.process_leases.claim("p", owner("w"), ttl_ms=TTL)
    assert isinstance(acquired, ProcessAcquired)
    return acquired


async def _recorded(storage: Storage, fence: LeaseFence, key: str) -> None:
    await storage.effects.record(fence, Envelope(scope=SCOPE, replay_key=key, command=AwaitEvent(key_id=key)), 1)


class TestContinue:
    """Laws of the begin of the next run."""

    async def test_the_next_run_begins_with_an_empty_journal(self, harness: Harness) -> None:
        """The effects of the last run are deleted, and the record and the log have the next run."""
        storage = await harness.open()
        await storage.processes.register(process("p", GO))
        await storage.processes.register(process("other"))
        first = await _claimed(storage)
        await _recorded(storage, first.lease.fence, "a")
        await _recorded(storage, first.lease.fence, "b")
        key = await storage.waits.key(SCOPE, CustomIdentity(key="open"))
        await storage.waits.open(key)
        await storage.events.signal("p", "go", signal_id="1", payload=1)
        record = await storage.process_leases.continue_as_new(first.lease.fence, SECOND)
        event = (await storage.events.recent("p", 1))[0]
        assert event.event_type == CONTINUED
        assert msgspec.convert(event.payload, Continuation) == SECOND
        assert (record.projection.run, record.projection.continued_at) == (2, event.sequence)
        assert await storage.processes.get("p") == record
        assert await storage.effects.list(SCOPE) == ()
        assert await storage.waits.get(key) is not None, "waits stay"
        log = await storage.events.after("p")
        assert refold(record.registration, log) == record.projection

    async def test_it_holds_its_lease_and_is_claimed_again_without_effects(self, harness: Harness) -> None:
        """The lease stays until it is released; the next claim finds no effects, and the input with the run."""
        storage = await harness.open()
        await storage.processes.register(process("p"))
        first = await _claimed(storage)
        await _recorded(storage, first.lease.fence, "a")
        await storage.process_leases.continue_as_new(first.lease.fence, Continuation(run=2, input=2))
        assert await storage.process_leases.holder("p") == first.lease
        await storage.process_leases.release(first.lease.fence)
        second = await _claimed(storage)
        assert second.record.projection.run == 2
        assert await storage.effects.list(SCOPE) == ()
        await storage.process_leases.continue_as_new(second.lease.fence, Continuation(run=3, input=3))
        ended = await storage.process_leases.complete(second.lease.fence, Success(value="done"))
        assert (ended.projection.run, ended.projection.outcome) == (3, Success(value="done"))

    async def test_repeating_it_changes_nothing(self, harness: Harness) -> None:
        """The same continuation is one run; another one of the same number is a conflict."""
        storage = await harness.open()
        await storage.processes.register(process("p"))
        fence = (await _claimed(storage)).lease.fence
        begun = await storage.process_leases.continue_as_new(fence, SECOND)
        await _recorded(storage, fence, "new")
        assert await storage.process_leases.continue_as_new(fence, SECOND) == begun
        assert len(await storage.effects.list(SCOPE)) == 1, "the effects of the next run stay"
        with pytest.raises(EventConflict):
            await storage.process_leases.continue_as_new(fence, Continuation(run=2, input="another"))

    async def test_only_the_holder_continues_and_only_by_one(self, harness: Harness) -> None:
        """A lost lease, another number, a missing lease and an ended process are refused, and nothing is written."""
        storage = await harness.open()
        await storage.processes.register(process("p"))
        lost = (await _claimed(storage)).lease.fence
        await storage.process_leases.release(lost)
        fence = (await _claimed(storage)).lease.fence
        await _recorded(storage, fence, "a")
        before = await storage.processes.get("p")
        with pytest.raises(LeaseLost):
            await storage.process_leases.continue_as_new(lost, SECOND)
        for run in (1, 3):
            with pytest.raises(InvalidInput, match="expected run 2"):
                await storage.process_leases.continue_as_new(fence, Continuation(run=run, input=None))
        with pytest.raises(InvalidInput, match="expected a Continuation"):
            await storage.process_leases.continue_as_new(fence, "again")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="holds the lease"):
            await storage.events.append("p", EventDraft(event_type=CONTINUED, payload={"run": 2, "input": None}))
        assert await storage.processes.get("p") == before
        assert len(await storage.effects.list(SCOPE)) == 1
        await storage.processes.complete("p", Success(value=None))
        with pytest.raises(ProcessTerminal):
            await storage.process_leases.continue_as_new(fence, SECOND)
