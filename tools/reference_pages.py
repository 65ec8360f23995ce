"""Pages of the documentation that are generated from the source: errors, the schema, values, names, decisions.

They are committed, so that links to them work in a checkout; `tools.write_reference_pages` writes them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from lash import errors
from lash.sqlkit.catalogue import Catalogue
from tools.repository import BACKENDS, Repository
from tools.value_pages import names_page, values_page

_CREATE_TABLE = re.compile(r'CREATE (?:UNLOGGED )?TABLE (?::"schema"\.)?(?P<table>\w+)')
_ALTER_TABLE = re.compile(r'ALTER TABLE (?::"schema"\.)?(?P<table>\w+)')
_COLUMN = re.compile(r"    (?P<column>[a-z]\w*) ")
_ADD_COLUMN = re.compile(r"ADD COLUMN (?P<column>\w+)")
_CREATE_INDEX = re.compile(r'CREATE (?P<unique>UNIQUE )?INDEX (?P<index>\w+)\s+ON (?::"schema"\.)?(?P<table>\w+)')

_ABOUT_ERRORS: Final = """\
Every error of lash is a `lash.LashError`; its `error.advice`, a `lash.Advice`, says what to do.
All classes are in `lash.errors`.
Exceptions of a database driver never escape; the original is kept as `__cause__`."""
_ABOUT_SCHEMA: Final = """\
One database holds everything. Both backends have the same tables, except those marked below, and the same
migration numbers; opening a storage checks its columns, unique indexes and foreign keys against this list.
Times are whole milliseconds since 1970 in UTC, `body` and similar columns hold JSON.
On PostgreSQL the tables lie in the schema that the URL names (`?schema=`)."""
_ADVICE: Final = {
    errors.Advice.RETRY: "**Retry**: the same call may succeed a little later.",
    errors.Advice.DECIDE_AGAIN: "**Decide again**: load the current state first; the same call would fail again.",
    errors.Advice.STOP: "**Stop** this piece of work: a person must act, or another worker owns it now.",
    errors.Advice.FIX: "**Fix** the calling code or its configuration.",
}


class TableNotes(msgspec.Struct):
    """Comments of the migrations about one table."""

    migration: str
    purpose: list[str]
    later: list[str] = msgspec.field(default_factory=list)
    indexes: dict[str, list[str]] = msgspec.field(default_factory=dict)
    columns: list[str] = msgspec.field(default_factory=list)


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """Return the path below ``docs/`` and the Markdown of every generated page."""
    yield "reference/errors.md", errors_page()
    yield "reference/schema.md", schema_page(root)
    yield "reference/values.md", values_page()
    yield "reference/names.md", names_page()
    yield "decisions.md", decisions_page(root)


def errors_page() -> str:
    """Return every error with its meaning and its advice, in the order of the tree."""
    tree = inspect.cleandoc(errors.__doc__ or "").partition("::\n\n")[2].partition("\n\n``")[0]
    parts = [
        "# Errors",
        _ABOUT_ERRORS,
        f"```text\n{inspect.cleandoc(tree)}\n```",
        "## Advice",
        "| advice | what to do |\n|---|---|\n"
        + "\n".join(f"| `{advice.value}` | {text} |" for advice, text in _ADVICE.items()),
    ]
    parts += [_error(kind) for kind in _tree(errors.LashError)]
    return "\n\n".join(parts) + "\n"


def schema_page(root: Path) -> str:
    """Return every table with its purpose, its columns on both backends, and what its indexes are for."""
    repository = Repository(root)
    notes = {backend: table_notes(repository, backend) for backend in BACKENDS}
    catalogues = {backend: _catalogue(repository, backend) for backend in BACKENDS}
    # The index of words is not in the catalogues.
    names = list(
        dict.fromkeys(name for backend in BACKENDS for name in notes[backend] if name in catalogues[backend].tables)
    )
    parts = [
        "# Schema",
        _ABOUT_SCHEMA,
        "The tables are not an interface: read them for diagnosis, and let lash do the writing.",
    ]
    for name in names:
        found = {backend: notes[backend][name] for backend in BACKENDS if name in notes[backend]}
        parts += _table(name, found, catalogues)
    return "\n\n".join(parts) + "\n"


def decisions_page(root: Path) -> str:
    """Return the list of decision records, with the status of the ones that are no longer current."""
    lines = ["# Decisions", "", "What was decided, why, and what was considered instead.", ""]
    for path in Repository(root).files("docs/adr", suffixes=(".md",)):
        text = path.read_text(encoding="utf-8")
        number, _, shown = text.partition("\n")[0].lstrip("# ").partition(": ")
        status = text.partition("\nStatus: ")[2].partition("\n")[0].replace("](0", "](adr/0").replace("](../", "](")
        note = "" if status == "Accepted" else f". *{status}*"
        lines.append(f"- [{number}](adr/{path.name}) {shown}{note}")
    return "\n".join(lines) + "\n"


def table_notes(repository: Repository, backend: str) -> dict[str, TableNotes]:
    """Return the comments of a backend's migrations, by table in the order of creation."""
    notes: dict[str, TableNotes] = {}
    for migration in repository.migrations(backend):
        name = f"{migration.number:04}_{migration.name}"
        comment: list[str] = []
        reading = False
        table = ""
        for line in migration.statement.splitlines():
            if line.startswith("--"):
                comment = [*(comment if reading else []), line.removeprefix("--").strip()]
                reading = True
                continue
            reading = False
            if not line.strip():
                comment = []
            table = _note(notes, name, line, comment) or table
            match = _ADD_COLUMN.search(line) or _COLUMN.match(line)
            if match and table:
                notes[table].columns.append(match["column"])
    return notes


def _note(notes: dict[str, TableNotes], migration: str, line: str, comment: list[str]) -> str | None:
    """Note what a line is about, and return the table that it creates or alters."""
    if match := _CREATE_TABLE.match(line):
        notes[match["table"]] = TableNotes(migration, comment)
        return match["table"]
    if match := _CREATE_INDEX.match(line):
        notes[match["table"]].indexes[match["index"]] = comment
    elif match := _ALTER_TABLE.match(line):
        text = f"{migration}: {' '.join(comment)}"
        if comment and text not in notes[match["table"]].later:
            notes[match["table"]].later.append(text)
        return match["table"]
    return None


def _tree(kind: type[errors.LashError]) -> Iterator[type[errors.LashError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child)


def _error(kind: type[errors.LashError]) -> str:
    above = kind.__mro__[1].__name__ if kind is not errors.LashError else None
    lines = [f"## {kind.__name__}", inspect.cleandoc(kind.__doc__ or "")]
    if above is not None:
        lines.append(f"A kind of [`{above}`](#{above.lower()}).")
    lines.append(_ADVICE[kind.advice])
    if "__init__" in vars(kind):
        fields = [name for name in inspect.signature(kind).parameters if name != "message"]
        lines += ["Fields: " + ", ".join(f"`{name}`" for name in fields) + "."] if fields else []
    return "\n\n".join(lines)


def _table(name: str, found: dict[str, TableNotes], catalogues: dict[str, Catalogue]) -> list[str]:
    first = next(iter(found.values()))
    parts = [f"## {name}", " ".join(first.purpose), f"Since migration `{first.migration}`."]
    if len(found) < len(BACKENDS):
        parts.append(f"Only on {_SHOWN[next(iter(found))]}.")
    parts += [f"- `{text.partition(':')[0]}`{text.partition(':')[1]}{text.partition(':')[2]}" for text in first.later]
    rows = ["| column | " + " | ".join(_SHOWN[backend] for backend in found) + " |", "|---" * (len(found) + 1) + "|"]
    columns = {backend: catalogues[backend].tables[name].columns for backend in found}
    order = [column for column in first.columns if column in columns[next(iter(found))]]
    for column in dict.fromkeys([*order, *(column for each in columns.values() for column in each)]):
        cells = []
        for backend in found:
            known = columns[backend].get(column)
            cells.append("" if known is None else f"{known.type}{'' if known.not_null else ', may be null'}")
        rows.append(f"| `{column}` | " + " | ".join(cells) + " |")
    parts.append("\n".join(rows))
    indexes = {index: text for notes in found.values() for index, text in notes.indexes.items()}
    if indexes:
        parts.append("\n".join(f"- `{index}`: {' '.join(text)}".rstrip(": ") for index, text in indexes.items()))
    return parts


_SHOWN: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def _catalogue(repository: Repository, backend: str) -> Catalogue:
    return msgspec.json.decode((repository.sql_folder(backend) / "catalogue.json").read_bytes(), type=Catalogue)
