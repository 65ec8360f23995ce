"""All rows of a database, in a form in which those of the two backends can be compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from lash.stores.table_rows import RowTable
from tests.proof.model.names import Names

RawRow = tuple[Any, ...]
Dump = dict[str, list[RawRow]]
"""The rows of each table that has some, sorted."""

_NUMBERS: Final = {
    "session_key": "session",
    "owner_key": "session",
    "run_key": "run",
    "next_key": "run",
    "process_key": "process",
    "subscription_key": "subscription",
    "occurrence_key": "occurrence",
    "schedule_key": "schedule",
}
"""Columns with row numbers: each database counts for itself, so that only their order is compared."""
_TABLE_NUMBERS: Final = {
    ("lash_records", "scope_key"): "session",
    ("lash_batches", "seq"): "batch",
    ("lash_dead_letters", "seq"): "batch",
    ("lash_dead_letters", "place"): "letter",
    ("lash_processes", "registered_seq"): "change",
    ("lash_processes", "start_seq"): "change",
    ("lash_processes", "end_seq"): "change",
    ("lash_process_events", "seq"): "change",
    ("lash_process_changes", "seq"): "change",
    ("lash_process_change_floor", "seq"): "change",
}


def comparable(
    found: Mapping[RowTable, Sequence[RawRow]], names: Names, left_out: Collection[tuple[str, str]] = ()
) -> Dump:
    """Return the rows with ranks in the place of row numbers and symbols in the place of ids, sorted.

    Of the columns that are left out, by table and name, only whether there is a value is compared.
    """
    ranks = _ranks(found)
    dump: Dump = {}
    for table, rows in found.items():
        if rows:
            kinds = [_kind(table.name, column) for column in table.columns]
            hidden = [(table.name, column) in left_out for column in table.columns]
            ranked = [
                tuple(
                    value is None if hide else value if kind is None else ranks[kind].get(value)
                    for kind, hide, value in zip(kinds, hidden, row, strict=True)
                )
                for row in rows
            ]
            # Sorted without what was never seen before, which then gets its names in that order.
            ranked.sort(
                key=lambda row: repr(tuple(names.blind(each) if isinstance(each, str) else each for each in row))
            )
            dump[table.name] = [names.symbolic(row) for row in ranked]
    return dump


def _ranks(found: Mapping[RowTable, Sequence[RawRow]]) -> dict[str, dict[Any, int]]:
    seen: dict[str, set[int]] = {}
    for table, rows in found.items():
        for place, column in enumerate(table.columns):
            kind = _kind(table.name, column)
            if kind is not None:
                seen.setdefault(kind, set()).update(row[place] for row in rows if row[place] is not None)
    return {kind: {value: rank for rank, value in enumerate(sorted(values))} for kind, values in seen.items()}


def _kind(table: str, column: str) -> str | None:
    return _TABLE_NUMBERS.get((table, column)) or _NUMBERS.get(column)
