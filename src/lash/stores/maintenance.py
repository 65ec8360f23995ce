"""The contract of maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.maintenance import Damage, GarbageReport, Prunable, PruneReport, RewrapReport

if TYPE_CHECKING:
    from lash.plan.maintenance import CountsRow, DamageRow, GarbageRow, PrunableRow, TableSize
    from lash.plan.throughput import ThroughputRange, ThroughputRow


class Maintenance(Protocol):
    """Removes old and unused rows. Every call is idempotent and can run at any time, during other work too.

    The work is done in small transactions. If one of them fails, MaintenanceFailed carries the report of the work done
    before it, with the error as its cause.
    """

    async def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        """Find rows that nothing needs, and remove them unless ``dry_run``.

        Every write removes the rows that it makes superfluous, so this is an audit that should find nothing. It reads
        every table once.
        """
        ...

    async def find_damage(self) -> tuple[Damage, ...]:
        """Read every row once, and return what cannot be true, each with what to do; change nothing.

        It finds rows that cannot be read, that do not have their hash, that are missing, and that contradict each
        other. At most 100 findings of each kind are returned. Bytes of attachments outside the database are not read.
        Run it while no other program writes: rows that change meanwhile may seem to contradict each other.
        """
        ...

    async def prunable(self, *, older_than_ms: int) -> Prunable:
        """Count the rows that are older than this and could be pruned, here and by the other stores.

        Changes nothing. It reads every table that has an age. The positions of change feed readers are not considered.
        """
        ...

    async def prune_turns(self, *, older_than_ms: int) -> PruneReport:
        """Remove the record of turns that were committed longer ago than this.

        A commit that repeats such a turn is no longer recognised; it raises RevisionConflict, like a new one. Nothing
        else of a turn is removed.
        """
        ...

    async def prune_source_keys(self, *, older_than_ms: int) -> PruneReport:
        """Free the source keys of batches that were consumed or cancelled longer ago than this.

        A late duplicate of such a batch is no longer recognised; it is enqueued as a new batch.
        """
        ...

    async def prune_activity(self, *, older_than_ms: int = ...) -> PruneReport:
        """Remove live activity that is older than this, by default older than the 120 seconds for which it is kept.

        New activity removes the old activity of its session; this removes that of sessions without new activity.
        """
        ...

    async def rewrap(self) -> RewrapReport:
        """Seal every value again that is plain or sealed with another key than the current one.

        Idempotent; it can be stopped and run again, and runs beside other work. Once it has run, and every program that
        uses the storage seals with the current key, the older keys are not needed any more. Live activity is not sealed
        again: what is older than the 120 seconds for which it is kept is removed.

        Raises CannotUnseal for a value that no key opens, and does nothing without a sealer.
        """
        ...


class MaintenanceRows(Protocol):
    """Finds and drops rows in one database; `lash.backend.maintenance` makes a `Maintenance` of it."""

    async def find(self, kind: str, after: GarbageRow, age_ms: int) -> list[GarbageRow]:
        """Return the next page of a kind, in a fixed order; ``age_ms`` matters only to kinds that have an age."""
        ...

    async def drop(self, kind: str, found: Sequence[GarbageRow]) -> None:
        """Remove the rows in one transaction, except rows that something needs by now."""
        ...

    async def contradictions(self, query: str, limit: int) -> list[DamageRow]:
        """Return what a query finds that searches for rows which contradict each other."""
        ...

    async def prunable(self, age_ms: int) -> PrunableRow: ...

    async def counts(self) -> CountsRow: ...

    async def throughput(self, wanted: ThroughputRange) -> list[ThroughputRow]:
        """Return the counts of intervals that have any, and a row ``now`` with the time."""
        ...

    async def sizes(self) -> tuple[int, list[TableSize]]:
        """Return the bytes of the whole storage, and the size of each table."""
        ...
