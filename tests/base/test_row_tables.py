"""Tables that are moved with a storage, and their order."""

from __future__ import annotations

import pytest

from lash.backend.table_rows import row_tables
from lash.sqlkit.catalogue import load_catalogue

BACKENDS = ("sqlite", "postgres")


def test_both_backends_move_the_same_columns() -> None:
    """Both backends move the same columns, without transaction ids, live activity and internal tables."""
    sqlite, postgres = (
        {table.name: table.columns for table in row_tables(load_catalogue(f"lash.{backend}.sql"))}
        for backend in BACKENDS
    )
    assert sqlite == postgres
    left = {
        *("lash_activity", "lash_activity_tails", "lash_migrations"),
        *("lash_process_change_epoch", "lash_wait_changes", "lash_workers"),
    }
    assert set(load_catalogue("lash.sqlite.sql").tables) - set(sqlite) == left
    assert "xid" not in postgres["lash_process_changes"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_rows_refer_to_comes_before_them(backend: str) -> None:
    """No foreign key points to a table that is moved later; the floor of the change feed precedes the changes.

    Rows of one table may refer to older ones: they are moved in the order of their keys.
    """
    catalogue = load_catalogue(f"lash.{backend}.sql")
    order = [table.name for table in row_tables(catalogue)]
    for place, name in enumerate(order):
        assert {key.table for key in catalogue.tables[name].foreign_keys} <= {*order[:place], name}
    assert order.index("lash_process_change_floor") < order.index("lash_process_changes")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_is_unique_and_never_null(backend: str) -> None:
    """Pages use a unique key without a predicate, over columns that refuse NULL."""
    catalogue = load_catalogue(f"lash.{backend}.sql")
    for table in row_tables(catalogue):
        found = catalogue.tables[table.name]
        assert any(key.columns == table.key and key.predicate is None for key in found.unique), table.name
        assert all(found.columns[column].not_null for column in table.key), table.name
