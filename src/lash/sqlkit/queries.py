"""Named SQL, read from ``.sql`` files.

A file holds the queries of one noun::

    -- name: session_head
    -- The head of one session.
    SELECT …;

The first line names the query, the comment below says what it is for, the rest is the statement in the
database's own parameter style. ``:"schema"`` stands for the quoted schema, as it does in psql.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

_NAME = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)[ \t]*$", re.MULTILINE)
_NAME_LIKE = re.compile(r"^[ \t]*--[ \t]*name[ \t]*:.*$", re.MULTILINE | re.IGNORECASE)
_SCHEMA = ':"schema"'


def load_queries(package: str, *, schema: str | None = None) -> Mapping[str, str]:
    """Return every named query of the package's ``.sql`` files, by name."""
    queries: dict[str, str] = {}
    for file in sql_files(package_folder(package)):
        for name, statement in parse_queries(file.read_text(encoding="utf-8")):
            if name in queries:
                raise ValueError(f"query {name!r} is defined twice; the second time in {file.name}")
            queries[name] = in_schema(statement, schema)
    return MappingProxyType(queries)


def package_folder(package: str) -> Path:
    """Return the folder of a package; `importlib.resources` would do as well, and takes longer to load than all SQL."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{package!r} is no package")
    return Path(spec.submodule_search_locations[0])


def sql_files(folder: Path) -> list[Path]:
    """Return the ``.sql`` files directly below the folder, by name."""
    files = (entry for entry in folder.iterdir() if entry.is_file() and entry.name.endswith(".sql"))
    return sorted(files, key=lambda entry: entry.name)


def parse_queries(text: str) -> list[tuple[str, str]]:
    """Split the text of one file into (name, statement) pairs, in order.

    A line that only resembles a name is a ValueError: it would silently become part of the query before it.
    """
    marks = list(_NAME.finditer(text))
    _refuse_misspelt_names(text, {mark.start() for mark in marks})
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [(mark["name"], text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]


def _refuse_misspelt_names(text: str, starts: set[int]) -> None:
    for line in _NAME_LIKE.finditer(text):
        if line.start() not in starts:
            raise ValueError(f"{line[0].strip()!r} must read '-- name: some_lower_case_name'")


def in_schema(statement: str, schema: str | None) -> str:
    """Put the quoted schema in the place that the statement leaves for it."""
    if schema is None:
        return statement
    return statement.replace(_SCHEMA, quote_identifier(schema))


def quote_identifier(name: str) -> str:
    """Quote an identifier the way SQL wants it."""
    return '"' + name.replace('"', '""') + '"'
