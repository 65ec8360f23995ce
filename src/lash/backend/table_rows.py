"""The raw rows of a storage on every backend: which tables are moved, in which order, by which key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Final

from lash.backend.seal_mark import check_mark
from lash.base.seal import SealedField, Seals
from lash.errors import ConfigError, Conflict, CorruptData, StorageFailure, StoreUnavailable
from lash.plan.sealed import SEALED_COLUMNS
from lash.plan.work import check_schema
from lash.sqlkit.catalogue import Catalogue, Table
from lash.sqlkit.queries import quote_identifier
from lash.stores.seal import SealRows
from lash.stores.table_rows import RawRows, Row, RowStore, RowTable, RowValue

NOT_MOVED: Final = frozenset(
    {
        "lash_activity",
        "lash_activity_tails",
        "lash_migrations",
        "lash_process_change_epoch",
        "lash_wait_changes",
        "lash_workers",
    }
)
"""Live activity, the epoch of the change feed, running workers, and tables that a backend keeps for its own use."""
TRANSACTION_ID: Final = "xid8"
"""The type of columns that only PostgreSQL has. Their values mean nothing in another database."""

OWN_COLUMNS: Final = {"lash_sessions": frozenset({"changed"}), "lash_session_ids": frozenset({"changed"})}
"""Places in the feed of sessions on SQLite; a session that is moved there gets one at its next change."""

_KEYS: Final = {"lash_process_events": ("process_key", "sequence")}
"""The keys by which rows are read where a table has a shorter one, so that the rows of one owner follow each other."""
_FIRST_PAGE: Final = 8
_LARGEST_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Rows may be large: the size of a page follows from the one before it."""


class MovableRows:
    """The raw rows of one storage; the contract is `lash.stores.table_rows.RowStore`."""

    def __init__(self, rows: RawRows, seal: SealRows, seals: Seals, known_schema: int) -> None:
        self._known_schema = known_schema
        self._rows = rows
        self._seal = seal
        self._seals = seals

    @property
    def is_sealed(self) -> bool:
        return self._seals.is_active

    @cached_property
    def tables(self) -> tuple[RowTable, ...]:
        return self._rows.prepare()

    async def schema_number(self) -> int:
        found = await self._number("schema_last")
        check_schema(found, self._known_schema)
        return found

    async def count(self, table: RowTable) -> int:
        return await self._number(f"rows_count {table.name}")

    async def pulse(self) -> tuple[int, ...]:
        return await self._rows.pulse()

    async def read(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        return [self.unsealed(table, row) for row in await self._rows.read(table, after, limit)]

    async def read_stored(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        return await self._rows.read(table, after, limit)

    async def reseal(self, table: RowTable, rows: Sequence[Row]) -> int:
        fields = SEALED_COLUMNS.get(table.name, {})
        places = [table.columns.index(column) for column in fields]
        old = [row for row in rows if not all(self._is_current(row[place]) for place in places)]
        changed = [(row, seal_values(self._seals, table, open_values(self._seals, table, row))) for row in old]
        return await self._rows.replace(table, changed) if changed else 0

    def unsealed(self, table: RowTable, row: Row) -> Row:
        return open_values(self._seals, table, row) if self._seals.is_active else row

    async def sequences(self) -> dict[str, int]:
        found = await self._rows.sequences()
        refused = [row.table for row in found if not row.allowed]
        if refused:
            raise ConfigError(
                f"the role may not read and set the sequences of {', '.join(refused)}; move as the owner of the tables"
            )
        return {row.table: row.number for row in found if row.number is not None}

    async def mark(self) -> bytes | None:
        return await self._rows.mark()

    async def begin(self, mark: bytes) -> None:
        await self._rows.begin(mark)

    async def write(self, table: RowTable, rows: Sequence[Row], *, before: bytes, mark: bytes) -> None:
        sealed = [seal_values(self._seals, table, row) for row in rows] if self._seals.is_active else rows
        await self._rows.write(table, sealed, before, mark)

    async def finish(self, sequences: Mapping[str, int], *, before: bytes) -> None:
        await self._rows.finish(sequences, before)
        try:
            # The secrets of the source replaced those of this storage.
            await check_mark(self._seal, self._seals)
        except (StorageFailure, StoreUnavailable) as error:
            # The move itself was finished.
            error.outcome_unknown = True
            raise

    def _is_current(self, value: RowValue) -> bool:
        return not isinstance(value, str | bytes) or self._seals.is_current(value)

    async def _number(self, query: str) -> int:
        found = await self._rows.number(query)
        if found is None:
            raise CorruptData(f"query {query} returned no row")
        return found


async def stored_pages(rows: RowStore, table: RowTable, after: Row | None = None) -> AsyncIterator[list[Row]]:
    """Yield the rows of a table after a key, ordered by key, as they are stored."""
    size = _FIRST_PAGE
    while page := await rows.read_stored(table, after, size):
        yield page
        if len(page) < size:
            return
        after = tuple(page[-1][table.columns.index(column)] for column in table.key)
        size = _next_size(page)


def _next_size(page: Sequence[Row]) -> int:
    size = sum(len(value) for row in page for value in row if isinstance(value, str | bytes))
    return max(1, min(_LARGEST_PAGE, _PAGE_BYTES * len(page) // max(size, 1)))


def open_values(seals: Seals, table: RowTable, row: Row) -> Row:
    """Return the row with its values unsealed, or raise CannotUnseal."""

    def opened(field: SealedField, value: RowValue, identity: Sequence[RowValue]) -> RowValue:
        if isinstance(value, bytes):
            return seals.open_content(field, value, *identity)
        return seals.open_text(field, value, *identity) if isinstance(value, str) else value

    return _changed(table, row, opened)


def seal_values(seals: Seals, table: RowTable, row: Row) -> Row:
    """Return the row with its values sealed."""

    def sealed(field: SealedField, value: RowValue, identity: Sequence[RowValue]) -> RowValue:
        if isinstance(value, bytes):
            return seals.content(field, value, *identity)
        return seals.text(field, value, *identity) if isinstance(value, str) else value

    return _changed(table, row, sealed)


def _changed(table: RowTable, row: Row, change: Callable[[SealedField, RowValue, Sequence[RowValue]], RowValue]) -> Row:
    fields = SEALED_COLUMNS.get(table.name)
    if fields is None:
        return row
    values = dict(zip(table.columns, row, strict=True))
    changed = {
        name: change(field, values[name], [values[column] for column in field.identity])
        for name, field in fields.items()
    }
    return tuple((values | changed).values())


def row_tables(catalogue: Catalogue) -> tuple[RowTable, ...]:
    """Return the tables of a move, each after the tables that its rows refer to, and then by name.

    A row of a table may refer to another one of the table that has a smaller key and is moved before it.
    """
    moved = {name: table for name, table in catalogue.tables.items() if name not in NOT_MOVED}
    named = {name: {key.table for key in table.foreign_keys} - {name} for name, table in moved.items()}
    order = TopologicalSorter(named)
    order.prepare()
    tables: list[RowTable] = []
    while order.is_active():
        ready = sorted(order.get_ready())
        tables.extend(_row_table(name, moved[name]) for name in ready)
        order.done(*ready)
    return tuple(tables)


def table_statements(table: RowTable, templates: Mapping[str, str], **parts: str) -> dict[str, str]:
    """Return the templates filled in for a table, by names such as ``rows_read lash_turns``."""
    names = {
        "table": quote_identifier(table.name),
        "columns": _listed(table.columns),
        "key": _listed(table.key),
        **parts,
    }
    return {f"{name} {table.name}": template.format_map(names) for name, template in templates.items()}


def sealed_columns(table: RowTable) -> tuple[str, ...]:
    """Return the columns of a table whose values are sealed."""
    return tuple(SEALED_COLUMNS.get(table.name, ()))


def replaced_columns(table: RowTable, rows: Sequence[tuple[Row, Row]]) -> list[Row]:
    """Return the key, the stored values and the new values of each row, in the order of ``rows_replace``."""
    keys = [table.columns.index(column) for column in table.key]
    values = [table.columns.index(column) for column in sealed_columns(table)]
    return [
        (*(old[place] for place in keys), *(old[place] for place in values), *(new[place] for place in values))
        for old, new in rows
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quote_identifier(name) for name in names)


def _row_table(name: str, table: Table) -> RowTable:
    own = OWN_COLUMNS.get(name, frozenset())
    movable = (column for column, found in table.columns.items() if found.type != TRANSACTION_ID and column not in own)
    columns = tuple(sorted(movable))
    keys = [
        key.columns
        for key in table.unique
        if key.predicate is None and all(table.columns[column].not_null for column in key.columns)
    ]
    return RowTable(name=name, columns=columns, key=_KEYS.get(name) or min(keys, key=lambda key: (len(key), key)))


def require_marked(changed: int) -> None:
    """Raise Conflict, which rolls the transaction back, unless the statement changed the one mark."""
    if changed != 1:
        raise Conflict("another move into this storage is running; wait until it ends, then check the target")
