"""Named queries are split, named and placed in a schema exactly as written."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lash.sqlkit.queries import argument_names, compact, in_schema, load_queries, parse_queries, quote_identifier


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "queries_under_test"
    directory.mkdir()
    (directory / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield directory
    sys.modules.pop("queries_under_test", None)


def test_each_name_gets_the_text_up_to_the_next_name() -> None:
    """A query is everything between its name and the next one, its purpose comment included."""
    text = "-- about this file\n-- name: first\n-- One.\nSELECT 1;\n\n-- name: second\nSELECT 2;\n"
    assert parse_queries(text) == [("first", "-- One.\nSELECT 1;"), ("second", "SELECT 2;")]


@pytest.mark.parametrize(
    "line",
    [
        "--name: second",
        "-- name: Second",
        "-- name : second",
        "-- name: second query",
        " -- name: second",
        "\t--NAME:x",
    ],
)
def test_a_misspelt_name_is_refused(line: str) -> None:
    """A line that only resembles a name never disappears into the query before it."""
    with pytest.raises(ValueError, match="expected '-- "):
        parse_queries(f"-- name: first\nSELECT 1;\n{line}\nSELECT 2;\n")


def test_queries_of_all_files_are_loaded_in_the_schema(package: Path) -> None:
    """Every file of the package contributes, and the schema's place is filled with the quoted name."""
    (package / "a.sql").write_text('-- name: one\n-- One.\nSELECT 1 FROM :"schema".t;')
    (package / "b.sql").write_text("-- name: two\n-- Two.\nSELECT 2;")
    queries = load_queries("queries_under_test", schema='odd"name')
    assert dict(queries) == {"one": '-- One.\nSELECT 1 FROM "odd""name".t;', "two": "-- Two.\nSELECT 2;"}


def test_a_name_defined_twice_is_refused(package: Path) -> None:
    """Two queries of one name are an error that names the second file."""
    (package / "a.sql").write_text("-- name: one\nSELECT 1;")
    (package / "b.sql").write_text("-- name: one\nSELECT 2;")
    with pytest.raises(ValueError, match=r"'one' is defined twice.*b\.sql"):
        load_queries("queries_under_test")


def test_a_file_is_parsed_when_one_of_its_queries_is_used(package: Path) -> None:
    """A program uses few of the files: one that is never used is not parsed, but its names are known."""
    (package / "a.sql").write_text("-- name: one\nSELECT 1;\n-- name: two\nSELECT 2;")
    (package / "b.sql").write_text("-- name: three\n-- include: absent\nSELECT 3;")
    queries = load_queries("queries_under_test")
    assert queries["one"] == "SELECT 1;"
    assert (list(queries), len(queries), "three" in queries) == (["one", "two", "three"], 3, True)
    with pytest.raises(ValueError, match="unknown fragment"):
        queries["three"]


def test_a_running_process_keeps_the_queries_that_it_read(package: Path) -> None:
    """A package that is replaced on disk does not mix queries of two versions in one process."""
    (package / "a.sql").write_text("-- name: one\nSELECT 1;")
    (package / "b.sql").write_text("-- name: two\nSELECT 2;")
    queries = load_queries("queries_under_test")
    assert queries["one"] == "SELECT 1;"
    (package / "b.sql").write_text("-- name: two\nSELECT 'of another version';")
    assert queries["two"] == "SELECT 2;"
    with pytest.raises(KeyError):
        queries["absent"]


def test_without_a_schema_the_statement_stays_as_it_is() -> None:
    """SQLite statements pass through unchanged."""
    assert in_schema("SELECT ':x'", None) == "SELECT ':x'"


def test_quotes_in_an_identifier_are_doubled() -> None:
    """No name can end its own quotation."""
    assert quote_identifier('a"; DROP TABLE b; --') == '"a""; DROP TABLE b; --"'


def test_fragments_stand_in_the_queries_that_include_them() -> None:
    """A fragment comes without its comment, any number of times, and is no query."""
    text = (
        "-- fragment: columns\n-- What is read.\nSELECT a, b\n\n"
        "-- name: first\n-- One.\n-- include: columns\nFROM x;\n\n"
        "-- name: second\n-- Two.\n-- include: columns\nFROM y;\n"
    )
    assert parse_queries(text) == [
        ("first", "-- One.\nSELECT a, b\nFROM x;"),
        ("second", "-- Two.\nSELECT a, b\nFROM y;"),
    ]


def test_a_fragment_can_include_one_above_it() -> None:
    """What two fragments share is written once too."""
    text = "-- fragment: a\nSELECT 1\n-- fragment: b\n-- include: a\nFROM x\n-- name: q\n-- include: b\nLIMIT 1;"
    assert parse_queries(text) == [("q", "SELECT 1\nFROM x\nLIMIT 1;")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("-- name: q\n-- include: absent\nFROM x;", "'q' includes the unknown fragment 'absent'"),
        ("-- fragment: f\nSELECT 1\n-- name: q\nSELECT 2;", "'f' is never included"),
        ("-- fragment: f\nSELECT 1\n-- fragment: f\nSELECT 2\n-- name: q\n-- include: f\n", "'f' is defined twice"),
        ("-- fragment: f\n-- include: g\n-- fragment: g\nSELECT 1\n-- name: q\n-- include: f\n", "unknown fragment"),
        ("-- Fragment: f\nSELECT 1\n-- name: q\nSELECT 2;", "expected '-- fragment: some_lower_case_name'"),
        ("-- name: q\n--include: f\nSELECT 2;", "expected '-- include: some_lower_case_name'"),
    ],
)
def test_fragments_that_are_wrong_are_refused(text: str, reason: str) -> None:
    """Whatever would silently be left out of a query is an error."""
    with pytest.raises(ValueError, match=reason):
        parse_queries(text)


def test_named_arguments_become_numbers() -> None:
    """Each name gets the number of its position in the list; casts and slices of arrays stay as they are."""
    lists = "-- arguments: a, b\n-- The end:\n-- arguments: c\n"
    text = f"-- name: one\n-- One.\n{lists}SELECT :b::text, :a, x[i:a], (:c)[1:2];"
    ((_, statement),) = parse_queries(text)
    assert argument_names(statement) == ("a", "b", "c")
    assert statement.endswith("SELECT $2::text, $1, x[i:a], ($3)[1:2];")


def test_without_a_list_no_name_is_touched() -> None:
    """SQLite takes parameters by name itself."""
    assert parse_queries("-- name: one\nSELECT :a;") == [("one", "SELECT :a;")]
    assert argument_names("SELECT :a;") == ()


@pytest.mark.parametrize("body", ["SELECT :a;", "SELECT :a, :b, :c;"])
def test_arguments_must_be_those_of_the_list(body: str) -> None:
    """A listed name that is not used, or a used one that is not listed, is an error."""
    with pytest.raises(ValueError, match="must list each argument once"):
        parse_queries(f"-- name: one\n-- arguments: a, b\n{body}")


def test_a_misspelt_list_of_arguments_is_refused() -> None:
    """Names are divided by a comma and a space."""
    with pytest.raises(ValueError, match="expected '-- "):
        parse_queries("-- name: one\n-- arguments: a,b\nSELECT :a, :b;")


def test_an_argument_that_is_listed_twice_is_refused() -> None:
    """Its number would be open."""
    with pytest.raises(ValueError, match="must list each argument once"):
        parse_queries("-- name: one\n-- arguments: a, a\nSELECT :a;")


def test_a_compact_statement_says_the_same() -> None:
    """Only indentation, empty ends of lines and lines of comment go; what is between quotes stays."""
    statement = "-- What it is for.\nSELECT  ' -- a ', 1 -- one\n    FROM t  \n    -- why\nWHERE a = 'x  y';"
    assert compact(statement) == "SELECT  ' -- a ', 1 -- one\nFROM t\nWHERE a = 'x  y';"


def test_no_text_in_a_statement_spans_lines() -> None:
    """`compact` may be used for every query of SQLite."""
    for name, statement in load_queries("lash.sqlite.sql").items():
        assert all(line.count("'") % 2 == 0 for line in compact(statement).splitlines()), name
