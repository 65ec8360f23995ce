"""Rules of maintenance: the kinds of rows that it removes, and its reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lash.base.limits import check_integer
from lash.base.shapes import convert
from lash.model.maintenance import GarbageCount, GarbageReport, NounSize, Prunable, StorageCounts, StorageReport
from lash.model.process.process import ProcessStatus
from lash.model.session.session import SessionState

PAGE_SIZE: Final = 500
"""The most rows that one transaction of maintenance removes, so that it holds its locks briefly."""

GARBAGE_KINDS: Final = ("components", "blobs", "graphs", "environments")
"""The steps of an audit, ordered so that each step finds what the previous one freed."""

ENVIRONMENT_GRACE_MS: Final = 24 * 60 * 60 * 1000
"""How long an unreferenced environment is kept after its last put: its process may not be registered yet."""

COUNTED_ROWS: Final = 10_000
"""The most rows of a table that SQLite counts for a report; a larger table is estimated."""

MEASURED_PAGES: Final = 4_096
"""The most pages of a SQLite file that is measured table by table; a larger file is measured as a whole."""

_NOUNS: Final = {
    "lash_migrations": "schema",
    "lash_sessions": "session",
    "lash_session_ids": "session",
    "lash_session_labels": "session",
    "lash_session_leases": "lease",
    "lash_segments": "node",
    "lash_inherited": "node",
    "lash_runs": "node",
    "lash_nodes": "node",
    "lash_frames": "frame",
    "lash_checkpoints": "checkpoint",
    "lash_components": "checkpoint",
    "lash_blobs": "checkpoint",
    "lash_usage": "usage",
    "lash_usage_totals": "usage",
    "lash_turns": "turn",
    "lash_batches": "queue",
    "lash_source_keys": "queue",
    "lash_dead_letters": "queue",
    "lash_session_wakes": "queue",
    "lash_activity": "activity",
    "lash_activity_tails": "activity",
    "lash_artifacts": "artifact",
    "lash_attachments": "attachment",
    "lash_attachment_fences": "attachment",
    "lash_attachment_bytes": "attachment",
    "lash_processes": "process",
    "lash_process_leases": "lease",
    "lash_process_changes": "process",
    "lash_process_change_floor": "process",
    "lash_process_change_epoch": "process",
    "lash_process_tombstones": "process",
    "lash_process_events": "event",
    "lash_wakes": "event",
    "lash_grants": "grant",
    "lash_records": "record",
    "lash_effects": "effect",
    "lash_effect_groups": "effect",
    "lash_secrets": "wait",
    "lash_waits": "wait",
    "lash_wait_changes": "wait",
    "lash_trigger_subscriptions": "trigger",
    "lash_trigger_tombstones": "trigger",
    "lash_trigger_receipts": "trigger",
    "lash_trigger_occurrences": "trigger",
    "lash_trigger_deliveries": "trigger",
    "lash_schedules": "schedule",
    "lash_workers": "worker",
    "lash_limits": "limit",
    "lash_limit_lines": "limit",
    "lash_limit_places": "limit",
    "lash_acts": "act",
}


class GarbageRow(msgspec.Struct, frozen=True, array_like=True):
    """Garbage: its position in the order of the audit, its number of rows, and their bytes."""

    session_key: int
    key: str
    revision: int
    rows: int
    bytes: int


class TableSize(msgspec.Struct, frozen=True, array_like=True):
    """The size of one table; ``bytes`` is None if it was not measured."""

    table: str
    rows: int
    bytes: int | None
    exact: bool


class TableCount(msgspec.Struct, frozen=True, array_like=True):
    """The rows of a table, counted up to a limit, and its highest row number if it has row numbers."""

    table: str
    counted: int
    highest: int | None


class TableBytes(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of the pages of a table and its indexes."""

    table: str
    bytes: int


BEFORE_ALL: Final = GarbageRow(-1, "", 0, 0, 0)
"""The position before the first row that an audit can find."""


class DamageRow(msgspec.Struct, frozen=True, array_like=True):
    """A contradiction between rows: what it concerns, and what is known of it."""

    subject: str
    detail: str


class PrunableRow(msgspec.Struct, frozen=True, array_like=True):
    """The counts of `Prunable`, as the database returns them."""

    before_ms: int
    turns: int
    source_keys: int
    processes: int
    occurrences: int
    receipts: int
    schedules: int
    waits: int
    activity: int
    records: int
    acts: int


class CountsRow(msgspec.Struct, frozen=True, array_like=True):
    """The counts of `StorageCounts`, as the database returns them; ``sessions`` and ``batches`` are in all."""

    sessions: int
    running: int
    queued: int
    waiting: int
    batches: int
    claimed: int
    dead: int
    processes_running: int
    processes_completed: int
    processes_failed: int
    processes_cancelled: int
    processes_abandoned: int
    waits: int
    process_leases: int


def storage_counts(row: CountsRow) -> StorageCounts:
    """Return the counts of a storage. A session that no other state counts is idle."""
    return StorageCounts(
        sessions={
            SessionState.RUNNING: row.running,
            SessionState.QUEUED: row.queued,
            SessionState.WAITING: row.waiting,
            SessionState.IDLE: row.sessions - row.running - row.queued - row.waiting,
        },
        queued=row.batches - row.claimed,
        claimed=row.claimed,
        dead=row.dead,
        processes={
            ProcessStatus.RUNNING: row.processes_running,
            ProcessStatus.COMPLETED: row.processes_completed,
            ProcessStatus.FAILED: row.processes_failed,
            ProcessStatus.CANCELLED: row.processes_cancelled,
            ProcessStatus.ABANDONED: row.processes_abandoned,
        },
        waits=row.waits,
        running_processes=row.process_leases,
    )


def prunable(row: PrunableRow) -> Prunable:
    """Return the counts of a storage."""
    return convert(msgspec.structs.asdict(row), Prunable)


def check_age(older_than_ms: object) -> int:
    """Return the age, or raise InvalidInput unless it is a number of milliseconds from 0 up."""
    return check_integer("older_than_ms", older_than_ms, at_least=0)


def count_garbage(report: GarbageReport, kind: str, found: Iterable[GarbageRow]) -> GarbageReport:
    """Return the report with the findings of a step added."""
    before: GarbageCount = getattr(report, kind)
    rows, size = before.rows, before.bytes
    for each in found:
        rows, size = rows + each.rows, size + each.bytes
    return msgspec.structs.replace(report, **{kind: GarbageCount(rows=rows, bytes=size)})


def estimate_rows(table: TableCount, measured: int | None) -> TableSize:
    """Return the size of a table; beyond the counted limit its highest row number estimates the rows."""
    if table.counted <= COUNTED_ROWS:
        return TableSize(table.table, table.counted, measured, exact=True)
    return TableSize(table.table, max(table.counted, table.highest or 0), measured, exact=False)


def storage_report(total_bytes: int, tables: Iterable[TableSize]) -> StorageReport:
    """Return the sizes of the tables, summed by noun."""
    nouns: dict[str, NounSize] = {}
    for table in tables:
        noun = noun_of(table.table)
        size = NounSize(rows=table.rows, bytes=table.bytes, exact=table.exact)
        nouns[noun] = _add(nouns[noun], size) if noun in nouns else size
    return StorageReport(bytes=total_bytes, nouns=dict(sorted(nouns.items())))


def noun_of(table: str) -> str:
    """Return the noun of a table; ``other`` for a table that lash does not know."""
    return _NOUNS.get(table, "other")


def _add(left: NounSize, right: NounSize) -> NounSize:
    return NounSize(
        rows=left.rows + right.rows,
        bytes=None if left.bytes is None or right.bytes is None else left.bytes + right.bytes,
        exact=left.exact and right.exact,
    )
