"""The contract of maintenance."""

from __future__ import annotations

from typing import Protocol

from lash.model.maintenance import GarbageReport, Prunable, PruneReport


class Maintenance(Protocol):
    """Looking after a storage. Everything here can run at any time, beside any other work, and again.

    The work is done in small transactions. When one fails, MaintenanceFailed carries the report of what was done
    until then, and the error itself as its cause.
    """

    async def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        """Find what nothing needs, and remove it unless ``dry_run``.

        Every write removes what it makes superfluous by itself, so this is an audit that should find nothing. It
        reads every table once.
        """
        ...

    async def prunable(self, *, older_than_ms: int) -> Prunable:
        """Count what is older than this and could be pruned, here and by the other stores; nothing is changed.

        It reads every table that has an age. Readers of the feed of changes are not asked how far they have come.
        """
        ...

    async def prune_turns(self, *, older_than_ms: int) -> PruneReport:
        """Remove the record of turns that were committed longer ago than this.

        A commit that repeats such a turn is no longer recognised; it gets RevisionConflict, as if it were new.
        Nothing else of a turn is removed.
        """
        ...

    async def prune_source_keys(self, *, older_than_ms: int) -> PruneReport:
        """Free the source keys of batches that were consumed or cancelled longer ago than this.

        A late duplicate of such a batch is no longer recognised; it is enqueued as if it were new.
        """
        ...

    async def prune_activity(self, *, older_than_ms: int = ...) -> PruneReport:
        """Remove live activity that is older than this, by default than the 120 seconds for which it is kept.

        Showing something removes what is old of the same session; this is for those that have fallen silent.
        """
        ...
