"""Maintenance of the rows on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.backend.maintenance import AGED, DROP, FIND
from lash.errors import CorruptData
from lash.plan.maintenance import (
    COUNTED_ROWS,
    MEASURED_PAGES,
    PAGE_SIZE,
    CountsRow,
    DamageRow,
    GarbageRow,
    PrunableRow,
    TableBytes,
    TableCount,
    TableSize,
    estimate_rows,
)
from lash.plan.throughput import ThroughputRange, ThroughputRow
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.rows.session.fork import reclaim_graphs


class _Pages(msgspec.Struct, frozen=True, array_like=True):
    count: int
    size: int


class SQLiteMaintenanceRows:
    """Finds in a reader thread and drops on the writer; the contract is `lash.stores.maintenance.MaintenanceRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, kind: str, after: GarbageRow, age_ms: int) -> list[GarbageRow]:
        def body(reader: Reader) -> list[GarbageRow]:
            parameters = _key(after) | {"limit": PAGE_SIZE}
            if kind in AGED:
                parameters["before_ms"] = reader.now_ms - age_ms
            return reader.all(GarbageRow, FIND[kind], **parameters)

        return await self._database.read_in_thread(body)

    async def drop(self, kind: str, found: Sequence[GarbageRow]) -> None:
        def body(transaction: Transaction) -> None:
            if kind == "graphs":
                reclaim_graphs(transaction, (row.session_key for row in found))
                return
            for row in found:
                transaction.run(DROP[kind], **_key(row))

        await self._database.write(body)

    async def contradictions(self, query: str, limit: int) -> list[DamageRow]:
        return await self._database.read_in_thread(lambda reader: reader.all(DamageRow, query, limit=limit))

    async def prunable(self, age_ms: int) -> PrunableRow:
        def body(reader: Reader) -> PrunableRow:
            (row,) = reader.all(PrunableRow, "maintenance_prunable", before_ms=reader.now_ms - age_ms)
            return row

        return await self._database.read_in_thread(body)

    async def counts(self) -> CountsRow:
        def body(reader: Reader) -> CountsRow:
            (row,) = reader.all(CountsRow, "maintenance_counts", now_ms=reader.now_ms)
            return row

        return await self._database.read_in_thread(body)

    async def throughput(self, wanted: ThroughputRange) -> list[ThroughputRow]:
        return await self._database.read_in_thread(
            lambda reader: reader.all(
                ThroughputRow,
                "maintenance_throughput",
                now_ms=reader.now_ms,
                interval_ms=wanted.interval_ms,
                since_ms=wanted.since_ms,
                until_ms=wanted.until_ms,
            )
        )

    async def sizes(self) -> tuple[int, list[TableSize]]:
        return await self._database.read_in_thread(_measure)


def _key(row: GarbageRow) -> dict[str, SQLiteValue]:
    return {"session_key": row.session_key, "key": row.key, "revision": row.revision}


def _measure(reader: Reader) -> tuple[int, list[TableSize]]:
    pages = reader.one(_Pages, "maintenance_file_pages")
    if pages is None:
        raise CorruptData("query maintenance_file_pages returned no row")
    measured: dict[str, int] = {}
    if pages.count <= MEASURED_PAGES:
        measured = {row.table: row.bytes for row in reader.all(TableBytes, "maintenance_table_bytes")}
    tables = reader.all(TableCount, "maintenance_table_rows", limit=COUNTED_ROWS + 1)
    return pages.count * pages.size, [estimate_rows(table, measured.get(table.table)) for table in tables]
