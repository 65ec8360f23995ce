"""Creates, migrates and checks the tables of lash in a PostgreSQL schema."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.errors import SchemaMismatch
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.node import fill_kinds
from lash.sqlkit.catalogue import Catalogue, differences, group_catalogue, load_catalogue
from lash.sqlkit.migrations import Migration, load_migrations, pending, pending_error
from lash.sqlkit.queries import quote_identifier
from lash.sqlkit.rows import Flag, Number

MIGRATIONS: Final = "lash.postgres.sql.migrations"


class _ColumnAnswer(msgspec.Struct, frozen=True, array_like=True):
    table: str
    column: str
    type: str
    not_null: bool


class _KeyAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A unique key, or a foreign key with what it refers to."""

    table: str
    columns: str
    predicate: str | None
    referenced_table: str | None
    referenced_columns: str | None


async def prepare_schema(database: Database, *, migrate: bool) -> None:
    """Bring the schema to that of this version, or raise the reason why it cannot be used."""
    schema = database.options.schema
    due = await _due(database, schema)
    if due and not migrate:
        raise pending_error(due[0].number - 1, due)
    if due:
        await _migrate(database, schema)
    lines = differences(load_catalogue("lash.postgres.sql"), await read_catalogue(database, schema))
    if lines:
        raise SchemaMismatch(
            f"the tables in schema {schema!r} differ from what this version of lash needs: " + "; ".join(lines)
        )


async def read_catalogue(database: Database, schema: str) -> Catalogue:
    """Return the catalogue of lash's tables in this schema."""
    columns = await database.read_all(_ColumnAnswer, "schema_columns", schema)
    keys = await database.read_all(_KeyAnswer, "schema_keys", schema)
    return group_catalogue(
        [(row.table, row.column, row.type, row.not_null) for row in columns],
        [(row.table, row.columns, row.predicate) for row in keys if row.referenced_table is None],
        [
            (row.table, row.columns, row.referenced_table, row.referenced_columns)
            for row in keys
            if row.referenced_table is not None and row.referenced_columns is not None
        ],
    )


async def _due(source: Database | Transaction, schema: str) -> tuple[Migration, ...]:
    read = source.read_one if isinstance(source, Database) else source.one
    table = f"{quote_identifier(schema)}.lash_migrations"
    exists = await read(Flag, "schema_has_migrations", table)
    applied = await read(Number, "schema_version") if exists is not None and exists.value else None
    return pending(0 if applied is None else applied.number, load_migrations(MIGRATIONS, schema=schema))


async def _migrate(database: Database, schema: str) -> None:
    """Apply pending migrations. They are read again under the lock: another process may have applied them."""
    async with database.transaction() as transaction:
        await transaction.run("schema_lock", schema)
        exists = await transaction.one(Flag, "schema_exists", schema)
        if exists is None or not exists.value:
            await transaction.run("schema_create")
        for step in await _due(transaction, schema):
            await transaction.execute_script(step.statement)
            if step.name == "node_kinds":
                await fill_kinds(transaction)
            await transaction.run("schema_record_migration", step.number, step.name)
