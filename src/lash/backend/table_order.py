"""Which tables are moved with a storage, in which order, and by which key their rows are read."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Final

from lash.sqlkit.catalogue import Catalogue, Table
from lash.stores.table_rows import RowTable

NOT_MOVED: Final = frozenset({"lash_activity", "lash_activity_tails", "lash_migrations", "lash_wait_changes"})
"""Live activity, and what a backend keeps for itself."""
TRANSACTION_ID: Final = "xid8"
"""The type of columns that only PostgreSQL has. Their values mean nothing elsewhere."""


def row_tables(catalogue: Catalogue) -> tuple[RowTable, ...]:
    """Return the tables of a move, each behind those that its rows refer to, otherwise by name.

    By name, the floor of the feed of changes comes before the changes, as its transaction must on PostgreSQL.
    """
    moved = {name: table for name, table in catalogue.tables.items() if name not in NOT_MOVED}
    order = TopologicalSorter({name: {key.table for key in table.foreign_keys} for name, table in moved.items()})
    order.prepare()
    tables: list[RowTable] = []
    while order.is_active():
        ready = sorted(order.get_ready())
        tables.extend(_row_table(name, moved[name]) for name in ready)
        order.done(*ready)
    return tuple(tables)


def _row_table(name: str, table: Table) -> RowTable:
    columns = tuple(sorted(name for name, column in table.columns.items() if column.type != TRANSACTION_ID))
    keys = [
        key.columns
        for key in table.unique
        if key.predicate is None and all(table.columns[column].not_null for column in key.columns)
    ]
    return RowTable(name=name, columns=columns, key=min(keys, key=lambda key: (len(key), key)))
