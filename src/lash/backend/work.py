"""The work list of every backend."""

from __future__ import annotations

from collections.abc import Collection

from lash.model.lease import LeaseOwner
from lash.model.work import WorkList
from lash.plan.work import check_poll, decode_work
from lash.stores.work import WorkRows


class Work:
    """The work list of one storage; the contract is `lash.stores.work.WorkStore`."""

    def __init__(self, rows: WorkRows) -> None:
        self._rows = rows

    async def poll(
        self,
        *,
        sessions: int,
        processes: int,
        owner: LeaseOwner,
        running_sessions: Collection[str] = (),
        running_processes: Collection[str] = (),
    ) -> WorkList:
        poll = check_poll(sessions, processes, owner, running_sessions, running_processes)
        return decode_work(await self._rows.poll(poll))
