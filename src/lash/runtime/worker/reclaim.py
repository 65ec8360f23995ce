"""Reclaiming: frees leases whose holders died on this machine, without waiting for the leases to expire."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from lash.backend.liveness import is_provably_dead
from lash.model.lease import Acquired, Lease, LeaseOwner, ResourceKind
from lash.model.process.process import ProcessAcquired
from lash.runtime.worker.state import WorkerState

_CHECK_EVERY_S: Final = 0.5
"""Asking the operating system about many processes costs more than a poll, so it is not done at each one."""


class Reclaimer:
    """Watches the leases of other workers on this machine, as the last poll found them."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._suspects: tuple[Lease, ...] = ()
        self._check_at = 0.0

    def check(self, suspects: Sequence[Lease]) -> None:
        """Reclaim the leases among these whose holders are dead."""
        self._suspects = tuple(suspects)
        if time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + _CHECK_EVERY_S
        for lease in suspects:
            if self._is_dead(lease):
                self._state.spawn(self._reclaim(lease))

    def poll_if_died(self) -> None:
        """Let the worker poll if a holder has died since the last poll."""
        if any(self._is_dead(lease) for lease in self._suspects):
            self._suspects, self._check_at = (), 0.0
            self._state.poll_now()

    def _is_dead(self, lease: Lease) -> bool:
        return is_provably_dead(lease.owner.process, self._state.core.owner.process)

    async def _reclaim(self, lease: Lease) -> None:
        """Take the lease of a dead holder and release it, so that any worker can go on at once."""
        core, resource = self._state.core, lease.resource
        owner, ttl_ms = _reclaiming(core.owner), core.options.ttl_ms
        if resource.kind is ResourceKind.SESSION:
            leases = core.storage.leases
            taken = await leases.reclaim(resource.id, owner, observed=lease, ttl_ms=ttl_ms)
            if isinstance(taken, Acquired):
                await leases.release(taken.lease.fence)
                core.hooks.note("lease.reclaimed", owner_id=lease.owner.owner_id, session_id=resource.id)
        else:
            process_leases = core.storage.process_leases
            got = await process_leases.reclaim(resource.id, owner, observed=lease, ttl_ms=ttl_ms)
            if isinstance(got, ProcessAcquired):
                await process_leases.release(got.lease.fence)
                core.hooks.note("lease.reclaimed", owner_id=lease.owner.owner_id, process_id=resource.id)
        self._state.poll_now()


def _reclaiming(owner: LeaseOwner) -> LeaseOwner:
    """Return another holder of the same process.

    As the worker itself, it would share the lease with a run that claims it meanwhile, and then release that run's.
    """
    return msgspec.structs.replace(owner, incarnation_id=f"{owner.incarnation_id}:reclaim")
