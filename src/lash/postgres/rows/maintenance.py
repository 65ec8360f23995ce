"""Maintenance of the rows on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from lash.backend.maintenance import AGED, DROP, FIND
from lash.plan.maintenance import PAGE_SIZE, CountsRow, DamageRow, GarbageRow, PrunableRow, TableSize
from lash.plan.throughput import ThroughputRange, ThroughputRow
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.fork import reclaim_graphs


class PostgresMaintenanceRows:
    """Finds without a lock, and checks again when it drops; see `lash.stores.maintenance.MaintenanceRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, kind: str, after: GarbageRow, age_ms: int) -> list[GarbageRow]:
        arguments = (after.session_key, after.key, after.revision, PAGE_SIZE, *((age_ms,) if kind in AGED else ()))
        return await self._database.read_all(GarbageRow, FIND[kind], *arguments)

    async def drop(self, kind: str, found: Sequence[GarbageRow]) -> None:
        if kind == "graphs":
            async with self._database.transaction() as transaction:
                keys = sorted((row.session_key for row in found), reverse=True)
                await reclaim_graphs(transaction, self._database.options.schema, keys)
            return
        columns = ([row.session_key for row in found], [row.key for row in found], [row.revision for row in found])
        if kind != "blobs":
            await self._database.write_one(GarbageRow, DROP[kind], *columns, repeatable=True)
            return
        async with self._database.transaction() as transaction:
            await transaction.run("maintenance_hold_blobs")
            await transaction.run(DROP[kind], *columns)

    async def contradictions(self, query: str, limit: int) -> list[DamageRow]:
        return await self._database.read_all(DamageRow, query, limit)

    async def prunable(self, age_ms: int) -> PrunableRow:
        (row,) = await self._database.read_all(PrunableRow, "maintenance_prunable", age_ms)
        return row

    async def counts(self) -> CountsRow:
        (row,) = await self._database.read_all(CountsRow, "maintenance_counts")
        return row

    async def throughput(self, wanted: ThroughputRange) -> list[ThroughputRow]:
        return await self._database.read_all(
            ThroughputRow, "maintenance_throughput", wanted.interval_ms, wanted.since_ms, wanted.until_ms
        )

    async def sizes(self) -> tuple[int, list[TableSize]]:
        tables = await self._database.read_all(TableSize, "maintenance_table_sizes", self._database.options.schema)
        return sum(table.bytes or 0 for table in tables), tables
