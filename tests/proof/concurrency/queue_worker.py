"""A process of two workers that turn queued inputs into nodes until it is killed.

``python -m tests.proof.concurrency.queue_worker URL SESSION…`` prints one line for each claim, before it commits.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Final

import lash
from lash.backend.liveness import current_owner
from lash.base.ids import new_id
from tests.contract.queue_state import consuming, texts
from tests.factories.session import commit, node

TTL_MS: Final = 5_000
MAX_BATCHES: Final = 20
WORKERS: Final = 2


async def work_forever(url: str, session_ids: list[str]) -> None:
    """Run the workers side by side, each with an identity of its own, on one storage."""
    async with await lash.open(url) as storage, asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(_worker(storage, session_ids))


async def _worker(storage: lash.Storage, session_ids: list[str]) -> None:
    owner = current_owner()
    while True:
        # Work of a dead worker is not ready before its lease expires, so try every session when none is ready.
        found = list(await storage.queue.ready_sessions()) or session_ids
        session_id = random.choice(found)
        try:
            lease = await _lease(storage, session_id, owner)
            if lease is not None:
                await _turn(storage, lease.fence)
        except (lash.LeaseLost, lash.errors.ClaimLost, lash.RevisionConflict, lash.StoreUnavailable):
            continue


async def _lease(storage: lash.Storage, session_id: str, owner: lash.model.LeaseOwner) -> lash.model.Lease | None:
    """Take the lease of a session, from a dead process too."""
    outcome = await storage.leases.claim(session_id, owner, ttl_ms=TTL_MS)
    if isinstance(outcome, lash.model.Busy):
        outcome = await storage.leases.reclaim(session_id, owner, observed=outcome.holder, ttl_ms=TTL_MS)
    return outcome.lease if isinstance(outcome, lash.model.Acquired) else None


async def _turn(storage: lash.Storage, fence: lash.model.LeaseFence) -> None:
    """Commit one node for each input of the next group, consume the group and free the session; all at once."""
    claim = await storage.queue.claim(fence, boundary=lash.model.Boundary.IDLE, ttl_ms=TTL_MS, max_batches=MAX_BATCHES)
    if not isinstance(claim, lash.model.Claim):
        await storage.leases.release(fence)
        return
    sys.stdout.write(f"{claim.session_id}\n")
    sys.stdout.flush()
    session = storage.session(fence.resource.id)
    head = await session.head()
    revision, leaf = (0, None) if head is None else (head.revision, head.leaf_node_id)
    # New ids in every attempt, so that an input handled twice would be stored twice.
    nodes: list[lash.model.Node] = []
    for text in texts(claim.batches):
        nodes.append(node(new_id(), leaf, text))
        leaf = nodes[-1].node_id
    values = commit(revision, *nodes, session_id=fence.resource.id, turn_id=claim.claim_id, fence=fence, release=fence)
    await session.commit(consuming(values, claim))


if __name__ == "__main__":
    asyncio.run(work_forever(sys.argv[1], sys.argv[2:]))
