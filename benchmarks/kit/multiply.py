"""Fills a storage with copies of a small one: millions of rows in a minute, each of them as lash writes it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from typing import Final, cast

from lash.stores.storage import Storage
from lash.stores.table_rows import HasRows, Row, RowStore, RowTable, RowValue

FIRST: Final = "-0000-"
"""The mark of the first copy in the names of a template; in each copy it is the number of the copy."""
_MARK: Final = b"copies"
_AT_ONCE: Final = 4_000
_LONG_AGO_MS: Final = 1_000_000_000_000
"""Smaller values are no moments: a lease that is free expired at 0."""
_COUNTERS: Final = {
    "session_key": "session",
    "owner_key": "session",
    "process_key": "process",
    "run_key": "run",
    "next_key": "run",
    "subscription_key": "subscription",
    "schedule_key": "schedule",
    "registered_seq": "change",
    "start_seq": "change",
    "end_seq": "change",
    ("lash_process_events", "seq"): "change",
    ("lash_process_changes", "seq"): "change",
    ("lash_batches", "seq"): "batch",
    ("lash_dead_letters", "seq"): "batch",
    ("lash_dead_letters", "place"): "letter",
}
"""The columns with numbers that a storage counts: in each copy they continue those of the copy before."""
_RANDOM: Final = ("key_id", "subscription_id")
"""Columns of ids that are unique in a storage."""
Change = Callable[[RowValue, int], RowValue]
"""Returns the value of a column in a copy of the given number."""


async def multiply(source: Storage, target: Storage, copies: int, *, apart_ms: int, once: Collection[str] = ()) -> None:
    """Fill an empty storage with copies of the source, the last one as new as the source, each other one older.

    The sessions and processes named in ``once`` are in the first copy only, and so are rows without a name that has the
    mark. Open the target again before it is used.
    """
    rows, into = _rows(source), _rows(target)
    tables = {table.name: table for table in rows.tables}
    found = {name: [row async for row in _all(rows, table)] for name, table in tables.items()}
    strides = _strides(tables, found)
    single = _single(tables, found, once)
    await into.begin(_MARK)
    for table in into.tables:
        copied = _copies(tables[table.name], found[table.name], copies, apart_ms, strides, single)
        for chunk in iter(lambda made=copied: list(itertools.islice(made, _AT_ONCE)), []):  # type: ignore[misc]
            await into.write(tables[table.name], chunk, before=_MARK, mark=_MARK)
    sequences = await rows.sequences()
    await into.finish({name: number * copies for name, number in sequences.items()}, before=_MARK)


def _rows(storage: Storage) -> RowStore:
    return cast("HasRows", storage).rows


async def _all(rows: RowStore, table: RowTable) -> AsyncIterator[Row]:
    places = [table.columns.index(column) for column in table.key]
    after: Row | None = None
    while page := await rows.read(table, after, _AT_ONCE):
        for row in page:
            yield row
        after = tuple(page[-1][place] for place in places)


def _counter(table: str, column: str) -> str | None:
    return _COUNTERS.get(column) or _COUNTERS.get((table, column))


def _numbers(table: RowTable, rows: Iterable[Row]) -> Iterator[tuple[str, int]]:
    """Yield the counted numbers of rows, each with its counter."""
    counters = [(place, _counter(table.name, column)) for place, column in enumerate(table.columns)]
    for row in rows:
        for place, counter in counters:
            value = row[place]
            if counter is not None and isinstance(value, int):
                yield counter, value


def _strides(tables: dict[str, RowTable], found: dict[str, list[Row]]) -> dict[str, int]:
    """Return by how much each counter differs from copy to copy."""
    strides: dict[str, int] = {}
    for name, table in tables.items():
        for counter, value in _numbers(table, found[name]):
            strides[counter] = max(value, strides.get(counter, 0))
    return strides


def _single(
    tables: dict[str, RowTable], found: dict[str, list[Row]], once: Collection[str]
) -> set[tuple[str | None, RowValue]]:
    """Return the numbers of the sessions and processes that are in one copy only."""
    single: set[tuple[str | None, RowValue]] = set()
    for noun, name in (("session", "lash_sessions"), ("process", "lash_processes")):
        columns = tables[name].columns
        identity, key = columns.index(f"{noun}_id"), columns.index(f"{noun}_key")
        single |= {(noun, row[key]) for row in found[name] if row[identity] in once}
    return single


def _copies(
    table: RowTable,
    rows: list[Row],
    copies: int,
    apart_ms: int,
    strides: dict[str, int],
    single: set[tuple[str | None, RowValue]],
) -> Iterator[Row]:
    """Yield the rows of a table in all copies, one copy after the other."""
    changes = [_change(table.name, column, copies, apart_ms, strides) for column in table.columns]
    # Most columns are the same in all copies.
    places = [place for place, change in enumerate(changes) if any(change(row[place], 1) != row[place] for row in rows)]
    keys = [place for place in places if table.columns[place] in table.key]
    counters = [(place, counter) for place in places if (counter := _counter(table.name, table.columns[place]))]
    copied = [row for row in rows if not any((counter, row[place]) in single for place, counter in counters)]
    for copy in range(copies):
        for row in copied if copy else rows:
            made = list(row)
            for place in places:
                made[place] = changes[place](row[place], copy)
            if not copy or any(made[place] != row[place] for place in keys):
                yield tuple(made)


def _change(table: str, column: str, copies: int, apart_ms: int, strides: dict[str, int]) -> Change:
    """Return how a column differs from copy to copy."""
    counter = _counter(table, column)
    stride = strides.get(counter, 0) if counter is not None else 0

    def change(value: RowValue, copy: int) -> RowValue:
        if isinstance(value, int):
            is_moment = column.endswith("_ms") and value > _LONG_AGO_MS
            return value + copy * stride - (copies - 1 - copy) * apart_ms * is_moment
        if not copy or not isinstance(value, str):
            return value
        if column in _RANDOM:
            return hashlib.sha256(f"{value} {copy}".encode()).hexdigest()[: len(value)]
        return value.replace(FIRST, f"-{copy:04}-") if FIRST in value else value

    return change
