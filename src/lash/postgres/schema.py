"""Creates, migrates and checks the tables of lash in a PostgreSQL schema."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.errors import CorruptData, SchemaMismatch
from lash.plan.session.relation import INDEXED_BY, PAGE, RelationRow, relation_damage
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.node import fill_kinds
from lash.sqlkit.catalogue import Catalogue, differences, group_catalogue, load_catalogue
from lash.sqlkit.migrations import Applied, Migration, is_current, last_number, load_migrations, pending, pending_error
from lash.sqlkit.queries import quote_identifier
from lash.sqlkit.rows import Flag, Number

MIGRATIONS: Final = "lash.postgres.sql.migrations"


class _TablesAnswer(msgspec.Struct, frozen=True, array_like=True):
    has_migrations: bool
    has_additions: bool


class _AppliedAnswer(msgspec.Struct, frozen=True, array_like=True):
    last: int
    required: int


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
    applied = await _applied(source, schema)
    if is_current(applied, last_number(MIGRATIONS)):
        return ()
    return pending(applied, load_migrations(MIGRATIONS, schema=schema))


async def _applied(source: Database | Transaction, schema: str) -> Applied:
    read = source.read_one if isinstance(source, Database) else source.one
    names = (f"{quote_identifier(schema)}.{table}" for table in ("lash_migrations", "lashadditions"))
    tables = await read(_TablesAnswer, "schema_has_migrations", *names)
    if tables is None or not tables.has_migrations:
        return Applied()
    if not tables.has_additions:
        number = await read(Number, "schema_version")
        return Applied() if number is None else Applied(number.number, number.number)
    found = await read(_AppliedAnswer, "schema_applied")
    return Applied() if found is None else Applied(found.last, found.required)


async def _migrate(database: Database, schema: str) -> None:
    """Apply pending migrations. They are read again under the lock: another process may have applied them."""
    current: Migration | None = None
    try:
        async with database.transaction() as transaction:
            await transaction.run("schema_lock", schema)
            exists = await transaction.one(Flag, "schema_exists", schema)
            if exists is None or not exists.value:
                await transaction.run("schema_create")
            for current in await _due(transaction, schema):
                await _apply(transaction, current)
    except CorruptData as error:
        damage = await _damage(database, current)
        if damage is None:
            raise
        raise damage from error


async def _apply(transaction: Transaction, step: Migration) -> None:
    await transaction.execute_script(step.statement)
    if step.name == "node_kinds":
        await fill_kinds(transaction)
    record = "schema_record_addition" if step.is_additive else "schema_record_migration"
    await transaction.run(record, step.number, step.name)


async def _damage(database: Database, step: Migration | None) -> CorruptData | None:
    """Return which row stopped a migration; None if it is not known."""
    if step is None or step.name != INDEXED_BY:
        return None
    after = 0
    while rows := await database.read_all(RelationRow, "schema_relations", after, PAGE):
        if (found := relation_damage(step.number, rows)) is not None:
            return found
        after = rows[-1].session_key
    return None
