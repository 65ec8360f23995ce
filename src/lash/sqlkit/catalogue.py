"""Compares the catalogue of a live database with the one that the code needs.

The needed one is ``catalogue.json`` beside a backend's SQL. The backend reads the live one and passes plain rows; this
module does no IO. A database may have further columns, indexes and tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import msgspec

from lash.base.shapes import read_json
from lash.sqlkit.queries import package_folder


class CatalogueColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column's type, as the database spells it, and whether it refuses NULL."""

    type: str
    not_null: bool


class UniqueKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Columns whose values are unique together, among the rows that satisfy the predicate if there is one."""

    columns: tuple[str, ...]
    predicate: str | None = None


class ForeignKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Columns whose values must exist in another table."""

    columns: tuple[str, ...]
    table: str
    referenced_columns: tuple[str, ...]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table: its columns by name, and its keys. A primary key is among the unique keys."""

    columns: dict[str, CatalogueColumn]
    unique: frozenset[UniqueKey] = frozenset()
    foreign_keys: frozenset[ForeignKey] = frozenset()


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tables by name, and a digest of the statements that created them where the database keeps those.

    A live database with the same digest has these tables; one with another digest may have them too.
    """

    tables: dict[str, Table]
    digest: str | None = None


class SchemaDigest(msgspec.Struct, frozen=True):
    """The digest alone, which nearly every opening compares."""

    digest: str | None = None


ColumnRow: TypeAlias = tuple[str, str, str, bool | int]
"""Table, column, type, whether it is NOT NULL."""
UniqueRow: TypeAlias = tuple[str, str, str | None]
"""Table, the columns joined by commas, the predicate of a partial index or None."""
ForeignKeyRow: TypeAlias = tuple[str, str, str, str]
"""Table, its columns joined by commas, the table referenced, the columns referenced joined by commas."""


def load_catalogue(package: str) -> Catalogue:
    """Return the package's ``catalogue.json``, which a process reads once."""
    return _read_catalogue(package_folder(package) / "catalogue.json")


def load_digest(package: str) -> str | None:
    """Return the digest in the package's ``catalogue.json``; the tables are not read."""
    return _read_digest(package_folder(package) / "catalogue.json")


@lru_cache(maxsize=4)
def _read_digest(file: Path) -> str | None:
    return read_json(file.read_bytes(), SchemaDigest).digest


@lru_cache(maxsize=4)
def _read_catalogue(file: Path) -> Catalogue:
    return read_json(file.read_bytes(), Catalogue)


def dump_catalogue(catalogue: Catalogue) -> str:
    """Return the text of a ``catalogue.json``: one table a line, the same text for equal catalogues."""
    lines = []
    for name, table in sorted(catalogue.tables.items()):
        plain = msgspec.to_builtins(table)
        plain["unique"].sort(key=msgspec.json.encode)
        plain["foreign_keys"].sort(key=msgspec.json.encode)
        text = msgspec.json.format(msgspec.json.encode(plain, order="sorted"), indent=0).decode()
        lines.append(f'"{name}": {text}')
    digest = "" if catalogue.digest is None else f'"digest": "{catalogue.digest}", '
    return f'{{{digest}"tables": {{\n' + ",\n".join(lines) + "\n}}\n"


def group_catalogue(
    columns: Iterable[ColumnRow], unique: Iterable[UniqueRow], foreign_keys: Iterable[ForeignKeyRow]
) -> Catalogue:
    """Build a catalogue from the rows of a live one, in any order. A table exists when it has a column."""
    columns_of: dict[str, dict[str, CatalogueColumn]] = defaultdict(dict)
    unique_of: dict[str, set[UniqueKey]] = defaultdict(set)
    foreign_keys_of: dict[str, set[ForeignKey]] = defaultdict(set)
    for table, column, type_name, not_null in columns:
        columns_of[table][column] = CatalogueColumn(type=type_name, not_null=bool(not_null))
    for table, names, predicate in unique:
        unique_of[table].add(UniqueKey(columns=_split(names), predicate=predicate))
    for table, names, other, referenced in foreign_keys:
        foreign_keys_of[table].add(
            ForeignKey(columns=_split(names), table=other, referenced_columns=_split(referenced))
        )
    return Catalogue(
        tables={
            table: Table(
                columns=found, unique=frozenset(unique_of[table]), foreign_keys=frozenset(foreign_keys_of[table])
            )
            for table, found in columns_of.items()
        }
    )


def differences(needed: Catalogue, found: Catalogue) -> tuple[str, ...]:
    """Return what the found catalogue lacks or has differently, one line each and in a stable order.

    Spacing, the case of types and the order of the columns of a key are ignored.
    """
    lines: list[str] = []
    for name, table in sorted(needed.tables.items()):
        other = found.tables.get(name)
        if other is None:
            lines.append(f"table {name} is missing")
            continue
        if other == table:
            # Nearly always so, and far quicker than comparing each type without its spacing.
            continue
        lines.extend(_column_differences(name, table, other))
        lines.extend(_unique_differences(name, table, other))
        lines.extend(_foreign_key_differences(name, table, other))
    return tuple(lines)


def _column_differences(table: str, needed: Table, found: Table) -> Iterator[str]:
    for name, column in needed.columns.items():
        other = found.columns.get(name)
        if other is None:
            yield f"column {table}.{name} is missing"
            continue
        if _plain(column.type).lower() != _plain(other.type).lower():
            yield f"column {table}.{name} has type {other.type or 'none'}, expected {column.type}"
        if column.not_null != other.not_null:
            yield f"column {table}.{name} must {'refuse' if column.not_null else 'accept'} NULL"


def _unique_differences(table: str, needed: Table, found: Table) -> Iterator[str]:
    present = {_unique_identity(key) for key in found.unique}
    for key in sorted(needed.unique, key=_unique_text):
        if _unique_identity(key) not in present:
            yield f"unique index on {table} {_unique_text(key)} is missing"


def _foreign_key_differences(table: str, needed: Table, found: Table) -> Iterator[str]:
    present = {_foreign_key_identity(key) for key in found.foreign_keys}
    for key in sorted(needed.foreign_keys, key=_foreign_key_text):
        if _foreign_key_identity(key) not in present:
            yield f"foreign key on {table} {_foreign_key_text(key)} is missing"


def _unique_identity(key: UniqueKey) -> tuple[frozenset[str], str | None]:
    return frozenset(key.columns), None if key.predicate is None else _bare(key.predicate)


def _foreign_key_identity(key: ForeignKey) -> tuple[str, frozenset[tuple[str, str]]]:
    return key.table, frozenset(zip(key.columns, key.referenced_columns, strict=True))


def _unique_text(key: UniqueKey) -> str:
    columns = f"({', '.join(key.columns)})"
    return columns if key.predicate is None else f"{columns} where {_bare(key.predicate)}"


def _foreign_key_text(key: ForeignKey) -> str:
    return f"({', '.join(key.columns)}) to {key.table} ({', '.join(key.referenced_columns)})"


def _bare(predicate: str) -> str:
    """Remove spacing, quotes and outer parentheses, which databases add when they print an expression."""
    text = _plain(predicate)
    while _wrapped(text):
        text = text[1:-1].strip()
    return text


def _wrapped(text: str) -> bool:
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return index == len(text) - 1
    return False


def _plain(text: str) -> str:
    """Remove spacing, and the quotes that a server with ``quote_all_identifiers`` prints."""
    return " ".join(text.replace('"', "").split())


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(","))
