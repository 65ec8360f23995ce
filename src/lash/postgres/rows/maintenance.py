"""Maintenance on PostgreSQL."""

from __future__ import annotations

from typing import Final

from lash.backend.garbage import sweep_garbage, sweep_old
from lash.model.maintenance import GarbageReport, Prunable, PruneReport, StorageReport
from lash.plan.activity import KEPT_MS
from lash.plan.maintenance import (
    BATCH,
    ENVIRONMENT_GRACE_MS,
    GarbageRow,
    PrunableRow,
    TableSize,
    check_age,
    prunable,
    storage_report,
)
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.fork import reclaim_graphs

_FIND: Final = {
    "components": "maintenance_find_components",
    "blobs": "maintenance_find_blobs",
    "graphs": "maintenance_find_graphs",
    "turns": "maintenance_find_turns",
    "source_keys": "maintenance_find_source_keys",
    "activity": "maintenance_find_activity",
    "environments": "maintenance_find_environments",
}
_AGED: Final = {"turns", "source_keys", "environments", "activity"}
_DROP: Final = {
    "environments": "maintenance_drop_environments",
    "components": "maintenance_drop_components",
    "blobs": "maintenance_drop_blobs",
    "turns": "maintenance_drop_turns",
    "source_keys": "maintenance_drop_source_keys",
    "activity": "maintenance_drop_activity",
}


class PostgresMaintenance:
    """Looks after one PostgreSQL storage; the contract is `lash.stores.maintenance.Maintenance`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        return await sweep_garbage(_Sweeper(self._database, ENVIRONMENT_GRACE_MS), dry_run=dry_run)

    async def prunable(self, *, older_than_ms: int) -> Prunable:
        (row,) = await self._database.read_all(PrunableRow, "maintenance_prunable", check_age(older_than_ms))
        return prunable(row)

    async def prune_turns(self, *, older_than_ms: int) -> PruneReport:
        return await sweep_old(_Sweeper(self._database, check_age(older_than_ms)), "turns")

    async def prune_source_keys(self, *, older_than_ms: int) -> PruneReport:
        return await sweep_old(_Sweeper(self._database, check_age(older_than_ms)), "source_keys")

    async def prune_activity(self, *, older_than_ms: int = KEPT_MS) -> PruneReport:
        return await sweep_old(_Sweeper(self._database, check_age(older_than_ms)), "activity")

    async def report(self) -> StorageReport:
        """Say how large the storage is; see `lash.stores.storage.Storage.report`."""
        schema = self._database.options.schema
        tables = await self._database.read_all(TableSize, "maintenance_table_sizes", schema)
        return storage_report(sum(table.bytes or 0 for table in tables), tables)


class _Sweeper:
    """Finds without a lock; drops in a transaction that looks again."""

    def __init__(self, database: Database, age_ms: int = 0) -> None:
        self._database = database
        self._age_ms = age_ms

    async def find(self, kind: str, after: GarbageRow) -> list[GarbageRow]:
        place = (after.session_key, after.key, after.revision, BATCH)
        age = (self._age_ms,) if kind in _AGED else ()
        return await self._database.read_all(GarbageRow, _FIND[kind], *place, *age)

    async def drop(self, kind: str, found: list[GarbageRow]) -> None:
        async with self._database.transaction() as transaction:
            if kind == "graphs":
                keys = sorted((row.session_key for row in found), reverse=True)
                await reclaim_graphs(transaction, self._database.options.schema, keys)
                return
            if kind == "blobs":
                await transaction.run("maintenance_hold_blobs")
            await transaction.run(
                _DROP[kind],
                [row.session_key for row in found],
                [row.key for row in found],
                [row.revision for row in found],
            )
