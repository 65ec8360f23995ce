"""Resolve a ``once`` step whose worker died before recording its outcome."""

from __future__ import annotations

from lash.errors import EffectNotRecorded
from lash.model.effect import EffectClaim, EffectError, EffectRecord, EffectStatus, ProcessScope
from lash.model.lease import LeaseOwner
from lash.model.process.process import ProcessAcquired
from lash.model.scope import scope_id
from lash.model.value import JSON
from lash.stores.storage import Storage

_TTL_MS = 60_000
"""Longer than the two writes take; the lease is released at once."""


async def unknown_steps(storage: Storage, process_id: str) -> tuple[EffectRecord, ...]:
    """Return the steps of a process that started and have no outcome, including those of a run in progress."""
    found: list[EffectRecord] = []
    after: str | None = None
    while page := await storage.effects.list(ProcessScope(process_id=process_id), after=after):
        found += [record for record in page if record.status is EffectStatus.IN_PROGRESS]
        after = page[-1].replay_key
    return tuple(found)


async def record_outcome(
    storage: Storage, owner: LeaseOwner, process_id: str, step_key: str, outcome: JSON | EffectError
) -> EffectRecord:
    """Record the outcome of a step whose outcome is unknown, and let the process go on with it at once.

    ``step_key`` is what OutcomeUnknown names, ``outcome`` the JSON form of what the step would have returned, or the
    EffectError with which it shall fail. Raises EffectNotRecorded if no run began the step, Conflict if it has an
    outcome or its runner is still live.
    """
    claim = await _take_over(storage, owner, process_id, step_key)
    if isinstance(outcome, EffectError):
        record = await storage.effects.fail(claim, outcome)
    else:
        record = await storage.effects.finish(claim, outcome)
    await _wake(storage, owner, process_id)
    return record


async def run_again(storage: Storage, owner: LeaseOwner, process_id: str, step_key: str) -> None:
    """Let a step whose outcome is unknown run again at once; the caller knows that it did not happen."""
    await storage.effects.release(await _take_over(storage, owner, process_id, step_key))
    await _wake(storage, owner, process_id)


async def _take_over(storage: Storage, owner: LeaseOwner, process_id: str, step_key: str) -> EffectClaim:
    scope = ProcessScope(process_id=process_id)
    record = await storage.effects.get(scope, step_key)
    if record is None:
        raise EffectNotRecorded(scope_id(scope), step_key)
    return await storage.effects.take_over(record.envelope, owner, ttl_ms=_TTL_MS)


async def _wake(storage: Storage, owner: LeaseOwner, process_id: str) -> None:
    """Put the process on the work list, unless it runs, has ended or is bound to its owner."""
    taken = await storage.process_leases.claim(process_id, owner, ttl_ms=_TTL_MS)
    if isinstance(taken, ProcessAcquired):
        await storage.process_leases.release(taken.lease.fence)
