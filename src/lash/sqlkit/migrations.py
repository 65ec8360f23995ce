"""Numbered migrations, read from ``NNNN_name.sql`` files.

Numbers start at 1 without a gap, so the number of the last applied migration describes a schema completely. The
backends apply migrations, under a lock and in a transaction.

A migration that begins with ``-- additive:`` adds only what code of earlier versions does not need to know. Its number
is recorded apart from the others, so that those versions open the storage and go on working.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lash.errors import NewerSchema, PendingMigrations
from lash.sqlkit.queries import in_schema, package_folder, sql_files

_FILE_NAME = re.compile(r"(?P<number>[0-9]{4})_(?P<name>[a-z][a-z0-9_]*)\.sql")
_ADDITIVE: Final = "-- additive:"


class Migration(msgspec.Struct, frozen=True):
    """One migration. Its statement may be a script of several."""

    number: int
    name: str
    statement: str
    is_additive: bool = False
    """Whether code that does not know it can go on working."""


class Applied(NamedTuple):
    """How far a schema was migrated; 0 is an empty database."""

    last: int = 0
    """The number of the last migration."""
    required: int = 0
    """The number of the last one that is not additive: code has to know it."""


@lru_cache(maxsize=8)
def load_migrations(package: str, *, schema: str | None = None) -> tuple[Migration, ...]:
    """Return the migrations of the package that directly holds their files, in order. A process reads them once."""
    return read_migrations(package_folder(package), schema=schema)


def read_migrations(folder: Path, *, schema: str | None = None) -> tuple[Migration, ...]:
    """Return the migrations of the directory in order; raise ValueError for a misnamed file, a gap or a duplicate."""
    migrations = sorted((_read(file, schema) for file in sql_files(folder)), key=lambda migration: migration.number)
    for expected, migration in enumerate(migrations, start=1):
        if migration.number != expected:
            raise ValueError(
                f"migration {migration.number:04}_{migration.name} found, expected number {expected:04}; "
                "numbers start at 0001, each once, without a gap"
            )
    return tuple(migrations)


@lru_cache(maxsize=8)
def last_number(package: str) -> int:
    """Return the number of the package's last migration, which is the schema that this version needs."""
    return sum(file.name.endswith(".sql") for file in package_folder(package).iterdir())


def is_current(applied: Applied, last: int) -> bool:
    """Return whether a schema needs no migration up to this number, so that none of them has to be read."""
    return applied.last >= last >= applied.required


def pending(applied: Applied, migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """Return the migrations that a schema lacks, in order.

    Raises `NewerSchema` if it has one beyond the last known migration that is not additive.
    """
    if applied.required > len(migrations):
        raise NewerSchema(found=applied.last, supported=len(migrations))
    return tuple(migration for migration in migrations if migration.number > applied.last)


def pending_error(applied: int, due: Sequence[Migration]) -> PendingMigrations:
    """Return the error for ``migrate=False``."""
    return PendingMigrations(applied, tuple(f"{step.number:04}_{step.name}" for step in due))


def _read(file: Path, schema: str | None) -> Migration:
    match = _FILE_NAME.fullmatch(file.name)
    if match is None:
        raise ValueError(f"expected a name such as 0001_first_tables.sql, got {file.name!r}")
    text = file.read_text(encoding="utf-8")
    return Migration(
        number=int(match["number"]),
        name=match["name"],
        statement=in_schema(text, schema),
        is_additive=text.startswith(_ADDITIVE),
    )
