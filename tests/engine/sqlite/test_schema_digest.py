"""Opening a file compares one digest; only a file with another one has its columns and keys compared."""

from __future__ import annotations

import re
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
        "CREATE TRIGGER lash_of_the_host AFTER INSERT ON lash_sessions BEGIN SELECT 1; END",
    ],
)
async def test_a_change_of_the_tables_changes_the_digest(tmp_path: Path, change: str) -> None:
    """No change of a table or an index of lash is hidden by the digest."""
    connection = await _create(tmp_path / "lash.db")
    connection.execute(change)
    assert read_digest(connection, _QUERIES) != load_catalogue("lash.sqlite.sql").digest
    connection.close()


async def test_a_foreign_key_that_is_gone_from_the_stored_text_is_named(tmp_path: Path) -> None:
    """A file whose tables were edited in place has another digest, and the comparison names what is missing."""
    path = tmp_path / "lash.db"
    connection = await _create(path)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.pragma("writable_schema", 1)
    (text,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'lash_nodes'").fetchall()[0]
    edited = re.sub(r",\s*FOREIGN KEY [^\n]*", "", str(text), count=1)
    assert edited != text
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'lash_nodes'", (edited,))
    connection.close()
    with pytest.raises(lash.SchemaMismatch, match="foreign key on lash_nodes"):
        await lash.open(f"sqlite:///{path}")


async def test_a_lost_index_of_a_key_is_found_at_its_first_use(tmp_path: Path) -> None:
    """SQLite makes the indexes of keys itself and stores no statement for them; without one it refuses to use it."""
    path = tmp_path / "lash.db"
    connection = await _create(path)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.pragma("writable_schema", 1)
    connection.execute("DELETE FROM sqlite_schema WHERE name = 'sqlite_autoindex_lash_sessions_1'")
    connection.close()
    async with await lash.open(f"sqlite:///{path}") as storage:
        with pytest.raises(lash.CorruptData):
            await storage.session("s").load()
