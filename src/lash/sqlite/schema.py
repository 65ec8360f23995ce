"""Creates, migrates and checks the tables of lash in a SQLite file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, cast

import apsw

from lash.base.clock import Clock
from lash.errors import CorruptData, ForeignDatabase, SchemaMismatch
from lash.plan.session.relation import INDEXED_BY, PAGE, RelationRow, relation_damage
from lash.sqlite.engine.errors import translate
from lash.sqlite.rows.session.node import fill_kinds
from lash.sqlkit.catalogue import (
    Catalogue,
    ColumnRow,
    ForeignKeyRow,
    UniqueRow,
    differences,
    group_catalogue,
    load_catalogue,
    load_digest,
)
from lash.sqlkit.migrations import Applied, Migration, is_current, last_number, load_migrations, pending, pending_error

APPLICATION_ID: Final = 0x6C617368  # "lash"
MIGRATIONS: Final = "lash.sqlite.sql.migrations"


class SchemaKeeper:
    """Brings a database to the schema of this version, or raises the reason why it cannot."""

    def __init__(self, queries: Mapping[str, str], clock: Clock, *, migrate: bool) -> None:
        self._queries = queries
        self._clock = clock
        self._migrate = migrate

    def prepare(self, connection: apsw.Connection, new: bool) -> None:  # noqa: FBT001 - the engine's signature
        """Migrate if allowed, then compare the catalogue with the one that the code needs."""
        try:
            # Another program may have created tables in a new file meanwhile.
            if not new or connection.execute("SELECT count(*) FROM sqlite_schema").get:
                _refuse_foreign(connection)
            if self._due(connection):
                self._migrate_under_lock(connection)
            self._verify(connection)
        except apsw.Error as error:
            raise translate(error, "preparing the tables") from error

    def _due(self, connection: apsw.Connection) -> tuple[Migration, ...]:
        applied = read_applied(connection, self._queries)
        if is_current(applied, last_number(MIGRATIONS)):
            return ()
        due = pending(applied, load_migrations(MIGRATIONS))
        if due and not self._migrate:
            raise pending_error(applied.last, due)
        return due

    def _migrate_under_lock(self, connection: apsw.Connection) -> None:
        """Apply pending migrations. They are read again under the lock: another process may have applied them."""
        connection.execute("BEGIN IMMEDIATE")
        step: Migration | None = None
        try:
            for step in self._due(connection):
                connection.execute(step.statement)
                if step.name == "node_kinds":
                    fill_kinds(connection, self._queries)
                record = "schema_record_addition" if step.is_additive else "schema_record_migration"
                connection.execute(
                    self._queries[record],
                    {"number": step.number, "name": step.name, "now_ms": self._clock.now_ms()},
                )
            connection.pragma("application_id", APPLICATION_ID)
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            damage = self._damage(connection, step) if isinstance(error, apsw.SQLError) else None
            if damage is not None:
                raise damage from error
            raise

    def _damage(self, connection: apsw.Connection, step: Migration | None) -> CorruptData | None:
        """Return which row stopped a migration; None if it is not known."""
        if step is None or step.name != INDEXED_BY:
            return None
        after = 0
        while rows := self._relations(connection, after):
            if (found := relation_damage(step.number, rows)) is not None:
                return found
            after = rows[-1].session_key
        return None

    def _relations(self, connection: apsw.Connection, after: int) -> list[RelationRow]:
        given = {"after": after, "limit": PAGE}
        found = connection.execute(self._queries["schema_relations"], given).fetchall()
        return [RelationRow(*cast("tuple[int, str, str]", row)) for row in found]

    def _verify(self, connection: apsw.Connection) -> None:
        # Reading every column and key takes some 25 ms; the statements that created them take one.
        if read_digest(connection, self._queries) == load_digest("lash.sqlite.sql"):
            return
        lines = differences(load_catalogue("lash.sqlite.sql"), read_catalogue(connection, self._queries))
        if lines:
            raise SchemaMismatch("the tables differ from what this version of lash needs: " + "; ".join(lines))


def _refuse_foreign(connection: apsw.Connection) -> None:
    application_id = connection.pragma("application_id")
    if application_id != APPLICATION_ID:
        raise ForeignDatabase(
            f"{connection.filename or 'the database'} belongs to another program "
            f"(application id {application_id:#x}); name a file that is new or was created by lash"
        )


def read_applied(connection: apsw.Connection, queries: Mapping[str, str]) -> Applied:
    """Return how far a database was migrated."""
    has_migrations, has_additions = cast("tuple[int, int]", connection.execute(queries["schema_has_migrations"]).get)
    if not has_migrations:
        return Applied()
    if not has_additions:
        number = cast("int", connection.execute(queries["schema_version"]).get)
        return Applied(number, number)
    return Applied(*cast("tuple[int, int]", connection.execute(queries["schema_applied"]).get))


def read_catalogue(connection: apsw.Connection, queries: Mapping[str, str]) -> Catalogue:
    """Return the catalogue of lash's tables in this database."""
    return group_catalogue(
        cast("list[ColumnRow]", connection.execute(queries["schema_columns"]).fetchall()),
        cast("list[UniqueRow]", connection.execute(queries["schema_unique_keys"]).fetchall()),
        cast("list[ForeignKeyRow]", connection.execute(queries["schema_foreign_keys"]).fetchall()),
    )


def read_digest(connection: apsw.Connection, queries: Mapping[str, str]) -> str:
    """Return a digest of the statements that created lash's tables and indexes in this database."""
    digest = hashlib.sha256()
    for (statement,) in connection.execute(queries["schema_statements"]):
        digest.update(cast("str", statement).encode())
        digest.update(b"\0")
    return digest.hexdigest()
