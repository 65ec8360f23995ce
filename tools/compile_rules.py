"""Rules that use a real database: every query compiles on the schema that the migrations make."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator

import apsw
import apsw.ext
import asyncpg

from lash.sqlkit.migrations import Migration
from lash.sqlkit.queries import in_schema, quote_identifier
from lash.testing.postgres_server import PostgresServer
from tools.repository import Finding, Query, Repository


def sqlite_compiles(repository: Repository) -> Iterator[Finding]:
    """The migrations apply to an empty SQLite database, and every query compiles on the result."""
    connection = apsw.Connection(":memory:")
    try:
        # Otherwise a wrong column in double quotes would pass as a string.
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
        for migration in _migrations(repository, "sqlite"):
            try:
                connection.execute(migration.statement)
            except apsw.Error as error:
                yield _migration_finding(repository, "sqlite", migration, error)
                return
        for query in repository.queries("sqlite"):
            yield from _compile_on_sqlite(connection, query)
    finally:
        connection.close()


def postgres_compiles(repository: Repository) -> Iterator[Finding]:
    """The migrations apply to an empty PostgreSQL schema, and every query can be prepared on the result."""
    if repository.queries("postgres") or _migrations(repository, "postgres"):
        with PostgresServer() as server:
            yield from asyncio.run(postgres_findings(repository, server.url))


async def postgres_findings(repository: Repository, url: str) -> list[Finding]:
    """Check as `postgres_compiles` does, on the server at the URL, in a schema that is dropped afterwards."""
    schema = f"lash_check_{secrets.token_hex(8)}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE SCHEMA {quote_identifier(schema)}")
        try:
            return await _compile_on_postgres(connection, repository, schema)
        finally:
            await connection.execute(f"DROP SCHEMA {quote_identifier(schema)} CASCADE")
    finally:
        await connection.close()


def _compile_on_sqlite(connection: apsw.Connection, query: Query) -> Iterator[Finding]:
    try:
        details = apsw.ext.query_info(connection, query.statement)
        if details.query_remaining is not None:
            yield query.finding("holds more than one statement")
        elif None in details.bindings_names:
            yield query.finding("has a parameter without a name")
        else:
            names = [name for name in details.bindings_names if name is not None]
            connection.execute("EXPLAIN " + query.statement, dict.fromkeys(names))
    except apsw.Error as error:
        yield query.finding(f"does not compile: {error}")


async def _compile_on_postgres(
    connection: asyncpg.Connection[asyncpg.Record], repository: Repository, schema: str
) -> list[Finding]:
    for migration in _migrations(repository, "postgres"):
        try:
            await connection.execute(in_schema(migration.statement, schema))
        except asyncpg.PostgresError as error:
            return [_migration_finding(repository, "postgres", migration, error)]
    findings: list[Finding] = []
    for query in repository.queries("postgres"):
        try:
            await connection.prepare(in_schema(query.statement, schema))
        except asyncpg.PostgresError as error:
            findings.append(query.finding(f"does not compile: {error}"))
    return findings


def _migrations(repository: Repository, backend: str) -> tuple[Migration, ...]:
    """The migrations, or none if `sql_rules.sql_is_well_formed` has findings about them."""
    try:
        return repository.migrations(backend)
    except ValueError:
        return ()


def _migration_finding(repository: Repository, backend: str, migration: Migration, error: Exception) -> Finding:
    directory = repository.relative(repository.sql_folder(backend) / "migrations")
    return Finding(f"{directory}/{migration.number:04}_{migration.name}.sql", 0, f"does not apply: {error}")
