"""Write each backend's ``catalogue.json`` from its migrations; run it after adding a migration."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import msgspec

from lash.postgres.engine.database import Database
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.schema import MIGRATIONS as POSTGRES_MIGRATIONS
from lash.postgres.schema import read_catalogue as read_postgres
from lash.sqlite.schema import MIGRATIONS as SQLITE_MIGRATIONS
from lash.sqlite.schema import read_catalogue as read_sqlite
from lash.sqlite.schema import read_digest
from lash.sqlkit.catalogue import Catalogue, dump_catalogue
from lash.sqlkit.migrations import load_migrations
from lash.sqlkit.queries import load_queries
from lash.testing.postgres_server import PostgresServer

_SOURCE = Path(__file__).parent.parent / "src" / "lash"
_SCHEMA = "lash_catalogue"


def sqlite_catalogue() -> Catalogue:
    """Return the catalogue after SQLite's migrations."""
    connection = apsw.Connection(":memory:")
    for step in load_migrations(SQLITE_MIGRATIONS):
        connection.execute(step.statement)
    queries = load_queries("lash.sqlite.sql")
    return msgspec.structs.replace(read_sqlite(connection, queries), digest=read_digest(connection, queries))


async def postgres_catalogue(url: str) -> Catalogue:
    """Return the catalogue after PostgreSQL's migrations, from a temporary schema."""
    options = PostgresOptions.from_url(url, schema=_SCHEMA)
    database = await Database.open(options, queries=load_queries("lash.postgres.sql", schema=_SCHEMA))
    try:
        async with database.transaction() as transaction:
            await transaction.run("schema_create")
            for step in load_migrations(POSTGRES_MIGRATIONS, schema=_SCHEMA):
                await transaction.execute_script(step.statement)
        found = await read_postgres(database, _SCHEMA)
        async with database.transaction() as transaction:
            await transaction.execute_script("DROP SCHEMA lash_catalogue CASCADE")
    finally:
        await database.close()
    return found


def main() -> None:
    """Write both files."""
    (_SOURCE / "sqlite/sql/catalogue.json").write_text(dump_catalogue(sqlite_catalogue()), encoding="utf-8")
    with PostgresServer() as server:
        found = asyncio.run(postgres_catalogue(server.url))
    (_SOURCE / "postgres/sql/catalogue.json").write_text(dump_catalogue(found), encoding="utf-8")


if __name__ == "__main__":
    main()
