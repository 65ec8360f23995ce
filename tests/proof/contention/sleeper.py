"""A process that takes every kind of lease and claim, is stopped, and tries to use each of them when it wakes up.

``python -m tests.proof.contention.sleeper URL`` prints ``holds`` once it has them. Then it waits for a line, and
prints the result of each attempt.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import Final

import msgspec

import lash
from lash.errors import LashError, LeaseLost
from lash.model.effect import EffectError, OperationScope, ProcessScope, TurnScope
from lash.model.process.process import Success
from lash.stores.storage import Storage
from tests.contract.queue_state import claimed, consuming, late, queued
from tests.factories.effect import claimed as effect_claimed
from tests.factories.effect import effect
from tests.factories.process import process, process_lease
from tests.factories.session import acquired, commit, created, node, owner

TTL_MS: Final = 400
SHARED: Final = OperationScope(operation_id="o")
FAR: Final = 3_600_000


class Rights:
    """The leases and claims of one session, one process and one effect."""

    def __init__(self, storage: Storage, who: str, ttl_ms: int) -> None:
        self._storage = storage
        self._owner = owner(who)
        self._ttl_ms = ttl_ms

    async def take(self) -> None:
        """Take the leases, the input and the effect; other holders must have released them."""
        storage, ttl_ms = self._storage, self._ttl_ms
        self.fence = acquired(await storage.leases.claim("s", self._owner, ttl_ms=ttl_ms)).fence
        self.claim = claimed(await storage.queue.claim(self.fence, boundary=lash.model.Boundary.IDLE, ttl_ms=ttl_ms))
        run = process_lease(await storage.process_leases.claim("p", self._owner, ttl_ms=ttl_ms))
        self.process_fence = run.fence
        decision = await storage.effects.claim(effect("k", scope=SHARED), self._owner, ttl_ms=ttl_ms)
        self.effect = effect_claimed(decision, taken_over=self._owner.owner_id != "sleeper")

    def commit(self, turn_id: str, *, fenced: bool = True) -> lash.model.Commit:
        """Return the commit of a first turn that consumes the input."""
        values = commit(0, node(turn_id), turn_id=turn_id, fence=self.fence if fenced else None)
        return consuming(values, self.claim)


def attempts(storage: Storage, rights: Rights) -> dict[str, Awaitable[object]]:
    """Return all calls that these leases and claims allow, by name."""
    fence, claim, run, taken = rights.fence, rights.claim, rights.process_fence, rights.effect
    turn, ran = TurnScope(session_id="s", turn_id="late"), ProcessScope(process_id="p")
    failure = EffectError(code="late", message="late")
    session, bare = storage.session("s"), rights.commit("late", fenced=False)
    return {
        "record": storage.effects.record(fence, effect("late", scope=turn), "late"),
        "process record": storage.effects.record(run, effect("late", scope=ran), "late"),
        "claim": storage.queue.claim(fence, boundary=lash.model.Boundary.IDLE, ttl_ms=FAR),
        "claim batches": storage.queue.claim_batches(fence, [claim.batches[0].batch_id], ttl_ms=FAR),
        "claim command": storage.queue.claim_command(fence, ttl_ms=FAR),
        "fenced commit": session.commit(rights.commit("late")),
        "commit": session.commit(bare),
        "commit and release": session.commit(
            msgspec.structs.replace(rights.commit("late", fenced=False), release=fence)
        ),
        "renew": storage.leases.renew(fence, ttl_ms=FAR),
        "release": storage.leases.release(fence, pause_ms=FAR),
        "renew claim": storage.queue.renew(claim, ttl_ms=FAR),
        "abandon": storage.queue.abandon(claim),
        "bury": storage.queue.bury(claim, reason="late"),
        "renew effect": storage.effects.renew(taken, ttl_ms=FAR),
        "finish": storage.effects.finish(taken, "late"),
        "fail": storage.effects.fail(taken, failure),
        "release effect": storage.effects.release(taken),
        "renew process": storage.process_leases.renew(run, ttl_ms=FAR),
        "park": storage.process_leases.park(run, wake_seq=0, until_ms=None),
        "complete": storage.process_leases.complete(run, Success(value="late")),
        "release process": storage.process_leases.release(run),
    }


async def sleep_and_try(url: str) -> None:
    """Take everything, wait to be stopped and woken, and try each call."""
    async with await lash.open(url) as storage:
        await created(storage)
        await storage.processes.register(process())
        await queued(storage, late("input", source_key="input"))
        rights = await _take(storage, TTL_MS)
        _say("holds")
        await asyncio.to_thread(sys.stdin.readline)
        for name, attempt in attempts(storage, rights).items():
            try:
                _say(f"{name}: {await attempt!r}")
            except LashError as error:
                _say(f"{name}: {type(error).__name__}")


async def _take(storage: Storage, ttl_ms: int) -> Rights:
    """Take everything, with a longer lease if the machine is too busy to do so before this one expires."""
    rights = Rights(storage, "sleeper", ttl_ms)
    try:
        await rights.take()
    except LeaseLost:
        return await _take(storage, 2 * ttl_ms)
    return rights


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(sleep_and_try(sys.argv[1]))
