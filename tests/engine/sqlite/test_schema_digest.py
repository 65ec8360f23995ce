"""Opening a file compares one digest; only a file with another one has its columns and keys compared."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import lash
from lash.sqlite.schema import read_digest
from lash.sqlkit.catalogue import load_catalogue
from lash.sqlkit.queries import load_queries

_QUERIES = load_queries("lash.sqlite.sql")


async def _create(path: Path) -> apsw.Connection:
    await (await lash.open(f"sqlite:///{path}")).close()
    return apsw.Connection(str(path))


async def test_a_new_storage_has_the_digest_of_the_catalogue(tmp_path: Path) -> None:
    """``catalogue.json`` holds the digest of what the migrations create, so that opening need not compare columns."""
    connection = await _create(tmp_path / "lash.db")
    assert read_digest(connection, _QUERIES) == load_catalogue("lash.sqlite.sql").digest
    connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE lash_sessions ADD COLUMN hosts_column integer",
        "ALTER TABLE lash_frames DROP COLUMN body",
        "DROP INDEX lash_nodes_id",
        "DROP TABLE lash_turns",
        "CREATE TABLE lash_of_the_host (id integer)",
    ],
)
async def test_a_change_of_the_tables_changes_the_digest(tmp_path: Path, change: str) -> None:
    """No change of a table or an index of lash is hidden by the digest."""
    connection = await _create(tmp_path / "lash.db")
    connection.execute(change)
    assert read_digest(connection, _QUERIES) != load_catalogue("lash.sqlite.sql").digest
    connection.close()
