"""The contract of the counts of a storage."""

from __future__ import annotations

import asyncio

from lash.model.maintenance import StorageCounts
from lash.model.process.process import ProcessStatus, Success
from lash.model.queue import Boundary, Claim
from lash.model.session.session import SessionState
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, TTL, late
from tests.factories.process import external, process
from tests.factories.session import acquired, created, owner
from tests.factories.wait import TURN, key_of, parked, waiting

NONE = StorageCounts(
    sessions=dict.fromkeys(SessionState, 0),
    queued=0,
    claimed=0,
    dead=0,
    processes=dict.fromkeys(ProcessStatus, 0),
    waits=0,
    running_processes=0,
)


class TestCounts:
    """Laws of the counts."""

    async def test_an_empty_storage_counts_nothing(self, harness: Harness) -> None:
        """Every state is there, with 0."""
        assert await (await harness.open()).counts() == NONE

    async def test_everything_is_counted_in_one_statement(self, harness: Harness) -> None:
        """A session counts once, in the first state that applies; a claim counts while it and its lease are live."""
        names: list[str] = []
        storage = await harness.open(on_statement=names.append)
        for name in ("idle", "queued", "running", "s"):
            await created(storage, name)
        for name in ("queued", "running", "running", "running"):
            await storage.queue.enqueue(late("hello", session_id=name))
        lease = acquired(await storage.leases.claim("running", owner("w"), ttl_ms=LONG))
        buried = await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=1)
        assert isinstance(buried, Claim)
        await storage.queue.bury(buried, reason="no")
        await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=1)
        key = await key_of(storage, scope=TURN)
        task = waiting(storage, key)
        await parked(storage, key)
        await storage.processes.register(process("p"))
        await storage.process_leases.claim("p", owner("w"), ttl_ms=LONG)
        await storage.processes.register(external("e"))
        await storage.processes.complete("e", Success(value=1))
        names.clear()
        counts = await storage.counts()
        assert [name for name in names if name.startswith("maintenance")] == ["maintenance_counts"]
        assert counts == StorageCounts(
            sessions=dict.fromkeys(SessionState, 1),
            queued=2,
            claimed=1,
            dead=1,
            processes={**NONE.processes, ProcessStatus.RUNNING: 1, ProcessStatus.COMPLETED: 1},
            waits=1,
            running_processes=1,
        )
        task.cancel()
        await asyncio.wait([task])
        await harness.clock.advance(LONG)
        later = await storage.counts()
        assert (later.queued, later.claimed, later.running_processes) == (3, 0, 0)
        assert later.sessions == {
            **NONE.sessions,
            SessionState.QUEUED: 2,
            SessionState.WAITING: 1,
            SessionState.IDLE: 1,
        }
