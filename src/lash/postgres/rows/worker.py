"""The rows of workers on PostgreSQL; `lash.postgres.rows.work` writes the beats."""

from __future__ import annotations

from collections.abc import Collection

from lash.plan.worker import HoldingRow, WorkerRow
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Flag


class _Listed(WorkerRow, frozen=True, array_like=True):
    """A worker, and the time of the read."""

    now_ms: int


class PostgresWorkerRows:
    """The workers of one PostgreSQL storage; the contract is `lash.stores.worker.WorkerRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> tuple[int, list[WorkerRow]]:
        rows = await self._database.read_all(_Listed, "worker_all")
        return (rows[0].now_ms if rows else 0), list[WorkerRow](rows)

    async def holding(self, worker_ids: Collection[str], limit: int) -> list[HoldingRow]:
        return await self._database.read_all(HoldingRow, "worker_holding", list(worker_ids), limit)

    async def drain(self, worker_id: str) -> bool:
        return await self._database.write_one(Flag, "worker_drain", worker_id, repeatable=True) is not None

    async def leave(self, worker_id: str) -> bool:
        return await self._database.write_one(Flag, "worker_leave", worker_id, repeatable=True) is not None
