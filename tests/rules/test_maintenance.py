"""Rules of maintenance: how its findings add up."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput
from lash.model.maintenance import GarbageCount, GarbageReport, NounSize, Prunable, StorageCounts
from lash.plan.maintenance import (
    BEFORE_ALL,
    COUNTED_ROWS,
    GARBAGE_KINDS,
    CountsRow,
    GarbageRow,
    PrunableRow,
    TableCount,
    TableSize,
    check_age,
    count_garbage,
    estimate_rows,
    noun_of,
    prunable,
    storage_counts,
    storage_report,
)


@pytest.mark.parametrize("kind", GARBAGE_KINDS)
def test_findings_add_up(kind: str) -> None:
    """Pages add up by kind; a report with findings that point to a bug is not clean."""
    empty = GarbageReport(dry_run=True)
    assert empty.is_clean
    once = count_garbage(empty, kind, [GarbageRow(1, "a", 0, 1, 10), GarbageRow(1, "b", 0, 2, 5)])
    twice = count_garbage(once, kind, [GarbageRow(2, "a", 0, 1, 0)])
    assert getattr(twice, kind) == GarbageCount(rows=4, bytes=15)
    assert twice.is_clean == (kind == "environments")
    assert all(getattr(twice, other) == GarbageCount() for other in GARBAGE_KINDS if other != kind)


def test_an_audit_begins_before_all() -> None:
    """The first position precedes rows without a session, which have session key 0, and counts nothing."""
    assert (BEFORE_ALL.session_key, BEFORE_ALL.key, BEFORE_ALL.revision) < (0, "", 0)
    assert (BEFORE_ALL.rows, BEFORE_ALL.bytes) == (0, 0)


@pytest.mark.parametrize("wrong", [-1, True, "1", None, 1.5, 2**63])
def test_what_is_no_age_is_refused(wrong: object) -> None:
    """An age is a number of milliseconds, zero or more."""
    with pytest.raises(InvalidInput, match="older_than_ms"):
        check_age(wrong)


def test_zero_is_an_age() -> None:
    """An age of 0 covers everything before now."""
    assert check_age(0) == 0


@pytest.mark.parametrize(
    ("counted", "highest", "rows", "exact"),
    [
        (0, None, 0, True),
        (COUNTED_ROWS, 50_000, COUNTED_ROWS, True),
        (COUNTED_ROWS + 1, 50_000, 50_000, False),
        (COUNTED_ROWS + 1, None, COUNTED_ROWS + 1, False),
        (COUNTED_ROWS + 1, 7, COUNTED_ROWS + 1, False),
    ],
)
def test_a_large_table_is_estimated(counted: int, highest: int | None, rows: int, *, exact: bool) -> None:
    """A large table is estimated by its highest row number, and never below the counted rows."""
    assert estimate_rows(TableCount("lash_nodes", counted, highest), 9) == TableSize("lash_nodes", rows, 9, exact)


def test_tables_are_summed_by_noun() -> None:
    """A noun is unmeasured or inexact if one of its tables is."""
    report = storage_report(
        99,
        [
            TableSize("lash_nodes", 5, 50, True),
            TableSize("lash_segments", 2, 20, True),
            TableSize("lash_components", 1, 10, True),
            TableSize("lash_blobs", 1, None, False),
            TableSize("lash_checkpoints", 1, 10, True),
        ],
    )
    assert report.bytes == 99
    assert report.nouns == {
        "checkpoint": NounSize(rows=3, bytes=None, exact=False),
        "node": NounSize(rows=7, bytes=70, exact=True),
    }


@pytest.mark.parametrize(
    ("noun", "tables"),
    [
        ("schema", ["migrations"]),
        ("session", ["sessions", "session_ids"]),
        ("lease", ["session_leases", "process_leases"]),
        ("node", ["segments", "inherited", "nodes"]),
        ("frame", ["frames"]),
        ("checkpoint", ["checkpoints", "components", "blobs"]),
        ("usage", ["usage", "usage_totals"]),
        ("turn", ["turns"]),
        ("queue", ["batches", "source_keys", "dead_letters"]),
        ("activity", ["activity", "activity_tails"]),
        ("artifact", ["artifacts"]),
        ("attachment", ["attachments", "attachment_fences", "attachment_bytes"]),
        ("process", ["processes", "process_changes", "process_change_floor", "process_tombstones"]),
        ("event", ["process_events", "wakes"]),
        ("grant", ["grants"]),
        ("effect", ["effects", "effect_groups"]),
        ("wait", ["secrets", "waits", "wait_changes"]),
        (
            "trigger",
            [
                *("trigger_subscriptions", "trigger_tombstones", "trigger_receipts"),
                *("trigger_occurrences", "trigger_deliveries"),
            ],
        ),
        ("schedule", ["schedules"]),
        ("act", ["acts"]),
        ("other", ["of_tomorrow"]),
    ],
)
def test_every_table_counts_for_one_noun(noun: str, tables: list[str]) -> None:
    """Every table belongs to a noun; an unknown table counts as ``other``."""
    assert [noun_of(f"lash_{table}") for table in tables] == [noun] * len(tables)


def test_what_could_be_pruned_is_told_by_kind() -> None:
    """Each count of the database is under its own name."""
    assert prunable(PrunableRow(9, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11)) == Prunable(
        before_ms=9,
        turns=1,
        source_keys=2,
        processes=3,
        occurrences=4,
        receipts=5,
        schedules=6,
        waits=7,
        activity=8,
        records=10,
        acts=11,
    )


def test_the_rest_of_the_sessions_is_idle() -> None:
    """A session that is in no other state is idle, and a batch that is not claimed is queued."""
    assert storage_counts(CountsRow(10, 1, 2, 3, 9, 4, 5, 11, 12, 13, 14, 15, 6, 7)) == StorageCounts(
        sessions={"running": 1, "queued": 2, "waiting": 3, "idle": 4},  # type: ignore[dict-item]
        queued=5,
        claimed=4,
        dead=5,
        processes={"running": 11, "completed": 12, "failed": 13, "cancelled": 14, "abandoned": 15},  # type: ignore[dict-item]
        waits=6,
        running_processes=7,
    )
