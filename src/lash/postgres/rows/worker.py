"""The rows of workers on PostgreSQL; `lash.postgres.rows.work` writes the beats."""

from __future__ import annotations

import msgspec

from lash.errors import CorruptData
from lash.plan.worker import WorkerRow
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Flag


class _Listed(WorkerRow, frozen=True, array_like=True):
    """A worker, and the time of the read."""

    now_ms: int


class _Held(msgspec.Struct, frozen=True, array_like=True):
    session_ids: list[str]
    process_ids: list[str]


class PostgresWorkerRows:
    """The workers of one PostgreSQL storage; the contract is `lash.stores.worker.WorkerRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> tuple[int, list[WorkerRow]]:
        rows = await self._database.read_all(_Listed, "worker_all")
        return (rows[0].now_ms if rows else 0), list[WorkerRow](rows)

    async def holding(self, worker_id: str, limit: int) -> tuple[list[str], list[str]]:
        found = await self._database.read_one(_Held, "worker_holding", worker_id, limit)
        if found is None:
            raise CorruptData("query worker_holding returned no row")
        return found.session_ids, found.process_ids

    async def drain(self, worker_id: str) -> bool:
        return await self._database.write_one(Flag, "worker_drain", worker_id, repeatable=True) is not None

    async def leave(self, worker_id: str) -> bool:
        return await self._database.write_one(Flag, "worker_leave", worker_id, repeatable=True) is not None
