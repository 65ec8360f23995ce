"""The work list on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from collections.abc import Collection

from lash.errors import CorruptData
from lash.model.lease import LeaseOwner
from lash.model.work import WorkList
from lash.plan.process.process import ProcessRow
from lash.plan.work import MAX_HOLDERS, WorkAnswer, check_look, decode_work
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database


class _Answer(WorkAnswer, frozen=True, array_like=True):
    """What a look found, with those of the processes that are about to be claimed and are not long."""

    processes: list[ProcessRow]


class PostgresWorkStore:
    """The work list of one PostgreSQL storage; the contract is `lash.stores.work.WorkStore`."""

    def __init__(self, database: Database, seen: ProcessCache) -> None:
        self._database = database
        self._seen = seen

    async def poll(
        self,
        *,
        sessions: int,
        processes: int,
        owner: LeaseOwner,
        running_sessions: Collection[str] = (),
        running_processes: Collection[str] = (),
    ) -> WorkList:
        look = check_look(sessions, processes, owner, running_sessions, running_processes)
        own = owner.process
        answer = await self._database.read_one(
            _Answer,
            "work_look",
            *(look.sessions, look.processes, owner.owner_id, owner.incarnation_id),
            *((None, None) if own is None else (own.boot_id, own.host_id)),
            *(list(look.running_sessions), list(look.running_processes), MAX_HOLDERS),
        )
        if answer is None:
            raise CorruptData("a look at the work list answered nothing")
        self._seen.remember_all(answer.processes)
        return decode_work(answer)
