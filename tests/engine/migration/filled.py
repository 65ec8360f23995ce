"""Storages of earlier schemas with rows in every table.

The rows are in ``rows/NNNN_name.json``, in the file of the migration that created their table. They are what the code
of schema 37 wrote, and they are not written again: the test that reads them is about data that is there already.
From schema 40 on a start and an end are in the row of their process.

A storage of schema N gets the rows of all tables that it has, with the columns that it has. ``_since`` and ``_until``
bound the schemas in which the code wrote a row in that way. Where a migration gave a table another shape, its file has
the rows of that table again, and they replace the earlier ones. Bytes are hexadecimal, as PostgreSQL writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import apsw
import asyncpg

from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import Migration, load_migrations
from tests.raw import raw

Row: TypeAlias = Mapping[str, str | int]
Rows: TypeAlias = Mapping[str, list[Row]]

ROWS: Final = Path(__file__).with_name("rows")
WRITTEN_BY_MIGRATIONS: Final = frozenset({"lash_migrations", "lash_process_change_epoch"})
"""Tables whose only rows are written by migrations."""
_BYTES: Final = "\\x"
_SQLITE_COLUMNS: Final = (
    "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
    "WHERE t.type = 'table' AND t.name GLOB 'lash_*'"
)
_POSTGRES_COLUMNS: Final = (
    "SELECT c.table_name::text, c.column_name::text FROM information_schema.columns AS c "
    "JOIN pg_tables AS t ON t.schemaname = c.table_schema AND t.tablename = c.table_name "
    "WHERE c.table_schema = current_schema() AND c.table_name LIKE 'lash\\_%'"
)
_POSTGRES_INSERT: Final = (
    "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE "
    "SELECT {columns} FROM json_populate_recordset(NULL::{table}, $1::json)"
)
_POSTGRES_SEQUENCES: Final = (
    "SELECT table_name::text, column_name::text FROM information_schema.columns "
    "WHERE table_schema = current_schema() AND is_identity = 'YES'"
)
_POSTGRES_SETVAL: Final = "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table}"


@cache
def _files() -> tuple[tuple[int, Rows], ...]:
    """Return the number of each file and its rows by table, in order."""
    return tuple((int(file.name[:4]), json.loads(file.read_text())) for file in sorted(ROWS.glob("*.json")))


def rows_of(schema: int) -> dict[str, list[Row]]:
    """Return the rows that the code of a schema wrote, by table, each after the tables that it refers to."""
    found: dict[str, list[Row]] = {}
    for number, tables in _files():
        if number <= schema:
            for table, rows in tables.items():
                # A table of another shape refers to other tables: it takes the later place.
                found.pop(table, None)
                found[table] = [_plain(row) for row in rows if _is_of(row, schema)]
    return found


def _is_of(row: Row, schema: int) -> bool:
    return int(row.get("_since", 0)) <= schema <= int(row.get("_until", schema))


def _plain(row: Row) -> Row:
    return {name: value for name, value in row.items() if not name.startswith("_")}


async def fill(url: str, schema: int) -> dict[str, int]:
    """Create a storage of an earlier schema, fill it, and return how many rows each of its tables has."""
    if url.startswith("sqlite"):
        _fill_sqlite(url, schema)
    else:
        await _fill_postgres(url, schema)
    return await count_rows(url)


def _records(steps: tuple[Migration, ...]) -> list[str]:
    tables = {True: "lashadditions", False: "lash_migrations"}
    return [f"INSERT INTO {tables[step.is_additive]} VALUES ({step.number}, '{step.name}', 1)" for step in steps]


def _fill_sqlite(url: str, schema: int) -> None:
    steps = load_migrations("lash.sqlite.sql.migrations")[:schema]
    connection = apsw.Connection(urlsplit(url).path.removeprefix("/"))
    try:
        connection.execute("BEGIN")
        for statement in (*(step.statement for step in steps), *_records(steps)):
            connection.execute(statement).fetchall()
        columns = connection.execute(_SQLITE_COLUMNS).fetchall()
        for table, rows in rows_of(schema).items():
            for row in rows:
                values = {name: _sqlite_value(value) for name, value in row.items() if (table, name) in columns}
                if values:
                    places = ", ".join(f":{name}" for name in values)
                    connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})", values)
        connection.execute("COMMIT")
        connection.pragma("application_id", APPLICATION_ID)
    finally:
        connection.close()


def _sqlite_value(value: str | int) -> str | int | bytes:
    if isinstance(value, str) and value.startswith(_BYTES):
        return bytes.fromhex(value.removeprefix(_BYTES))
    return value


async def _fill_postgres(url: str, schema: int) -> None:
    options = PostgresOptions.from_url(url)
    steps = load_migrations("lash.postgres.sql.migrations", schema=options.schema)[:schema]
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        await connection.execute(";".join([*(step.statement for step in steps), *_records(steps)]))
        columns = {tuple(each) for each in await connection.fetch(_POSTGRES_COLUMNS)}
        for table, rows in rows_of(schema).items():
            # A column that a row does not name has its default, so rows of the same columns go together.
            for names, alike in groupby(rows, key=tuple):
                listed = ", ".join(name for name in names if (table, name) in columns)
                if listed:
                    insert = _POSTGRES_INSERT.format(table=table, columns=listed)
                    await connection.execute(insert, json.dumps(list(alike)))
        columns_with_sequences = await connection.fetch(_POSTGRES_SEQUENCES)
        await connection.execute(
            ";".join(_POSTGRES_SETVAL.format(table=table, column=column) for table, column in columns_with_sequences)
        )
    finally:
        await connection.close()


async def count_rows(url: str) -> dict[str, int]:
    """Return how many rows each table of lash has."""
    listed = await raw(url, _SQLITE_COLUMNS if url.startswith("sqlite") else _POSTGRES_COLUMNS)
    tables = sorted({table for table, _ in listed})
    counts = await raw(url, " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables))
    return dict(counts)
