"""The rows of a PostgreSQL storage as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from lash.backend.table_order import TRANSACTION_ID, row_tables
from lash.errors import ConfigError, CorruptData
from lash.postgres.engine.database import Database
from lash.sqlkit.catalogue import Table, load_catalogue
from lash.sqlkit.queries import in_schema, quote_identifier
from lash.sqlkit.rows import Content, Number
from lash.stores.table_rows import Row, RowTable, RowValue, require_noted

# The one place where statements are put together. Written out, they would be a hundred copies of these three, to be
# kept in step with every migration. All that is filled in are names and types from our own catalogue, names quoted.
# A column that holds a transaction's id gets that of the transaction that writes the row.
_READ: Final = 'SELECT {columns} FROM :"schema".{table} WHERE ({key}) > ({after}) ORDER BY {key} LIMIT {limit}::bigint'
_WRITE: Final = (
    'INSERT INTO :"schema".{table} ({columns}{own_columns}) OVERRIDING SYSTEM VALUE '
    "SELECT u.*{own_values} FROM unnest({values}) AS u"
)
_COUNT: Final = 'SELECT count(*) FROM :"schema".{table}'

_LEAST: Final[dict[str, RowValue]] = {"bigint": -(2**63), "text": "", "boolean": False}
"""What is below every key that lash makes, by type."""


class _Sequence(msgspec.Struct, frozen=True, array_like=True):
    table: str
    number: int | None
    allowed: bool


class PostgresRowStore:
    """Reads and writes the rows of one PostgreSQL storage; the contract is `lash.stores.table_rows.RowStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._types: dict[str, dict[str, str]] = {}

    @cached_property
    def tables(self) -> tuple[RowTable, ...]:
        catalogue = load_catalogue("lash.postgres.sql")
        tables = row_tables(catalogue)
        schema = self._database.options.schema
        for table in tables:
            found = catalogue.tables[table.name]
            self._types[table.name] = {name: column.type for name, column in found.columns.items()}
            statements = _statements(table, found)
            self._database.teach({name: in_schema(text, schema) for name, text in statements.items()})
        return tables

    async def schema_number(self) -> int:
        return await self._number("schema_version")

    async def count(self, table: RowTable) -> int:
        return await self._number(f"rows_count {table.name}")

    async def pulse(self) -> tuple[int, ...]:
        return await self._database.read_one(tuple[int, ...], "rows_pulse") or ()

    async def read(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        types = self._types[table.name]
        kinds = [types[column] for column in table.key]
        if after is None:
            place = [_LEAST[kind] for kind in kinds]
        else:
            place = [_typed(value, kind) for value, kind in zip(after, kinds, strict=True)]
        found: list[Row] = await self._database.read_all(tuple, f"rows_read {table.name}", *place, limit)
        flags = [place for place, column in enumerate(table.columns) if types[column] == "boolean"]
        return [_plain(row, flags) for row in found] if flags else found

    async def sequences(self) -> dict[str, int]:
        found = await self._database.read_all(_Sequence, "rows_sequences", self._database.options.schema)
        refused = [row.table for row in found if not row.allowed]
        if refused:
            raise ConfigError(
                f"the role may not read and set the sequences of {', '.join(refused)}; move as the owner of the tables"
            )
        return {row.table: row.number for row in found if row.number is not None}

    async def mark(self) -> bytes | None:
        found = await self._database.read_one(Content, "rows_mark")
        return None if found is None else found.content

    async def begin(self, mark: bytes) -> None:
        async with self._database.transaction() as transaction:
            await transaction.run("rows_forget_secrets")
            require_noted(await transaction.run("rows_begin", mark))

    async def write(self, table: RowTable, rows: Sequence[Row], *, before: bytes, mark: bytes) -> None:
        types = self._types[table.name]
        columns = [
            [_typed(value, types[column]) for value in values]
            for column, values in zip(table.columns, zip(*rows, strict=True), strict=True)
        ]
        async with self._database.transaction() as transaction:
            require_noted(await transaction.run("rows_note", mark, before))
            await transaction.run(f"rows_write {table.name}", *columns)

    async def finish(self, sequences: Mapping[str, int], *, before: bytes) -> None:
        schema = self._database.options.schema
        async with self._database.transaction() as transaction:
            require_noted(await transaction.run("rows_finish", before))
            for table, number in sequences.items():
                await transaction.all(Number, "rows_set_sequence", schema, table, number)

    async def _number(self, name: str) -> int:
        found = await self._database.read_one(Number, name)
        if found is None:
            raise CorruptData(f"{name!r} found nothing")
        return found.number


def _typed(value: RowValue, kind: str) -> RowValue:
    return bool(value) if kind == "boolean" and value is not None else value


def _plain(row: Row, flags: Sequence[int]) -> Row:
    """Write booleans as 0 and 1."""
    values = list(row)
    for place in flags:
        value = values[place]
        values[place] = int(value) if isinstance(value, bool) else value
    return tuple(values)


def _statements(table: RowTable, found: Table) -> dict[str, str]:
    own = sorted(name for name, column in found.columns.items() if column.type == TRANSACTION_ID)
    types = [found.columns[name].type for name in table.columns]
    keys = enumerate((found.columns[name].type for name in table.key), start=1)
    names = {
        "table": quote_identifier(table.name),
        "columns": _listed(table.columns),
        "own_columns": "".join(f", {quote_identifier(name)}" for name in own),
        "own_values": ", pg_current_xact_id()" * len(own),
        "values": ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(types, start=1)),
        "key": _listed(table.key),
        "after": ", ".join(f"${place}::{kind}" for place, kind in keys),
        "limit": f"${len(table.key) + 1}",
    }
    return {
        f"rows_read {table.name}": _READ.format_map(names),
        f"rows_write {table.name}": _WRITE.format_map(names),
        f"rows_count {table.name}": _COUNT.format_map(names),
    }


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quote_identifier(name) for name in names)
