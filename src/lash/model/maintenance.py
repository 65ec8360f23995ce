"""Maintenance: the findings of an audit, the count of pruned rows, and the size of a storage."""

from __future__ import annotations

import msgspec

from lash.model.process.process import ProcessStatus
from lash.model.session.session import SessionState
from lash.model.value import Count, Value


class GarbageCount(Value, frozen=True, kw_only=True):
    """Rows that nothing needs, and the bytes of content in them."""

    rows: Count = 0
    bytes: Count = 0


class GarbageReport(Value, frozen=True, kw_only=True):
    """The garbage that an audit found, and removed unless it was a dry run.

    Every write removes the rows that it makes superfluous, so a report that is not clean points to a bug: in lash, or
    in a tool that wrote to the tables directly.
    """

    dry_run: bool
    components: GarbageCount = GarbageCount()
    """Components that no kept checkpoint contains."""
    blobs: GarbageCount = GarbageCount()
    """Bytes that no component refers to."""
    graphs: GarbageCount = GarbageCount()
    """Segments and nodes of deleted sessions that no fork inherits."""
    environments: GarbageCount = GarbageCount()
    """Environments that no process refers to and that were last put more than a day ago. Pruning processes leaves
    them behind; they do not point to a bug. Artifacts of other namespaces are kept until they are deleted."""

    @property
    def is_clean(self) -> bool:
        """Whether the audit found nothing that points to a bug."""
        return not (self.components.rows or self.blobs.rows or self.graphs.rows)


class Damage(Value, frozen=True, kw_only=True):
    """Stored rows that cannot be true, which a search found. No write of lash makes such rows."""

    where: str
    """What is damaged, such as ``session 'support-42'``."""
    problem: str
    remedy: str
    """What to do about it."""


class RewrapReport(Value, frozen=True, kw_only=True):
    """How many rows, and how many attachments outside the database, were sealed again."""

    rows: Count = 0
    attachments: Count = 0


class PruneReport(Value, frozen=True, kw_only=True):
    """How many rows were removed."""

    removed_count: Count = 0


class Prunable(Value, frozen=True, kw_only=True):
    """How many rows are old enough to be pruned, counted at one moment."""

    before_ms: int
    """Rows older than this were counted; the time is the storage's."""
    turns: Count = 0
    source_keys: Count = 0
    processes: Count = 0
    """Ended processes whose wakes were all consumed."""
    occurrences: Count = 0
    """Occurrences whose processes have all ended."""
    receipts: Count = 0
    """Receipts of trigger changes, and tombstones of triggers."""
    schedules: Count = 0
    """Deleted schedules."""
    waits: Count = 0
    """Resolved waits that belong to neither a session nor a process."""
    activity: Count = 0
    records: Count = 0
    """Expired records."""
    acts: Count = 0
    """Acts of operators."""


class NounSize(Value, frozen=True, kw_only=True):
    """The size of one noun. ``exact`` concerns ``rows``; ``bytes`` is None if measuring would cost too much."""

    rows: Count
    bytes: Count | None
    exact: bool


class StorageReport(Value, frozen=True, kw_only=True):
    """The size of a storage, in total and by noun (session, node, checkpoint and so on)."""

    bytes: Count
    nouns: dict[str, NounSize] = msgspec.field(default_factory=dict)


class StorageCounts(Value, frozen=True, kw_only=True):
    """What there is in a storage at one moment, by state."""

    sessions: dict[SessionState, int]
    """Sessions by state; each counts once, and every state is there."""
    queued: Count
    """Batches in the queues that no live claim holds, delayed ones included."""
    claimed: Count
    """Batches that a live claim holds."""
    dead: Count
    """Dead letters."""
    processes: dict[ProcessStatus, int]
    """Processes that were not pruned, by status; every status is there."""
    waits: Count
    """Open waits."""
    running_processes: Count
    """Processes whose lease is live: a worker runs them now."""


class Throughput(Value, frozen=True, kw_only=True):
    """What ended in one interval."""

    at_ms: int
    """The begin of the interval."""
    turns: Count = 0
    """Committed turns."""
    dead: Count = 0
    """Dead letters: input that was given up."""
    processes: Count = 0
    """Processes that ended, with whatever outcome."""
    failed: Count = 0
    """Processes that failed, or were abandoned after too many crashes."""

    @property
    def failures(self) -> int:
        """Dead letters and failed processes."""
        return self.dead + self.failed
