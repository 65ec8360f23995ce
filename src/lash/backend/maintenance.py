"""Maintenance on every backend: page by page, one small transaction for each page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from lash.backend.damage.search import DamageSearch
from lash.backend.rewrap import rewrap
from lash.errors import Conflict, LashError, MaintenanceFailed
from lash.model.maintenance import (
    Damage,
    GarbageReport,
    Prunable,
    PruneReport,
    RewrapReport,
    StorageCounts,
    StorageReport,
    Throughput,
)
from lash.plan.activity import KEPT_MS
from lash.plan.maintenance import (
    BEFORE_ALL,
    ENVIRONMENT_GRACE_MS,
    GARBAGE_KINDS,
    PAGE_SIZE,
    GarbageRow,
    check_age,
    count_garbage,
    prunable,
    storage_counts,
    storage_report,
)
from lash.plan.throughput import check_range, throughput_of
from lash.stores.attachment import ByteStore
from lash.stores.maintenance import MaintenanceRows
from lash.stores.table_rows import RowStore

AGED: Final = frozenset({"turns", "source_keys", "environments", "activity"})
"""The kinds whose find query takes an age; the other kinds are garbage at any age."""
FIND: Final = {
    "components": "maintenance_find_components",
    "blobs": "maintenance_find_blobs",
    "graphs": "maintenance_find_graphs",
    "turns": "maintenance_find_turns",
    "source_keys": "maintenance_find_source_keys",
    "activity": "maintenance_find_activity",
    "environments": "maintenance_find_environments",
}
"""The query that finds a page of each kind."""
DROP: Final = {
    "components": "maintenance_drop_components",
    "blobs": "maintenance_drop_blobs",
    "turns": "maintenance_drop_turns",
    "source_keys": "maintenance_drop_source_keys",
    "activity": "maintenance_drop_activity",
    "environments": "maintenance_drop_environments",
}
"""The query that drops each kind: PostgreSQL runs it once for a page, SQLite once for a row."""


class StorageMaintenance:
    """Maintains one storage; the contract is `lash.stores.maintenance.Maintenance`."""

    def __init__(self, rows: MaintenanceRows, stored: RowStore, byte_store: ByteStore) -> None:
        self._rows = rows
        self._stored = stored
        self._bytes = byte_store

    async def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        report = GarbageReport(dry_run=dry_run)
        try:
            for kind in GARBAGE_KINDS:
                async for found in self._pages(kind, ENVIRONMENT_GRACE_MS):
                    if not dry_run:
                        await self._rows.drop(kind, found)
                    report = count_garbage(report, kind, found)
        except LashError as error:
            raise MaintenanceFailed(f"collecting garbage failed: {error}", report) from error
        return report

    async def find_damage(self) -> tuple[Damage, ...]:
        return tuple([damage async for damage in DamageSearch(self._rows, self._stored).run()])

    async def prunable(self, *, older_than_ms: int) -> Prunable:
        return prunable(await self._rows.prunable(check_age(older_than_ms)))

    async def prune_turns(self, *, older_than_ms: int) -> PruneReport:
        return await self._prune("turns", older_than_ms)

    async def prune_source_keys(self, *, older_than_ms: int) -> PruneReport:
        return await self._prune("source_keys", older_than_ms)

    async def prune_activity(self, *, older_than_ms: int = KEPT_MS) -> PruneReport:
        return await self._prune("activity", older_than_ms)

    async def rewrap(self) -> RewrapReport:
        report = RewrapReport()
        if not self._stored.is_sealed:
            return report
        if await self._stored.mark() is not None:
            raise Conflict("a move into this storage is unfinished; finish it before its values are sealed again")
        try:
            async for changed in rewrap(self._stored, self._bytes):
                report = RewrapReport(
                    rows=report.rows + changed.rows, attachments=report.attachments + changed.attachments
                )
            await self.prune_activity()
        except LashError as error:
            raise MaintenanceFailed(f"sealing values again failed: {error}", report) from error
        return report

    async def report(self) -> StorageReport:
        """Return the size of the storage; see `lash.stores.storage.Storage.report`."""
        return storage_report(*await self._rows.sizes())

    async def counts(self) -> StorageCounts:
        """Return what there is by state; see `lash.stores.storage.Storage.counts`."""
        return storage_counts(await self._rows.counts())

    async def throughput(
        self, *, since_ms: int, until_ms: int | None = None, interval_ms: int = 60_000
    ) -> tuple[Throughput, ...]:
        """Return what happened in each interval; see `lash.stores.storage.Storage.throughput`."""
        wanted = check_range(since_ms, until_ms, interval_ms)
        return throughput_of(wanted, await self._rows.throughput(wanted))

    async def _prune(self, kind: str, older_than_ms: int) -> PruneReport:
        age_ms = check_age(older_than_ms)
        report = PruneReport()
        try:
            async for found in self._pages(kind, age_ms):
                await self._rows.drop(kind, found)
                report = PruneReport(removed_count=report.removed_count + len(found))
        except LashError as error:
            raise MaintenanceFailed(f"pruning {kind} failed: {error}", report) from error
        return report

    async def _pages(self, kind: str, age_ms: int) -> AsyncIterator[list[GarbageRow]]:
        after = BEFORE_ALL
        while found := await self._rows.find(kind, after, age_ms):
            yield found
            if len(found) < PAGE_SIZE:
                return
            after = found[-1]
