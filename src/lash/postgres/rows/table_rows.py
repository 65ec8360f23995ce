"""The raw rows of a PostgreSQL storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lash.backend.table_rows import (
    TRANSACTION_ID,
    replaced_columns,
    require_marked,
    row_tables,
    sealed_columns,
    table_statements,
)
from lash.base.ids import new_id
from lash.postgres.engine.database import Database
from lash.sqlkit.catalogue import Table, load_catalogue
from lash.sqlkit.queries import in_schema, quote_identifier
from lash.sqlkit.rows import Content, Number
from lash.stores.table_rows import Row, RowTable, RowValue, TableSequence

# The only statements built in Python. Written out, they would be a hundred copies of these three, and every migration
# would have to change them. Only types and quoted names from our own catalogue are filled in.
# A column of transaction ids gets the id of the transaction that writes the row.
_TEMPLATES: Final = {
    "rows_read": (
        'SELECT {columns} FROM :"schema".{table} WHERE ({key}) > ({after}) ORDER BY {key} LIMIT {limit}::bigint'
    ),
    # Replaces the mark of the move in the same statement, or writes nothing if another move has changed it.
    "rows_write": (
        "WITH noted AS ("
        "UPDATE :\"schema\".lash_secrets SET secret = {mark} WHERE name = 'move' AND secret = {before} RETURNING 1"
        '), written AS (INSERT INTO :"schema".{table} ({columns}{own_columns}) OVERRIDING SYSTEM VALUE '
        "SELECT u.*{own_values} FROM noted CROSS JOIN unnest({values}) AS u ({columns})"
        ") SELECT count(*) FROM noted"
    ),
    "rows_count": 'SELECT count(*) FROM :"schema".{table}',
}

_REPLACE: Final = {
    "rows_replace": (
        'WITH changed AS (UPDATE :"schema".{table} AS t SET {assigned} FROM unnest({given}) AS u ({names}) '
        "WHERE {found} RETURNING 1) SELECT count(*) FROM changed"
    )
}
"""For tables with values."""
_FEED: Final = {"xid": "seq", "registered_xid": "registered_seq", "start_xid": "start_seq", "end_xid": "end_seq"}
"""The transaction ids of the change feed, whose entries are in several tables, and the columns of their numbers."""
_OLD: Final = "'2'::xid8"
"""Before all transactions of a server: moved entries are in the order of their numbers."""
_LEAST: Final[dict[str, RowValue]] = {"bigint": -(2**63), "text": "", "boolean": False}
"""A value below every key that lash makes, by type."""


class PostgresRawRows:
    """Reads and writes the rows of one PostgreSQL storage; the contract is `lash.stores.table_rows.RawRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._types: dict[str, dict[str, str]] = {}

    def prepare(self) -> tuple[RowTable, ...]:
        catalogue = load_catalogue("lash.postgres.sql")
        tables = row_tables(catalogue)
        schema = self._database.options.schema
        for table in tables:
            found = catalogue.tables[table.name]
            self._types[table.name] = {name: column.type for name, column in found.columns.items()}
            statements = _statements(table, found)
            self._database.add_queries({name: in_schema(text, schema) for name, text in statements.items()})
        return tables

    async def number(self, query: str) -> int | None:
        found = await self._database.read_one(Number, query)
        return None if found is None else found.number

    async def pulse(self) -> tuple[int, ...]:
        return await self._database.read_one(tuple[int, ...], "rows_pulse") or ()

    async def read(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        types = self._types[table.name]
        kinds = [types[column] for column in table.key]
        if after is None:
            key = [_LEAST[kind] for kind in kinds]
        else:
            key = [_typed(value, kind) for value, kind in zip(after, kinds, strict=True)]
        found: list[Row] = await self._database.read_all(tuple, f"rows_read {table.name}", *key, limit)
        flags = [index for index, column in enumerate(table.columns) if types[column] == "boolean"]
        return [_plain(row, flags) for row in found] if flags else found

    async def replace(self, table: RowTable, rows: Sequence[tuple[Row, Row]]) -> int:
        types, sealed = self._types[table.name], sealed_columns(table)
        kinds = [types[column] for column in (*table.key, *sealed, *sealed)]
        columns = [
            [_typed(value, kind) for value in values]
            for kind, values in zip(kinds, zip(*replaced_columns(table, rows), strict=True), strict=True)
        ]
        # A repetition finds other values and changes nothing; it only counts too few.
        changed = await self._database.write_one(Number, f"rows_replace {table.name}", *columns, repeatable=True)
        return 0 if changed is None else changed.number

    async def sequences(self) -> list[TableSequence]:
        return await self._database.read_all(TableSequence, "rows_sequences", self._database.options.schema)

    async def mark(self) -> bytes | None:
        found = await self._database.read_one(Content, "rows_mark")
        return None if found is None else found.content

    async def begin(self, mark: bytes) -> None:
        await self._write_marked("rows_begin", mark, new_id())

    async def write(self, table: RowTable, rows: Sequence[Row], before: bytes, mark: bytes) -> None:
        types = self._types[table.name]
        columns = [
            [_typed(value, types[column]) for value in values]
            for column, values in zip(table.columns, zip(*rows, strict=True), strict=True)
        ]
        await self._write_marked(f"rows_write {table.name}", *columns, mark, before)

    async def finish(self, sequences: Mapping[str, int], before: bytes) -> None:
        schema = self._database.options.schema
        await self._write_marked("rows_finish", before, schema, list(sequences), list(sequences.values()))

    async def _write_marked(self, query: str, *arguments: object) -> None:
        """Run a statement that returns how many marks of a move it changed, and writes nothing without one."""
        # Not repeated after a lost connection: the mark that the first try wrote would be taken for another move's.
        changed = await self._database.write_one(Number, query, *arguments, repeatable=False)
        require_marked(0 if changed is None else changed.number)


def _replacement(table: RowTable, found: Table) -> dict[str, str]:
    """Return the parts of ``rows_replace``: its parameters are the keys, the stored values and the new values."""
    sealed = sealed_columns(table)
    given = [*table.key, *sealed, *sealed]
    names = [*(f"key_{name}" for name in table.key), *(f"old_{name}" for name in sealed)]
    keys = [f"t.{quote_identifier(name)} = u.key_{name}" for name in table.key]
    same = [f"t.{quote_identifier(name)} IS NOT DISTINCT FROM u.old_{name}" for name in sealed]
    return {
        "assigned": ", ".join(f"{quote_identifier(name)} = u.new_{name}" for name in sealed),
        "given": ", ".join(f"${place}::{found.columns[name].type}[]" for place, name in enumerate(given, start=1)),
        "names": ", ".join([*names, *(f"new_{name}" for name in sealed)]),
        "found": " AND ".join([*keys, *same]),
    }


def _typed(value: RowValue, kind: str) -> RowValue:
    return bool(value) if kind == "boolean" and value is not None else value


def _plain(row: Row, flags: Sequence[int]) -> Row:
    """Return the row with booleans as 0 and 1."""
    values = list(row)
    for index in flags:
        value = values[index]
        values[index] = int(value) if isinstance(value, bool) else value
    return tuple(values)


def _own_value(column: str) -> str:
    """Return the transaction id of a row that is moved; NULL if it is not in the feed."""
    number = _FEED.get(column)
    return "pg_current_xact_id()" if number is None else f"CASE WHEN u.{number} IS NOT NULL THEN {_OLD} END"


def _statements(table: RowTable, found: Table) -> dict[str, str]:
    own = sorted(name for name, column in found.columns.items() if column.type == TRANSACTION_ID)
    types = [found.columns[name].type for name in table.columns]
    keys = enumerate((found.columns[name].type for name in table.key), start=1)
    return table_statements(
        table,
        _TEMPLATES | _REPLACE if sealed_columns(table) else _TEMPLATES,
        **_replacement(table, found),
        own_columns="".join(f", {quote_identifier(name)}" for name in own),
        own_values="".join(f", {_own_value(name)}" for name in own),
        values=", ".join(f"${number}::{kind}[]" for number, kind in enumerate(types, start=1)),
        after=", ".join(f"${number}::{kind}" for number, kind in keys),
        limit=f"${len(table.key) + 1}",
        mark=f"${len(types) + 1}::bytea",
        before=f"${len(types) + 2}::bytea",
    )
