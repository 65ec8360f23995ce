"""A query that its database would refuse is found without being run."""

from pathlib import Path

import pytest

from lash.testing.postgres_server import PostgresServer
from tests.repository.trees import messages, places, tree
from tools.compile_rules import postgres_findings, sqlite_compiles

SQLITE_SCHEMA = {"{sqlite}/sql/migrations/0001_first.sql": "CREATE TABLE a (x TEXT); CREATE TABLE b (y TEXT);"}
POSTGRES_SCHEMA = {
    "{postgres}/sql/migrations/0001_first.sql": (
        'CREATE TABLE :"schema".a (x text); CREATE TABLE :"schema".b (y text);'
    )
}


def query(statement: str) -> str:
    return f"-- name: some_query\n-- Something.\n{statement}\n"


def test_a_sound_sqlite_query_compiles(tmp_path: Path) -> None:
    """A query compiles without values for its parameters, and is not run."""
    statement = "INSERT INTO a (x) SELECT y FROM b WHERE y = :y RETURNING x;"
    repository = tree(tmp_path, {**SQLITE_SCHEMA, "{sqlite}/sql/a.sql": query(statement)})
    assert messages(sqlite_compiles, repository) == []


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("SELECT z FROM a;", "no such column: z"),
        ('SELECT "z" FROM a;', "no such column"),
        ("SELECT x FROM missing;", "no such table: missing"),
        ("SELECT FROM;", "syntax error"),
        ("SELECT x FROM a; SELECT y FROM b;", "more than one statement"),
        ("SELECT x FROM a WHERE x = ?;", "without a name"),
    ],
)
def test_an_unsound_sqlite_query_is_found(tmp_path: Path, statement: str, complaint: str) -> None:
    """The finding has the line of the query's name and the database's message."""
    repository = tree(tmp_path, {**SQLITE_SCHEMA, "{sqlite}/sql/a.sql": "\n" + query(statement)})
    found = list(sqlite_compiles(repository))
    assert places(found) == [("src/lash/sqlite/sql/a.sql", 2)]
    assert complaint in found[0].message


def test_an_sqlite_migration_that_does_not_apply_is_found(tmp_path: Path) -> None:
    """The finding names the migration's file."""
    repository = tree(tmp_path, {"{sqlite}/sql/migrations/0001_first.sql": "CREATE TABLE a (x); CREATE TABLE a (x);"})
    assert places(list(sqlite_compiles(repository))) == [("src/lash/sqlite/sql/migrations/0001_first.sql", 0)]


async def test_a_sound_postgres_query_compiles(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """The schema is filled in, and parameters need no values."""
    statement = 'INSERT INTO :"schema".a (x) SELECT y FROM :"schema".b WHERE y = $1 RETURNING x;'
    repository = tree(tmp_path, {**POSTGRES_SCHEMA, "{postgres}/sql/a.sql": query(statement)})
    assert await postgres_findings(repository, postgres_server.url) == []


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ('SELECT z FROM :"schema".a;', 'column "z" does not exist'),
        ("SELECT x FROM a;", 'relation "a" does not exist'),
        ('SELECT x FROM :"schema".a; SELECT 1;', "multiple commands"),
        ('SELECT x FROM :"schema".a WHERE x = $1::integer;', "operator does not exist"),
    ],
)
async def test_an_unsound_postgres_query_is_found(
    tmp_path: Path, postgres_server: PostgresServer, statement: str, complaint: str
) -> None:
    """The finding has the line of the query's name and the server's message."""
    repository = tree(tmp_path, {**POSTGRES_SCHEMA, "{postgres}/sql/a.sql": query(statement)})
    found = await postgres_findings(repository, postgres_server.url)
    assert places(found) == [("src/lash/postgres/sql/a.sql", 1)]
    assert complaint in found[0].message


async def test_a_postgres_migration_that_does_not_apply_is_found(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """The finding names the migration's file."""
    repository = tree(tmp_path, {"{postgres}/sql/migrations/0001_first.sql": "CREATE TABLE;"})
    found = await postgres_findings(repository, postgres_server.url)
    assert places(found) == [("src/lash/postgres/sql/migrations/0001_first.sql", 0)]
