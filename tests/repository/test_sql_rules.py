"""Each rule about queries can fail, and its finding has a reason and a place."""

from pathlib import Path

import pytest

from tests.repository.trees import messages, places, tree
from tools.sql_rules import (
    additive_migrations_add,
    backends_agree,
    queries_are_used_and_exist,
    queries_say_their_purpose,
    sql_is_well_formed,
)

HEAD = "-- name: head\n-- The head.\nSELECT 1;\n"
DIFFERENCES = "tests/known_differences.py"


def listed(differences: dict[str, str]) -> str:
    return f"QUERY_DIFFERENCES: dict[str, str] = {differences!r}\n"


def test_a_misspelt_name_is_found(tmp_path: Path) -> None:
    """A query file that cannot be split is reported, not skipped."""
    repository = tree(tmp_path, {"{sqlite}/sql/session.sql": "--name: head\nSELECT 1;"})
    assert places(list(sql_is_well_formed(repository))) == [("src/lash/sqlite/sql/session.sql", 0)]


def test_a_name_in_two_files_is_found(tmp_path: Path) -> None:
    """The second definition is reported."""
    repository = tree(tmp_path, {"{sqlite}/sql/a.sql": HEAD, "{sqlite}/sql/b.sql": "\n" + HEAD})
    assert places(list(sql_is_well_formed(repository))) == [("src/lash/sqlite/sql/b.sql", 2)]


def test_a_gap_between_migrations_is_found(tmp_path: Path) -> None:
    """Migration numbers are checked without a database."""
    repository = tree(tmp_path, {"{postgres}/sql/migrations/0002_late.sql": "SELECT 1;"})
    assert places(list(sql_is_well_formed(repository))) == [("src/lash/postgres/sql/migrations", 0)]


def test_well_formed_sql_is_left_alone(tmp_path: Path) -> None:
    """The rules about form have no finding in a well-formed tree."""
    files = {"{sqlite}/sql/session.sql": HEAD, "{sqlite}/sql/migrations/0001_first.sql": "CREATE TABLE t (a);"}
    repository = tree(tmp_path, files)
    assert messages(sql_is_well_formed, repository) + messages(queries_say_their_purpose, repository) == []


@pytest.mark.parametrize("text", ["-- name: head\nSELECT 1;", "-- name: head\n--\nSELECT 1;"], ids=["none", "empty"])
def test_a_query_without_a_purpose_is_found(tmp_path: Path, text: str) -> None:
    """The comment must exist and have text."""
    repository = tree(tmp_path, {"{postgres}/sql/session.sql": text})
    assert places(list(queries_say_their_purpose(repository))) == [("src/lash/postgres/sql/session.sql", 1)]


def test_a_query_on_one_backend_only_is_found(tmp_path: Path) -> None:
    """The finding names the backend that has it."""
    repository = tree(tmp_path, {"{sqlite}/sql/session.sql": HEAD})
    assert [message.split(";")[0] for message in messages(backends_agree, repository)] == ["head exists on sqlite only"]


def test_a_migration_on_one_backend_only_is_found(tmp_path: Path) -> None:
    """Both backends have the same migration numbers."""
    repository = tree(tmp_path, {"{postgres}/sql/migrations/0001_first.sql": "SELECT 1;"})
    found = [message.split(";")[0] for message in messages(backends_agree, repository)]
    assert found == ["migration 0001 exists on postgres only"]


def test_the_same_names_agree_whatever_the_files(tmp_path: Path) -> None:
    """Only names and numbers are compared."""
    files = {
        "{sqlite}/sql/session.sql": HEAD,
        "{postgres}/sql/session.sql": HEAD.replace("1", "2"),
        "{sqlite}/sql/migrations/0001_first.sql": "",
        "{postgres}/sql/migrations/0001_other_name.sql": "",
    }
    assert messages(backends_agree, tree(tmp_path, files)) == []


def test_a_listed_difference_is_accepted(tmp_path: Path) -> None:
    """A difference with a reason is not a finding."""
    files = {"{sqlite}/sql/session.sql": HEAD, DIFFERENCES: listed({"head": "PostgreSQL folds it into the commit"})}
    assert messages(backends_agree, tree(tmp_path, files)) == []


def test_an_unneeded_entry_is_found(tmp_path: Path) -> None:
    """The list has no entry that is not a difference."""
    files = {
        "{sqlite}/sql/session.sql": HEAD,
        "{postgres}/sql/session.sql": HEAD,
        DIFFERENCES: listed({"head": "once true"}),
    }
    assert messages(backends_agree, tree(tmp_path, files)) == ["head is no difference (any more); remove the entry"]


def test_an_entry_without_a_reason_is_found(tmp_path: Path) -> None:
    """A difference must have a reason."""
    files = {"{sqlite}/sql/session.sql": HEAD, DIFFERENCES: listed({"head": " "})}
    assert messages(backends_agree, tree(tmp_path, files)) == ["head has no reason"]


def test_an_unused_query_is_found(tmp_path: Path) -> None:
    """A mention in the other backend, in a comment or in a longer text is not a use."""
    files = {
        "{sqlite}/sql/session.sql": HEAD,
        "{sqlite}/session.py": '"""Reads the head."""\n# head\n',
        "{postgres}/session.py": 'NAME = "head"\n',
    }
    repository = tree(tmp_path, files)
    assert messages(queries_are_used_and_exist, repository) == ["query head is never used"]


@pytest.mark.parametrize(
    "call",
    [
        'reader.one(Head, "haed", key=1)',
        'transaction.run("haed", key=1)',
        'await database.write_one(Head, "haed", 1, repeatable=True)',
    ],
)
def test_a_query_that_does_not_exist_is_found(tmp_path: Path, call: str) -> None:
    """A misspelt name is found where it is used."""
    module = f'USED = "head"\nasync def read():\n    {call}\n'
    repository = tree(tmp_path, {"{sqlite}/sql/session.sql": HEAD, "{sqlite}/session.py": module})
    found = list(queries_are_used_and_exist(repository))
    assert [(finding.line, finding.message) for finding in found] == [(3, "sqlite has no query haed")]


def test_used_and_existing_queries_are_left_alone(tmp_path: Path) -> None:
    """A literal name in the backend's package is a use."""
    files = {"{sqlite}/sql/session.sql": HEAD, "{sqlite}/session.py": 'reader.one(Head, "head", key=1)\n'}
    assert messages(queries_are_used_and_exist, tree(tmp_path, files)) == []


@pytest.mark.parametrize(
    ("statement", "is_found"),
    [
        ("CREATE TABLE t (a text NOT NULL); -- DROP TABLE s;", False),
        ("CREATE VIEW v AS SELECT 1; CREATE INDEX i ON t (a);", False),
        ("CREATE FUNCTION f() RETURNS int AS $$ BEGIN DELETE FROM t; END $$;", False),
        ("ALTER TABLE t ADD COLUMN b text;", False),
        ("ALTER TABLE t ADD COLUMN b bigint NOT NULL DEFAULT 0;", False),
        ("ALTER TABLE t ADD COLUMN b bigint NOT NULL;", True),
        ("ALTER TABLE t ADD COLUMN b text, DROP COLUMN a;", True),
        ("CREATE UNIQUE INDEX i ON t (a);", True),
        ("CREATE TRIGGER g AFTER INSERT ON t EXECUTE FUNCTION f();", True),
        ("CREATE TABLE t (a int); UPDATE s SET a = 1;", True),
        ("DROP INDEX i;", True),
    ],
)
def test_an_additive_migration_that_changes_something_is_found(
    tmp_path: Path,
    statement: str,
    is_found: bool,  # noqa: FBT001 (parametrized)
) -> None:
    """Only what older code does not notice may be additive; the same statement is free in another migration."""
    for marker, expected in (("-- additive: why.\n", is_found), ("", False)):
        files = {f"{{{backend}}}/sql/migrations/0001_a.sql": marker + statement for backend in ("sqlite", "postgres")}
        found = messages(additive_migrations_add, tree(tmp_path, files))
        assert bool(found) is expected, found


def test_a_migration_that_is_additive_on_one_backend_is_found(tmp_path: Path) -> None:
    """Versions of workers can be mixed on both databases or on neither."""
    texts = {"sqlite": "-- additive: why.\n", "postgres": ""}
    files = {
        f"{{{backend}}}/sql/migrations/0001_a.sql": f"{text}CREATE TABLE t (a);" for backend, text in texts.items()
    }
    assert messages(additive_migrations_add, tree(tmp_path, files)) == ["0001 is additive on one backend"]
