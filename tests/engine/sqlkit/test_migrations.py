"""Migrations are numbered 1..n, and one number determines which are pending."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lash.errors import NewerSchema
from lash.sqlkit.migrations import (
    Applied,
    Migration,
    is_current,
    last_number,
    load_migrations,
    pending,
    read_migrations,
)

FIRST = Migration(number=1, name="first", statement="CREATE TABLE a (x);")
SECOND = Migration(number=2, name="second", statement="CREATE TABLE b (x);")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory without ``__init__.py``, like the migrations of the backends."""
    directory = tmp_path / "migrations_under_test"
    directory.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    yield directory
    sys.modules.pop("migrations_under_test", None)


def test_migrations_are_loaded_in_order_and_in_the_schema(package: Path) -> None:
    """The number and the name come from the file name, the statement and whether it is additive from its text."""
    (package / "0002_second.sql").write_text('CREATE TABLE :"schema".b (x);')
    (package / "0001_first.sql").write_text('CREATE TABLE :"schema".a (x);')
    (package / "0003_third.sql").write_text("-- additive: nothing reads it.\nCREATE TABLE c (x);")
    (package / "0004_fourth.sql").write_text("-- One more.\n-- additive: only at the beginning.\nCREATE TABLE d (x);")
    loaded = load_migrations("migrations_under_test", schema="s")
    assert loaded[:2] == (
        Migration(number=1, name="first", statement='CREATE TABLE "s".a (x);'),
        Migration(number=2, name="second", statement='CREATE TABLE "s".b (x);'),
    )
    assert [migration.is_additive for migration in loaded] == [False, False, True, False]


def test_an_empty_folder_has_no_migrations(tmp_path: Path) -> None:
    """Nothing is invented."""
    assert read_migrations(tmp_path) == ()


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["0002_second.sql"], "expected number 0001"),
        (["0001_first.sql", "0003_third.sql"], "expected number 0002"),
        (["0001_first.sql", "0001_other.sql"], "expected number 0002"),
        (["0000_zero.sql", "0001_first.sql"], "expected number 0001"),
        (["1_first.sql"], "expected a name such as"),
        (["0001-first.sql"], "expected a name such as"),
        (["0001_First.sql"], "expected a name such as"),
    ],
)
def test_gaps_doubles_and_odd_names_are_refused(tmp_path: Path, names: list[str], complaint: str) -> None:
    """A file that would be skipped or applied out of order is an error."""
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=complaint):
        read_migrations(tmp_path)


@pytest.mark.parametrize(
    ("applied", "expected"), [(0, (FIRST, SECOND)), (1, (SECOND,)), (2, ())], ids=["empty", "behind", "current"]
)
def test_pending_is_what_lies_above_the_applied_number(applied: int, expected: tuple[Migration, ...]) -> None:
    """Only later migrations are pending."""
    assert pending(Applied(applied, applied), (FIRST, SECOND)) == expected


def test_a_newer_schema_is_refused_with_both_numbers() -> None:
    """An older lash refuses tables that a newer one made."""
    with pytest.raises(NewerSchema, match=r"schema 3.*up to 2") as caught:
        pending(Applied(last=3, required=3), (FIRST, SECOND))
    assert (caught.value.found, caught.value.supported) == (3, 2)


def test_newer_additive_migrations_are_accepted() -> None:
    """What older code can work with is not refused, until a migration follows that it has to know."""
    assert pending(Applied(last=5, required=2), (FIRST, SECOND)) == ()
    with pytest.raises(NewerSchema, match=r"schema 5.*up to 2"):
        pending(Applied(last=5, required=3), (FIRST, SECOND))


@pytest.mark.parametrize(
    ("applied", "expected"),
    [
        (Applied(2, 2), True),
        (Applied(3, 2), True),
        (Applied(1, 1), False),
        (Applied(3, 3), False),
        (Applied(), False),
    ],
)
def test_a_current_schema_needs_no_migration_and_has_no_unknown_one(applied: Applied, expected: bool) -> None:  # noqa: FBT001
    """Only then are the files not read: an older schema needs them, and one that is too new is refused with them."""
    assert is_current(applied, 2) is expected


def test_the_last_number_is_that_of_the_last_file(package: Path) -> None:
    """Other files in the directory do not count."""
    for name in ("0001_first.sql", "0002_second.sql", "README"):
        (package / name).touch()
    assert last_number("migrations_under_test") == 2
