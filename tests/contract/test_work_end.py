"""The contract of ends for the work list: an ended process never runs again, and its parent is woken."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lash.errors import ProcessNotFound, ProcessPruned
from lash.model.causal import ProcessEventCause, TurnCause
from lash.model.lease import LeaseFence, process_resource
from lash.model.process.event import TerminalState
from lash.model.process.process import Abandonment, Failure, ProcessRefused, RefusalReason
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import opened
from tests.contract.work_state import (
    ANN,
    FOREVER,
    TTL,
    child,
    looked,
    opened_with_process,
    park,
    parked,
    ready,
    run,
)
from tests.factories.process import DONE, GO, NOTE, ending, event, external, process, registered


class TestWorkEnd:
    """Laws of ends: of the process itself, and of its children."""

    @pytest.mark.parametrize("how", ["fenced", "unfenced", "declared", "abandoned"])
    async def test_what_ended_is_never_ready(self, harness: Harness, how: str) -> None:
        """An end removes a process from the list; later signals and late releases do not bring it back."""
        storage = await opened(harness)
        await storage.processes.register(process("p", GO, ending("done", TerminalState.COMPLETED)))
        first = await run(storage)
        await _end(storage, first.lease.fence, how)
        await storage.process_leases.release(first.lease.fence)
        await storage.events.signal("p", "go", signal_id="1")
        await harness.clock.advance(FOREVER)
        work = await looked(storage)
        assert (work.process_ids, work.next_at_ms) == ((), None)

    async def test_a_run_whose_process_ended_parks_quietly(self, harness: Harness) -> None:
        """If its process was ended elsewhere, a run's parking frees the lease, and there is nothing to run."""
        storage = await opened_with_process(harness)
        first = await run(storage)
        await storage.processes.complete("p", DONE)
        assert await park(storage, first, 0) is True
        assert await ready(storage) == []
        refused = await storage.process_leases.claim("p", ANN, ttl_ms=TTL)
        assert refused == ProcessRefused(reason=RefusalReason.TERMINAL)

    @pytest.mark.parametrize("moment", ["between", "after"])
    @pytest.mark.parametrize("how", ["fenced", "unfenced", "declared", "abandoned"])
    async def test_the_end_of_a_child_wakes_its_parent(self, harness: Harness, how: str, moment: str) -> None:
        """No wake-up is lost: however and whenever a child ends, a parent that parks is ready again."""
        storage = await opened_with_process(harness)
        registration = child()
        types = (*registration.event_types, ending("done", TerminalState.COMPLETED))
        await storage.processes.register(msgspec.structs.replace(registration, event_types=types))
        parent = await run(storage)
        fence = (await run(storage, "c")).lease.fence
        if moment == "between":
            await _end(storage, fence, how)
            assert await park(storage, parent) is False
        else:
            assert await park(storage, parent) is True
            await _end(storage, fence, how)
        assert await ready(storage) == ["p"]
        assert (await run(storage)).wake_seq == 1

    async def test_an_external_child_wakes_its_parent(self, harness: Harness) -> None:
        """The end of an external child wakes its parent too."""
        storage = await opened_with_process(harness)
        done_elsewhere = external("c")
        await storage.processes.register(msgspec.structs.replace(done_elsewhere, provenance=child().provenance))
        await parked(storage)
        await storage.processes.complete("c", DONE)
        assert await ready(storage) == ["p"]

    async def test_a_child_of_an_event_wakes_its_parent(self, harness: Harness) -> None:
        """A process caused by an event of another process is its child too."""
        storage = await opened_with_process(harness)
        await storage.processes.register(child(cause=ProcessEventCause(process_id="p", sequence=1)))
        await parked(storage)
        await storage.processes.complete("c", Failure(code="c", message="m"))
        assert await ready(storage) == ["p"]

    async def test_only_the_end_wakes_and_only_the_parent(self, harness: Harness) -> None:
        """Other events of a child, a repeated end, and a cause that is not a process wake no process."""
        storage = await opened_with_process(harness)
        await registered(storage, "uncle")
        for registration in (child("c"), child("t", cause=TurnCause(session_id="p", turn_id="p"))):
            await storage.processes.register(registration)
            await parked(storage, registration.process_id)
        await parked(storage)
        await parked(storage, "uncle")
        await storage.events.append("c", event())
        await storage.processes.complete("t", DONE)
        assert await ready(storage) == []
        await storage.processes.complete("c", DONE)
        await storage.processes.complete("c", DONE)
        assert await ready(storage) == ["p"]
        assert (await run(storage)).wake_seq == 1

    async def test_a_parent_that_is_gone_hinders_no_end(self, harness: Harness) -> None:
        """A child can end even if its parent ended, was pruned, was never registered, or is the child itself."""
        storage = await opened(harness)
        await registered(storage, "ended", "pruned")
        for process_id in ("pruned", "ended"):
            await storage.processes.complete(process_id, DONE)
            if process_id == "pruned":
                await harness.clock.advance(10)
                await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        for parent in ("ended", "pruned", "never", "c-self"):
            name = "c-self" if parent == "c-self" else f"c-{parent}"
            await storage.processes.register(child(name, parent))
            assert (await storage.processes.complete(name, DONE)).is_terminal
        assert await ready(storage) == []

    async def test_processes_that_name_each_other_both_end(self, harness: Harness) -> None:
        """Two processes that name each other as parents can end concurrently."""
        storage, other = await harness.open(), await harness.open()
        for number in range(10):
            left, right = f"l{number}", f"r{number}"
            await storage.processes.register(child(left, right))
            await storage.processes.register(child(right, left))
            await asyncio.gather(storage.processes.complete(left, DONE), other.processes.complete(right, DONE))
        assert await ready(storage) == []

    async def test_a_pruned_process_leaves_the_list(self, harness: Harness) -> None:
        """A pruned process cannot be parked; its id can be registered again, ready and without reasons."""
        storage = await opened_with_process(harness)
        first = await run(storage)
        await storage.events.signal("p", "go", signal_id="1")
        await storage.process_leases.complete(first.lease.fence, DONE)
        await harness.clock.advance(10)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        with pytest.raises(ProcessPruned):
            await park(storage, first)
        await storage.processes.register(process("p", NOTE, GO))
        again = await run(storage)
        assert (again.wake_seq, again.lease.fencing) == (0, 2)

    async def test_an_unknown_process_is_not_parked(self, harness: Harness) -> None:
        """Parking a process that was never registered raises."""
        storage = await opened(harness)
        fence = LeaseFence(resource=process_resource("p"), owner_id="a", incarnation_id="1", token="t", fencing=1)
        with pytest.raises(ProcessNotFound):
            await storage.process_leases.park(fence, wake_seq=0, until_ms=None)


async def _end(storage: Storage, fence: LeaseFence, how: str) -> None:
    """End a running process in one of the possible ways."""
    match how:
        case "fenced":
            await storage.process_leases.complete(fence, DONE)
        case "unfenced":
            await storage.processes.complete(fence.resource.id, DONE)
        case "declared":
            await storage.events.append(fence.resource.id, event("done", key="end"))
        case "abandoned":
            await storage.processes.request_abandon(fence.resource.id)
            await storage.process_leases.release(fence)
            await storage.processes.abandon(fence.resource.id, Abandonment(message="gone"))
