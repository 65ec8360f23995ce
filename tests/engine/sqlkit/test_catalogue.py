"""A live catalogue is compared with the required one, and every difference is named."""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lash.sqlkit.catalogue import (
    Catalogue,
    CatalogueColumn,
    ForeignKey,
    Table,
    UniqueKey,
    differences,
    dump_catalogue,
    group_catalogue,
    load_catalogue,
)

PARENT = Table(
    columns={"id": CatalogueColumn(type="TEXT", not_null=True), "note": CatalogueColumn(type="TEXT", not_null=False)},
    unique=frozenset({UniqueKey(columns=("id",)), UniqueKey(columns=("note",), predicate="note IS NOT NULL")}),
)
CHILD = Table(
    columns={
        "parent": CatalogueColumn(type="TEXT", not_null=True),
        "place": CatalogueColumn(type="INTEGER", not_null=True),
    },
    unique=frozenset({UniqueKey(columns=("parent", "place"))}),
    foreign_keys=frozenset({ForeignKey(columns=("parent",), table="parent", referenced_columns=("id",))}),
)
NEEDED = Catalogue(tables={"parent": PARENT, "child": CHILD})

COLUMN_ROWS = [
    ("child", "parent", "TEXT", 1),
    ("child", "place", "INTEGER", 1),
    ("parent", "id", "TEXT", 1),
    ("parent", "note", "TEXT", 0),
]
UNIQUE_ROWS = [("parent", "id", None), ("parent", "note", "note IS NOT NULL"), ("child", "parent,place", None)]
FOREIGN_KEY_ROWS = [("child", "parent", "parent", "id")]


def changed(**tables: Table) -> Catalogue:
    return Catalogue(tables={**NEEDED.tables, **tables})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "catalogue_under_test"
    directory.mkdir()
    (directory / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield directory
    sys.modules.pop("catalogue_under_test", None)


def test_rows_are_grouped_by_table() -> None:
    """The rows of a live catalogue make the same value as writing it out."""
    assert group_catalogue(COLUMN_ROWS, UNIQUE_ROWS, FOREIGN_KEY_ROWS) == NEEDED


def test_a_catalogue_is_read_from_json(package: Path) -> None:
    """The file's text is understood field by field, defaults included."""
    (package / "catalogue.json").write_text(
        '{"tables": {"t": {"columns": {"a": {"type": "TEXT", "not_null": true}},'
        ' "unique": [{"columns": ["a"]}], "foreign_keys": []}}}'
    )
    column = CatalogueColumn(type="TEXT", not_null=True)
    table = Table(columns={"a": column}, unique=frozenset({UniqueKey(columns=("a",))}))
    assert load_catalogue("catalogue_under_test") == Catalogue(tables={"t": table})


def test_an_unknown_field_in_the_file_is_refused(package: Path) -> None:
    """A misspelt need is an error, not a need that is never checked."""
    (package / "catalogue.json").write_text('{"tables": {"t": {"columns": {}, "uniqe": []}}}')
    with pytest.raises(msgspec.ValidationError, match="uniqe"):
        load_catalogue("catalogue_under_test")


def test_what_is_written_reads_back_equal(package: Path) -> None:
    """A dumped catalogue loads as the same value."""
    (package / "catalogue.json").write_text(dump_catalogue(NEEDED))
    assert load_catalogue("catalogue_under_test") == NEEDED


def test_equal_catalogues_are_written_alike() -> None:
    """The text does not depend on the order of tables, columns and keys."""
    reversed_rows = group_catalogue(COLUMN_ROWS[::-1], UNIQUE_ROWS[::-1], FOREIGN_KEY_ROWS[::-1])
    assert dump_catalogue(reversed_rows) == dump_catalogue(NEEDED)


def test_equal_catalogues_have_no_differences() -> None:
    """What is as needed is not reported."""
    assert differences(NEEDED, NEEDED) == ()


def test_what_the_host_added_is_no_difference() -> None:
    """Tables, columns, indexes and references of the host are its own."""
    column = CatalogueColumn(type="BLOB", not_null=False)
    richer = Table(
        columns={**CHILD.columns, "host": column},
        unique=CHILD.unique | {UniqueKey(columns=("host",))},
        foreign_keys=CHILD.foreign_keys | {ForeignKey(columns=("host",), table="h", referenced_columns=("id",))},
    )
    assert differences(NEEDED, changed(child=richer, hosts=Table(columns={"id": column}))) == ()


def test_a_missing_table_is_named_once() -> None:
    """The columns of a missing table are not listed again."""
    assert differences(NEEDED, Catalogue(tables={"parent": PARENT})) == ("table child is missing",)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            Table(
                columns={"parent": CatalogueColumn(type="TEXT", not_null=True)},
                unique=CHILD.unique,
                foreign_keys=CHILD.foreign_keys,
            ),
            "column child.place is missing",
        ),
        (
            Table(
                columns={**CHILD.columns, "place": CatalogueColumn(type="TEXT", not_null=True)},
                unique=CHILD.unique,
                foreign_keys=CHILD.foreign_keys,
            ),
            "column child.place has type TEXT, expected INTEGER",
        ),
        (
            Table(
                columns={**CHILD.columns, "place": CatalogueColumn(type="INTEGER", not_null=False)},
                unique=CHILD.unique,
                foreign_keys=CHILD.foreign_keys,
            ),
            "column child.place must refuse NULL",
        ),
        (
            Table(columns=CHILD.columns, foreign_keys=CHILD.foreign_keys),
            "unique index on child (parent, place) is missing",
        ),
        (
            Table(
                columns=CHILD.columns,
                unique=frozenset({UniqueKey(columns=("parent",))}),
                foreign_keys=CHILD.foreign_keys,
            ),
            "unique index on child (parent, place) is missing",
        ),
        (
            Table(columns=CHILD.columns, unique=CHILD.unique),
            "foreign key on child (parent) to parent (id) is missing",
        ),
    ],
    ids=["column", "type", "nullable", "no unique index", "other unique index", "foreign key"],
)
def test_each_lack_is_named(table: Table, expected: str) -> None:
    """One lack makes one line that names it."""
    assert differences(NEEDED, changed(child=table)) == (expected,)


def test_a_column_that_wrongly_refuses_null_is_named() -> None:
    """A stricter column would refuse rows that the code writes."""
    stricter = Table(
        columns={**PARENT.columns, "note": CatalogueColumn(type="TEXT", not_null=True)}, unique=PARENT.unique
    )
    assert differences(NEEDED, changed(parent=stricter)) == ("column parent.note must accept NULL",)


def test_another_predicate_is_another_index() -> None:
    """A partial index over other rows does not guarantee what is needed."""
    other = frozenset({UniqueKey(columns=("id",)), UniqueKey(columns=("note",))})
    assert differences(NEEDED, changed(parent=Table(columns=PARENT.columns, unique=other))) == (
        "unique index on parent (note) where note IS NOT NULL is missing",
    )


@pytest.mark.parametrize(
    "predicate", ["(note IS NOT NULL)", "note  IS\n NOT NULL", "((note IS NOT NULL))", '("note" IS NOT NULL)']
)
def test_how_a_database_prints_a_predicate_does_not_matter(predicate: str) -> None:
    """Spacing and enclosing parentheses carry no meaning."""
    unique = frozenset({UniqueKey(columns=("id",)), UniqueKey(columns=("note",), predicate=predicate)})
    assert differences(NEEDED, changed(parent=Table(columns=PARENT.columns, unique=unique))) == ()


def test_parentheses_inside_a_predicate_do_matter() -> None:
    """Only parentheses around the whole are dropped."""
    needed = Table(columns={}, unique=frozenset({UniqueKey(columns=("a",), predicate="(a) OR (b)")}))
    found = Table(columns={}, unique=frozenset({UniqueKey(columns=("a",), predicate="a) OR (b")}))
    assert len(differences(Catalogue(tables={"t": needed}), Catalogue(tables={"t": found}))) == 1


def test_spelling_of_types_and_order_of_key_columns_do_not_matter() -> None:
    """The same guarantee in other words is the same guarantee."""
    respelt = Table(
        columns={
            "parent": CatalogueColumn(type="text", not_null=True),
            "place": CatalogueColumn(type=" integer ", not_null=True),
        },
        unique=frozenset({UniqueKey(columns=("place", "parent"))}),
        foreign_keys=CHILD.foreign_keys,
    )
    assert differences(NEEDED, changed(child=respelt)) == ()
