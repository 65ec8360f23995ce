"""The contract of the registry of workers."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from lash.model.worker import Holding, WorkerRecord

if TYPE_CHECKING:
    from lash.plan.worker import HoldingRow, WorkerRow


class WorkerStore(Protocol):
    """The workers that run on a storage. A worker registers and beats with `lash.stores.work.WorkStore.poll`.

    The registry only saves work: it decides which worker gets a hint and which one does the common duties. Leases
    decide which one executes, so a worker that is missing here, or dead, does no harm.
    """

    async def list(self) -> tuple[WorkerRecord, ...]:
        """Return all registered workers in the order of their start, late ones included."""
        ...

    async def holding(self, worker_ids: Collection[str], *, limit: int = 100) -> dict[str, Holding]:
        """Return what each of the workers runs now by its leases, up to ``limit`` sessions and ``limit`` processes.

        One read, whatever the number of workers. Empty for an unknown worker, and for one on a system that does not
        identify its processes.
        """
        ...

    async def drain(self, worker_id: str) -> bool:
        """Let a worker finish what it runs and take nothing new; return whether it is registered. Idempotent.

        The worker is woken and stops taking work at once; one that cannot be woken does so after its next beat. It
        drains until it ends; a restarted worker is a new one.
        """
        ...

    async def leave(self, worker_id: str) -> bool:
        """Remove a worker that has ended, and return whether it was registered. Idempotent.

        A worker that is removed while it runs is registered again by its next beat.
        """
        ...


class WorkerRows(Protocol):
    """The rows of workers in one database; `lash.backend.worker.Workers` makes a `WorkerStore` of them."""

    async def all(self) -> tuple[int, list[WorkerRow]]:
        """Return the time of the storage and the workers in the order of their start."""
        ...

    async def holding(self, worker_ids: Collection[str], limit: int) -> list[HoldingRow]:
        """Return the sessions and the processes whose live leases the workers hold; none for a worker without one."""
        ...

    async def drain(self, worker_id: str) -> bool: ...

    async def leave(self, worker_id: str) -> bool: ...
