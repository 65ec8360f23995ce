"""Shared by the contracts of the work list: polling, running and parking."""

from __future__ import annotations

from typing import Final

from lash.model.causal import CausalRef, ProcessCause
from lash.model.lease import LeaseOwner
from lash.model.process.process import ProcessAcquired, Provenance, Registration
from lash.model.work import WorkList
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import opened
from tests.factories.process import GO, NOTE, process
from tests.factories.session import owner

TTL: Final = 1_000
"""How long a lease lasts, in milliseconds."""
FOREVER: Final = 2**62
"""A moment that no test reaches."""
ANN, BOB = owner("ann"), owner("bob")


async def looked(storage: Storage, who: LeaseOwner = ANN) -> WorkList:
    """Return what a worker that runs nothing finds."""
    return await storage.work.poll(sessions=100, processes=100, owner=who)


async def ready(storage: Storage, who: LeaseOwner = ANN) -> list[str]:
    """Return the processes that a worker finds."""
    return list((await looked(storage, who)).process_ids)


async def run(storage: Storage, process_id: str = "p", who: LeaseOwner = ANN) -> ProcessAcquired:
    """Claim a process."""
    outcome = await storage.process_leases.claim(process_id, who, ttl_ms=TTL)
    assert isinstance(outcome, ProcessAcquired), outcome
    return outcome


async def park(storage: Storage, acquired: ProcessAcquired, until_ms: int | None = None) -> bool:
    """Park a process that is being run."""
    return await storage.process_leases.park(acquired.lease.fence, wake_seq=acquired.wake_seq, until_ms=until_ms)


async def parked(storage: Storage, process_id: str = "p", until_ms: int | None = None) -> None:
    """Run a process once, and park it."""
    assert await park(storage, await run(storage, process_id), until_ms)


def child(process_id: str = "c", of: str = "p", *, cause: CausalRef | None = None) -> Registration:
    """Return the registration of a process that another one started."""
    return process(process_id, NOTE, GO, provenance=Provenance(caused_by=cause or ProcessCause(process_id=of)))


async def opened_with_process(harness: Harness) -> Storage:
    """Open a storage with the process ``p``, which accepts the signal ``go``."""
    storage = await opened(harness)
    await storage.processes.register(process("p", NOTE, GO))
    return storage
