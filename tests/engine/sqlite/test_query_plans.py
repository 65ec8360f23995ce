"""Query plans that keep a commit and a read of a path independent of the stored amount."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from lash.backend.table_rows import row_tables
from lash.sqlite.rows.table_rows import row_statements
from lash.sqlite.schema import MIGRATIONS
from lash.sqlkit.catalogue import load_catalogue
from lash.sqlkit.migrations import load_migrations
from lash.sqlkit.queries import load_queries
from lash.stores.table_rows import RowTable

_QUERIES = load_queries("lash.sqlite.sql")
_WHOLE_GRAPH = {
    "node_all",
    "node_recount",
    "node_first_user",
    "node_close_segments",
    "node_removed_count",
    "node_vacuum",
    "commit_clear_graph",
    "fork_reclaim_nodes",
    "fork_reclaim_segments",
    "maintenance_find_graphs",
}
"""Queries that are meant to read all nodes of a session, or to go through all its segments."""
_BOUNDED = {"maintenance_table_rows", "limit_prune"}
"""Queries that read the beginning of a table, up to a limit; or one that has a row for each limit in use."""
_EMPTIED = "SCAN lash_session_wakes USING COVERING INDEX lash_session_wakes_session"
"""The beginning of a table whose rows are deleted as they are read, up to a limit."""
_WHOLE_STORAGE = {"rows_forget_secrets", "rows_pulse"}
"""Queries of a move between storages, which concern the whole storage."""
_FLEET = {name for name in _QUERIES if name.startswith("worker_")}
"""Queries of the registry of workers, which has a row for each running worker."""
_COUNTS = {"maintenance_counts"}
"""Queries that count rows, of which they read nothing but indexes."""
_PAGES = (
    *("event_after", "event_after_of_type", "event_nth_of_type", "event_recent", "event_tail"),
    *("activity_process_changes", "change_before", "process_changes_after"),
)
"""Pages of the logs and of the feed, whose entries are in several tables."""
_DAMAGE = {name for name in _QUERIES if name.startswith("damage_")}
"""Queries of a search for damage, which reads every row once."""


@pytest.fixture(scope="module")
def connection() -> Iterator[apsw.Connection]:
    """An empty database with the current tables."""
    opened = apsw.Connection(":memory:")
    for migration in load_migrations(MIGRATIONS):
        opened.execute(migration.statement)
    yield opened
    opened.close()


class _Nulls(dict[str, None]):
    def __missing__(self, name: str) -> None:
        return None


def _plan(connection: apsw.Connection, name: str) -> list[str]:
    rows = connection.execute("EXPLAIN QUERY PLAN " + _QUERIES[name], _Nulls()).fetchall()
    return [str(row[3]) for row in rows]


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in set(_QUERIES) - _BOUNDED - _WHOLE_STORAGE - _FLEET - _COUNTS - _DAMAGE
        if not name.startswith("schema_")
    ),
)
def test_no_query_scans_a_table(connection: apsw.Connection, name: str) -> None:
    """Every query finds its rows through an index."""
    scanned = [line for line in _plan(connection, name) if line.startswith("SCAN lash_")]
    assert [line for line in scanned if line != _EMPTIED] == []


@pytest.mark.parametrize("name", _PAGES)
def test_a_page_of_events_is_read_in_its_order(connection: apsw.Connection, name: str) -> None:
    """A page of a log or of the feed is merged from searches in indexes: nothing after it is read and sorted."""
    assert [line for line in _plan(connection, name) if line.startswith("USE TEMP B-TREE")] == []


@pytest.mark.parametrize("name", sorted(set(_QUERIES) - _WHOLE_GRAPH - _DAMAGE))
def test_nodes_are_looked_up_by_more_than_their_session(connection: apsw.Connection, name: str) -> None:
    """Only queries meant to read a whole graph find nodes by the session alone."""
    assert [line for line in _plan(connection, name) if "lash_nodes_place (session_key=?)" in line] == []


@pytest.mark.parametrize("name", sorted(name for name in _QUERIES if name.startswith("commit_")))
def test_a_commit_reads_no_history_of_components(connection: apsw.Connection, name: str) -> None:
    """A commit reads current and dropped components only, not those of all revisions between."""
    assert [
        line for line in _plan(connection, name) if line.endswith("lash_components USING PRIMARY KEY (session_key=?)")
    ] == []


@pytest.mark.parametrize("table", row_tables(load_catalogue("lash.sqlite.sql")), ids=lambda table: table.name)
def test_a_page_of_a_move_is_found_by_its_key(connection: apsw.Connection, table: RowTable) -> None:
    """However much was moved before, a page is one search in an index, and nothing is sorted."""
    statement = row_statements(table)[f"rows_read {table.name}"]
    [line] = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + statement, _Nulls())]
    assert line.startswith(f"SEARCH {table.name} USING")
