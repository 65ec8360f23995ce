"""The raw rows of a storage on every backend: which tables are moved, in which order, by which key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Final

from lash.errors import ConfigError, Conflict, CorruptData
from lash.sqlkit.catalogue import Catalogue, Table
from lash.sqlkit.queries import quote_identifier
from lash.stores.table_rows import RawRows, Row, RowTable

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


class MovableRows:
    """The raw rows of one storage; the contract is `lash.stores.table_rows.RowStore`."""

    def __init__(self, rows: RawRows) -> None:
        self._rows = rows

    @cached_property
    def tables(self) -> tuple[RowTable, ...]:
        return self._rows.prepare()

    async def schema_number(self) -> int:
        return await self._number("schema_version")

    async def count(self, table: RowTable) -> int:
        return await self._number(f"rows_count {table.name}")

    async def pulse(self) -> tuple[int, ...]:
        return await self._rows.pulse()

    async def read(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        return await self._rows.read(table, after, limit)

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
        await self._rows.write(table, rows, before, mark)

    async def finish(self, sequences: Mapping[str, int], *, before: bytes) -> None:
        await self._rows.finish(sequences, before)

    async def _number(self, query: str) -> int:
        found = await self._rows.number(query)
        if found is None:
            raise CorruptData(f"query {query} returned no row")
        return found


def row_tables(catalogue: Catalogue) -> tuple[RowTable, ...]:
    """Return the tables of a move, each after the tables that its rows refer to, and then by name.

    By name, the floor of the change feed precedes the changes. PostgreSQL needs that: the transaction that writes the
    floor must not be later than the ones that write the changes. A row of a table may refer to another one of the table
    that has a smaller key and is moved before it.
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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quote_identifier(name) for name in names)


def _row_table(name: str, table: Table) -> RowTable:
    columns = tuple(sorted(name for name, column in table.columns.items() if column.type != TRANSACTION_ID))
    keys = [
        key.columns
        for key in table.unique
        if key.predicate is None and all(table.columns[column].not_null for column in key.columns)
    ]
    return RowTable(name=name, columns=columns, key=min(keys, key=lambda key: (len(key), key)))


def require_marked(changed: int) -> None:
    """Raise Conflict, which rolls the transaction back, unless the statement changed the one mark."""
    if changed != 1:
        raise Conflict("another move into this storage is running; wait until it ends, then check the target")
