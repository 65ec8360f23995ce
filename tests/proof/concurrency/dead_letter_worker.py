"""Processes that bury, requeue and discard, and are killed while doing so.

``python -m tests.proof.concurrency.dead_letter_worker act URL CLAIM ACT STATEMENT DELAY`` does one act and kills
itself at one of its statements, after a delay. ``… work URL SESSION…`` commits, buries and requeues at random until
it is killed, and prints a line for each claim.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

import lash
from lash.backend.liveness import current_owner
from lash.base.ids import new_id
from tests.contract.queue_state import consuming, texts
from tests.factories.session import commit, node

TTL_MS: Final = 2_000


async def _bury(storage: lash.Storage, claim: lash.model.Claim) -> object:
    return await storage.queue.bury(claim, reason="r")


async def _requeue(storage: lash.Storage, claim: lash.model.Claim) -> object:
    return await storage.queue.requeue(claim.session_id, claim.batches[0].batch_id)


async def _discard(storage: lash.Storage, claim: lash.model.Claim) -> object:
    return await storage.queue.discard(claim.session_id, claim.batches[0].batch_id)


ACTS: Final[dict[str, Callable[[lash.Storage, lash.model.Claim], Awaitable[object]]]] = {
    "bury": _bury,
    "requeue": _requeue,
    "discard": _discard,
}


class _Trap:
    """Kills this process at a statement, or a moment later, while that statement runs."""

    def __init__(self, statement: int, delay_s: float) -> None:
        self._left = statement
        self._delay_s = delay_s
        self.armed = False

    def __call__(self, _name: str) -> None:
        if not self.armed:
            return
        if self._left == 0:
            if self._delay_s == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            threading.Thread(target=self._strike, daemon=True).start()
        self._left -= 1

    def _strike(self) -> None:
        time.sleep(self._delay_s)
        os.kill(os.getpid(), signal.SIGKILL)


async def act_once(url: str, claim_text: str, act: str, statement: int, delay_s: float) -> None:
    """Perform one act on a claim, with the trap armed."""
    claim, trap = msgspec.json.decode(claim_text, type=lash.model.Claim), _Trap(statement, delay_s)
    async with await lash.open(url, on_statement=trap) as storage:
        trap.armed = True
        await ACTS[act](storage, claim)
        trap.armed = False


async def work_forever(url: str, session_ids: list[str]) -> None:
    """Turn inputs into nodes, bury some of them and requeue some of the buried."""
    owner = current_owner()
    async with await lash.open(url) as storage:
        while True:
            session_id = random.choice(session_ids)
            try:
                if random.random() < 0.4:
                    await _revive_one(storage, session_id)
                outcome = await storage.leases.claim(session_id, owner, ttl_ms=TTL_MS)
                if isinstance(outcome, lash.model.Busy):
                    outcome = await storage.leases.reclaim(session_id, owner, observed=outcome.holder, ttl_ms=TTL_MS)
                if isinstance(outcome, lash.model.Acquired):
                    await _turn(storage, outcome.lease.fence)
            except (lash.LeaseLost, lash.errors.ClaimLost, lash.RevisionConflict, lash.errors.DeadLetterNotFound):
                continue


async def _revive_one(storage: lash.Storage, session_id: str) -> None:
    letters = await storage.queue.dead(session_id=session_id, limit=5)
    if letters:
        await storage.queue.requeue(session_id, random.choice(letters).batch.batch_id)


async def _turn(storage: lash.Storage, fence: lash.model.LeaseFence) -> None:
    claim = await storage.queue.claim(fence, boundary=lash.model.Boundary.IDLE, ttl_ms=TTL_MS, max_batches=3)
    if isinstance(claim, lash.model.Claim):
        sys.stdout.write(f"{claim.session_id}\n")
        sys.stdout.flush()
        if random.random() < 0.6:
            await storage.queue.bury(claim, reason="at random")
        else:
            await _commit(storage, fence, claim)
            return
    await storage.leases.release(fence)


async def _commit(storage: lash.Storage, fence: lash.model.LeaseFence, claim: lash.model.Claim) -> None:
    """Commit a node for each input; new ids in every attempt, so that an input handled twice would be stored twice."""
    head = await storage.session(fence.resource.id).head()
    revision, leaf = (0, None) if head is None else (head.revision, head.leaf_node_id)
    nodes: list[lash.model.Node] = []
    for text in texts(claim.batches):
        nodes.append(node(new_id(), leaf, text))
        leaf = nodes[-1].node_id
    values = commit(revision, *nodes, session_id=fence.resource.id, turn_id=claim.claim_id, fence=fence, release=fence)
    await storage.session(fence.resource.id).commit(consuming(values, claim))


if __name__ == "__main__":
    what, url, *rest = sys.argv[1:]
    if what == "act":
        asyncio.run(act_once(url, rest[0], rest[1], int(rest[2]), float(rest[3])))
    else:
        asyncio.run(work_forever(url, rest))
