"""The work list on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from collections.abc import Collection

from lash.errors import CorruptData
from lash.model.lease import LeaseOwner
from lash.model.work import Work
from lash.plan.work import MAX_HOLDERS, WorkAnswer, check_look, decode_work
from lash.postgres.database import Database


class PostgresWorkStore:
    """The work list of one PostgreSQL storage; the contract is `lash.stores.work.WorkStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(
        self,
        *,
        sessions: int,
        processes: int,
        owner: LeaseOwner,
        running_sessions: Collection[str] = (),
        running_processes: Collection[str] = (),
    ) -> Work:
        look = check_look(sessions, processes, owner, running_sessions, running_processes)
        own = owner.process
        answer = await self._database.read_one(
            WorkAnswer,
            "work_look",
            *(look.sessions, look.processes, owner.owner_id, owner.incarnation_id),
            *((None, None) if own is None else (own.boot_id, own.host_id)),
            *(list(look.running_sessions), list(look.running_processes), MAX_HOLDERS),
        )
        if answer is None:
            raise CorruptData("a look at the work list answered nothing")
        return decode_work(answer)
