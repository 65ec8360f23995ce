"""Numbered migrations, read from ``NNNN_name.sql`` files.

Numbers start at 1 without a gap, so the number of the last applied migration describes a schema completely. The
backends apply migrations, under a lock and in a transaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from lash.errors import NewerSchema, PendingMigrations
from lash.sqlkit.queries import in_schema, package_folder, sql_files

_FILE_NAME = re.compile(r"(?P<number>[0-9]{4})_(?P<name>[a-z][a-z0-9_]*)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One migration. Its statement may be a script of several."""

    number: int
    name: str
    statement: str


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
    return len(sql_files(package_folder(package)))


def pending(applied: int, migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """Return the migrations that a schema at number ``applied`` lacks, in order; 0 is an empty database.

    Raises `NewerSchema` for a number beyond the last known migration.
    """
    if applied > len(migrations):
        raise NewerSchema(found=applied, supported=len(migrations))
    return tuple(migration for migration in migrations if migration.number > applied)


def pending_error(applied: int, due: Sequence[Migration]) -> PendingMigrations:
    """Return the error for ``migrate=False``."""
    return PendingMigrations(applied, tuple(f"{step.number:04}_{step.name}" for step in due))


def _read(file: Path, schema: str | None) -> Migration:
    match = _FILE_NAME.fullmatch(file.name)
    if match is None:
        raise ValueError(f"expected a name such as 0001_first_tables.sql, got {file.name!r}")
    statement = in_schema(file.read_text(encoding="utf-8"), schema)
    return Migration(number=int(match["number"]), name=match["name"], statement=statement)
