"""Named SQL queries, read from ``.sql`` files.

A file holds the queries of one noun::

    -- name: session_head
    -- The head of one session.
    SELECT …;

The first line names the query, the comment below says what it does, the rest is the statement in the
database's own parameter style. ``:"schema"`` is replaced by the quoted schema, as in psql.

Text that several queries of a file share is written once, as a fragment, and included. A fragment can include one that
is above it::

    -- fragment: session_columns
    -- The columns of a session.
    SELECT s.session_key, s.revision

    -- name: session_head
    -- The head of one session.
    -- include: session_columns
    FROM …;

A statement for a database with numbered parameters may name them. It lists the names, on any number of lines, and the
loader replaces them by ``$1``, ``$2`` …::

    -- name: session_rename
    -- Gives one session another name.
    -- arguments: session_id, new_name
    UPDATE sessions SET name = :new_name::text WHERE session_id = :session_id::text;
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

_MARK = re.compile(r"\n-- (?P<kind>name|fragment): (?P<name>[a-z][a-z0-9_]*)[ \t]*(?![^\n])")
"""A mark on a line after the first one. Patterns that begin with a constant are found five times as fast."""
_NAME = re.compile(r"\n-- name: ([a-z][a-z0-9_]*)[ \t]*(?![^\n])")
_INCLUDE = re.compile(r"^-- include: (?P<name>[a-z][a-z0-9_]*)[ \t]*$", re.MULTILINE)
_ARGUMENTS = re.compile(r"^-- arguments: (?P<names>[a-z][a-z0-9_]*(?:, [a-z][a-z0-9_]*)*)[ \t]*$", re.MULTILINE)
_ARGUMENT = re.compile(r"(?<![:\w]):(?P<name>[a-z][a-z0-9_]*)")
"""A named parameter; not a cast (two colons), nor a slice of an array (a word before the colon)."""
_MARK_LIKE = re.compile(r"--[ \t]*(?P<kind>name|fragment|include|arguments)[ \t]*:.*$", re.MULTILINE | re.IGNORECASE)
_SCHEMA = ':"schema"'


def load_queries(package: str, *, schema: str | None = None) -> Mapping[str, str]:
    """Return every named query of the package's ``.sql`` files, by name. A package is read once per process.

    A file that is malformed raises ValueError when one of its queries is first used.
    """
    return _queries_below(package_folder(package), schema)


class _Queries(Mapping[str, str]):
    """Named queries. A file is parsed when the first of its queries is used: a program uses few of the files.

    All files are read at once, so that an update of the package in a running process does not mix two versions. Threads
    that parse a file at the same time get the same statements.
    """

    def __init__(self, files: Iterable[tuple[str, str]], schema: str | None) -> None:
        """Find the names in the files, each given with its text; raise ValueError for a name that comes twice."""
        self._schema = schema
        self._statements: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for file, text in files:
            for name in _NAME.findall(text):
                if name in self._texts:
                    raise ValueError(f"query {name!r} is defined twice; the second time in {file}")
                self._texts[name] = text

    def __getitem__(self, name: str) -> str:
        statement = self._statements.get(name)
        if statement is None:
            parsed = parse_queries(self._texts[name])
            self._statements |= {each: in_schema(found, self._schema) for each, found in parsed}
            statement = self._statements[name]
        return statement

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


# A process may open many storages: each test does, and each tenant may.
@lru_cache(maxsize=8)
def _queries_below(folder: Path, schema: str | None) -> Mapping[str, str]:
    return _Queries(((file.name, "\n" + file.read_text(encoding="utf-8")) for file in query_files(folder)), schema)


def package_folder(package: str) -> Path:
    """Return the directory of a package. Importing `importlib.resources` would take longer than reading all SQL."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"expected a package, got {package!r}")
    return Path(spec.submodule_search_locations[0])


def query_files(folder: Path) -> list[Path]:
    """Return the query files below a directory, subdirectories of nouns included and migrations excluded."""
    nouns = (entry for entry in folder.iterdir() if entry.is_dir() and entry.name != "migrations")
    return [*sql_files(folder), *(file for noun in sorted(nouns) for file in sql_files(noun))]


def sql_files(folder: Path) -> list[Path]:
    """Return the ``.sql`` files in the directory, by name."""
    files = (entry for entry in folder.iterdir() if entry.is_file() and entry.name.endswith(".sql"))
    return sorted(files, key=lambda entry: entry.name)


def parse_queries(text: str) -> list[tuple[str, str]]:
    """Split the text of one file into (name, statement) pairs, in order, with fragments included.

    Raises ValueError for a line that only resembles a mark, because it would silently become part of the query before
    it, and for a fragment that is defined twice, is never included, or does not exist above the place that includes it.
    """
    text = f"\n{text}"
    marks = list(_MARK.finditer(text))
    _refuse_misspelt_marks(text, {mark.start() + 1 for mark in marks})
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    parts = [
        (mark["kind"], mark["name"], text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)
    ]
    fragments = _fragments([(name, body) for kind, name, body in parts if kind == "fragment"])
    _refuse_unused_fragments(fragments, text)
    whole = [(name, _with_fragments(name, body, fragments)) for kind, name, body in parts if kind == "name"]
    return [(name, _with_numbers(name, statement)) for name, statement in whole]


def compact(statement: str) -> str:
    """Return a statement without indentation and lines of comment. A text in it must not span lines."""
    lines = map(str.strip, statement.splitlines())
    return "\n".join([line for line in lines if not line.startswith("--")])


def argument_names(statement: str) -> tuple[str, ...]:
    """Return the parameter names that a statement lists, in order; empty if it lists none."""
    if "-- arguments:" not in statement:
        return ()
    lines = (mark["names"] for mark in _ARGUMENTS.finditer(statement))
    return tuple(name for line in lines for name in line.split(", "))


def _fragments(parts: list[tuple[str, str]]) -> dict[str, str]:
    fragments: dict[str, str] = {}
    for name, body in parts:
        if name in fragments:
            raise ValueError(f"fragment {name!r} is defined twice")
        whole = _with_fragments(name, body, fragments)
        # The comment of a fragment does not describe the query that includes it.
        fragments[name] = "\n".join(line for line in whole.splitlines() if not line.startswith("--"))
    return fragments


def _refuse_unused_fragments(fragments: Mapping[str, str], text: str) -> None:
    unused = fragments and fragments.keys() - {mark["name"] for mark in _INCLUDE.finditer(text)}
    if unused:
        raise ValueError(f"fragment {min(unused)!r} is never included")


def _with_fragments(name: str, body: str, fragments: Mapping[str, str]) -> str:
    def text_of(mark: re.Match[str]) -> str:
        if mark["name"] not in fragments:
            raise ValueError(f"{name!r} includes the unknown fragment {mark['name']!r}")
        return fragments[mark["name"]]

    return _INCLUDE.sub(text_of, body) if "-- include:" in body else body


def _with_numbers(query: str, statement: str) -> str:
    """Replace named parameters by numbers."""
    names = argument_names(statement)
    if not names:
        return statement
    used = {mark["name"] for mark in _ARGUMENT.finditer(statement)}
    wrong = used ^ set(names)
    if wrong or len(names) != len(set(names)):
        raise ValueError(f"query {query!r} must list each argument once and use it; see {sorted(wrong) or names}")
    return _ARGUMENT.sub(lambda mark: f"${names.index(mark['name']) + 1}", statement)


def _refuse_misspelt_marks(text: str, starts: set[int]) -> None:
    for line in _MARK_LIKE.finditer(text):
        begin = text.rfind("\n", 0, line.start()) + 1
        if text[begin : line.start()].strip(" \t") or line.start() in starts:
            continue
        if not any(pattern.match(text, begin) for pattern in (_INCLUDE, _ARGUMENTS)):
            raise ValueError(f"expected '-- {line['kind'].lower()}: some_lower_case_name', got {line[0].strip()!r}")


def in_schema(statement: str, schema: str | None) -> str:
    """Replace ``:"schema"`` by the quoted schema."""
    if schema is None:
        return statement
    return statement.replace(_SCHEMA, quote_identifier(schema))


def quote_identifier(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
