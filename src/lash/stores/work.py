"""The contract of the work list."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from lash.model.lease import LeaseOwner
from lash.model.work import WorkList


class WorkStore(Protocol):
    """What there is to do for a worker, in one query however much is queued or parked."""

    async def poll(
        self,
        *,
        sessions: int,
        processes: int,
        owner: LeaseOwner,
        running_sessions: Collection[str] = (),
        running_processes: Collection[str] = (),
    ) -> WorkList:
        """Return what the caller may claim now, and what it should know about what it runs already.

        At most ``sessions`` and ``processes`` are named, and as many possibly dead leases of each other holder on the
        caller's machine. A process that another owner began and that is bound to it is not named. The end of a
        lease's life is not foreseen in ``next_at_ms``: a worker looks from time to time all the same.
        """
        ...
