"""How maintenance goes through a storage on every backend: page by page, with a report at every moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from lash.errors import LashError, MaintenanceFailed
from lash.model.maintenance import GarbageReport, PruneReport
from lash.plan.maintenance import BATCH, BEFORE_ALL, GARBAGE_KINDS, GarbageRow, count_garbage


class Sweeper(Protocol):
    """What a database must be able to do: find a page of garbage behind a place, and drop what was found."""

    async def find(self, kind: str, after: GarbageRow) -> list[GarbageRow]:
        """Return the next things that nothing needs, at most a batch, in a fixed order."""
        ...

    async def drop(self, kind: str, found: list[GarbageRow]) -> None:
        """Remove them in one transaction, but for those that something needs by now."""
        ...


async def sweep_garbage(sweeper: Sweeper, *, dry_run: bool) -> GarbageReport:
    """Go through every kind of garbage; raise MaintenanceFailed with the report so far when a step fails."""
    report = GarbageReport(dry_run=dry_run)
    try:
        for kind in GARBAGE_KINDS:
            async for found in _pages(sweeper, kind):
                if not dry_run:
                    await sweeper.drop(kind, found)
                report = count_garbage(report, kind, found)
    except LashError as error:
        raise MaintenanceFailed(f"collecting garbage failed: {error}", report) from error
    return report


async def sweep_old(sweeper: Sweeper, kind: str) -> PruneReport:
    """Remove what is old enough of one kind; raise MaintenanceFailed with the report so far when a step fails."""
    report = PruneReport()
    try:
        async for found in _pages(sweeper, kind):
            await sweeper.drop(kind, found)
            report = PruneReport(removed_count=report.removed_count + len(found))
    except LashError as error:
        raise MaintenanceFailed(f"pruning {kind} failed: {error}", report) from error
    return report


async def _pages(sweeper: Sweeper, kind: str) -> AsyncIterator[list[GarbageRow]]:
    after = BEFORE_ALL
    while found := await sweeper.find(kind, after):
        yield found
        if len(found) < BATCH:
            return
        after = found[-1]
