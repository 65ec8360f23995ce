"""Maintenance: what an audit found, what was pruned, and how large a storage is."""

from __future__ import annotations

import msgspec

from lash.model.value import Count, Value


class GarbageCount(Value, frozen=True, kw_only=True):
    """Rows that nothing needs, and the bytes of content in them."""

    rows: Count = 0
    bytes: Count = 0


class GarbageReport(Value, frozen=True, kw_only=True):
    """What an audit found, and removed unless it was a dry run.

    Every write removes what it makes superfluous, so a report that is not clean points to a fault: in lash, or in a
    tool that wrote past it.
    """

    dry_run: bool
    components: GarbageCount = GarbageCount()
    """Components of which no checkpoint is kept."""
    blobs: GarbageCount = GarbageCount()
    """Bytes that no component names."""
    graphs: GarbageCount = GarbageCount()
    """Segments and nodes of deleted sessions that no fork inherits."""
    environments: GarbageCount = GarbageCount()
    """Environments that no process names and that nobody put for a day. They are left over in ordinary life, when
    processes are pruned, and point to no fault. Artifacts of other namespaces are kept until they are deleted."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found that points to a fault."""
        return not (self.components.rows or self.blobs.rows or self.graphs.rows)


class PruneReport(Value, frozen=True, kw_only=True):
    """How many records were old enough and are gone."""

    removed_count: Count = 0


class Prunable(Value, frozen=True, kw_only=True):
    """How much is old enough to be pruned, counted at one moment."""

    before_ms: int
    """What is older than this, by the clock of the storage, was counted."""
    turns: Count = 0
    source_keys: Count = 0
    processes: Count = 0
    """Ended ones, whose wakes were all consumed."""
    occurrences: Count = 0
    """Those of which no process runs any more."""
    receipts: Count = 0
    """Answers to changes of triggers, and tombstones of triggers."""
    schedules: Count = 0
    """Deleted ones."""
    waits: Count = 0
    """Resolved ones that belong to no session and no process."""
    activity: Count = 0


class NounSize(Value, frozen=True, kw_only=True):
    """How much one noun takes. ``exact`` speaks of the rows; ``bytes`` is None where asking would cost too much."""

    rows: Count
    bytes: Count | None
    exact: bool


class StorageReport(Value, frozen=True, kw_only=True):
    """How large a storage is, altogether and by noun (session, node, checkpoint and so on)."""

    bytes: Count
    nouns: dict[str, NounSize] = msgspec.field(default_factory=dict)
