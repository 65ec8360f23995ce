"""Maintenance on SQLite."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.backend.garbage import sweep_garbage, sweep_old
from lash.errors import CorruptData
from lash.model.maintenance import GarbageReport, Prunable, PruneReport, StorageReport
from lash.plan.activity import KEPT_MS
from lash.plan.maintenance import (
    BATCH,
    COUNTED_ROWS,
    ENVIRONMENT_GRACE_MS,
    MEASURED_PAGES,
    GarbageRow,
    PrunableRow,
    TableBytes,
    TableRows,
    check_age,
    estimate_rows,
    prunable,
    storage_report,
)
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.rows.session.fork import reclaim_graphs

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
    "environments": "maintenance_drop_environment",
    "components": "maintenance_drop_component",
    "blobs": "maintenance_drop_blob",
    "turns": "maintenance_drop_turn",
    "source_keys": "maintenance_drop_source_key",
    "activity": "maintenance_drop_activity",
}


class _Pages(msgspec.Struct, frozen=True, array_like=True):
    count: int
    size: int


class SQLiteMaintenance:
    """Looks after one SQLite storage; the contract is `lash.stores.maintenance.Maintenance`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        return await sweep_garbage(_Sweeper(self._database, ENVIRONMENT_GRACE_MS), dry_run=dry_run)

    async def prunable(self, *, older_than_ms: int) -> Prunable:
        age_ms = check_age(older_than_ms)

        def body(reader: Reader) -> Prunable:
            (row,) = reader.all(PrunableRow, "maintenance_prunable", before_ms=reader.now_ms - age_ms)
            return prunable(row)

        return await self._database.read_in_thread(body)

    async def prune_turns(self, *, older_than_ms: int) -> PruneReport:
        return await sweep_old(_Sweeper(self._database, check_age(older_than_ms)), "turns")

    async def prune_source_keys(self, *, older_than_ms: int) -> PruneReport:
        return await sweep_old(_Sweeper(self._database, check_age(older_than_ms)), "source_keys")

    async def prune_activity(self, *, older_than_ms: int = KEPT_MS) -> PruneReport:
        return await sweep_old(_Sweeper(self._database, check_age(older_than_ms)), "activity")

    async def report(self) -> StorageReport:
        """Say how large the storage is; see `lash.stores.storage.Storage.report`."""
        return await self._database.read_in_thread(_measure)


class _Sweeper:
    """Finds in a reader's thread, drops on the writer's."""

    def __init__(self, database: Database, age_ms: int = 0) -> None:
        self._database = database
        self._age_ms = age_ms

    async def find(self, kind: str, after: GarbageRow) -> list[GarbageRow]:
        def body(reader: Reader) -> list[GarbageRow]:
            place: dict[str, SQLiteValue] = {
                "session_key": after.session_key,
                "key": after.key,
                "revision": after.revision,
                "limit": BATCH,
            }
            if kind in _AGED:
                place["before_ms"] = reader.now_ms - self._age_ms
            return reader.all(GarbageRow, _FIND[kind], **place)

        return await self._database.read_in_thread(body)

    async def drop(self, kind: str, found: list[GarbageRow]) -> None:
        def body(transaction: Transaction) -> None:
            if kind == "graphs":
                reclaim_graphs(transaction, (row.session_key for row in found))
                return
            for row in found:
                transaction.run(_DROP[kind], session_key=row.session_key, key=row.key, revision=row.revision)

        await self._database.write(body)


def _measure(reader: Reader) -> StorageReport:
    pages = reader.one(_Pages, "maintenance_file_pages")
    if pages is None:
        raise CorruptData("the database does not say how many pages it has")
    measured: dict[str, int] = {}
    if pages.count <= MEASURED_PAGES:
        measured = {row.table: row.bytes for row in reader.all(TableBytes, "maintenance_table_bytes")}
    tables = reader.all(TableRows, "maintenance_table_rows", limit=COUNTED_ROWS + 1)
    return storage_report(
        pages.count * pages.size, (estimate_rows(table, measured.get(table.table)) for table in tables)
    )
