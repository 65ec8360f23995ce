"""The raw rows of a SQLite storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lash.backend.table_rows import (
    replaced_columns,
    require_marked,
    row_tables,
    sealed_columns,
    table_statements,
)
from lash.base.ids import new_id
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlkit.catalogue import load_catalogue
from lash.sqlkit.queries import quote_identifier
from lash.sqlkit.rows import Content, Number
from lash.stores.table_rows import Row, RowTable, RowValue, TableSequence

# The only statements built in Python. Written out, they would be a hundred copies of these three, and every migration
# would have to change them. Only quoted names from our own catalogue are filled in.
_TEMPLATES: Final = {
    "rows_read": "SELECT {columns} FROM {table} WHERE ({key}) > ({after}) ORDER BY {key} LIMIT :limit",
    "rows_write": "INSERT INTO {table} ({columns}) VALUES ({values})",
    "rows_count": "SELECT count(*) FROM {table}",
}

_REPLACE: Final = {"rows_replace": "UPDATE {table} SET {assigned} WHERE {found}"}
"""For tables with values."""
_LEAST: Final[dict[str, RowValue]] = {"INTEGER": -(2**63), "TEXT": ""}
"""A value below every key that lash makes, by type."""


class SQLiteRawRows:
    """Reads and writes the rows of one SQLite storage; the contract is `lash.stores.table_rows.RawRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._least: dict[str, Row] = {}

    def prepare(self) -> tuple[RowTable, ...]:
        catalogue = load_catalogue("lash.sqlite.sql")
        tables = row_tables(catalogue)
        self._least = {
            table.name: tuple(_LEAST[catalogue.tables[table.name].columns[column].type] for column in table.key)
            for table in tables
        }
        self._database.add_queries({name: text for table in tables for name, text in row_statements(table).items()})
        return tables

    async def number(self, query: str) -> int | None:
        found = await self._database.read_in_thread(lambda reader: reader.one(Number, query))
        return None if found is None else found.number

    async def pulse(self) -> tuple[int, ...]:
        found = await self._database.read_in_thread(lambda reader: reader.one(tuple[int, ...], "rows_pulse"))
        return found or ()

    async def read(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        key = self._least[table.name] if after is None else after
        parameters = dict(zip((f"after_{column}" for column in table.key), key, strict=True))

        def body(reader: Reader) -> list[Row]:
            return reader.all(tuple, f"rows_read {table.name}", limit=limit, **parameters)

        return await self._database.read_in_thread(body)

    async def replace(self, table: RowTable, rows: Sequence[tuple[Row, Row]]) -> int:
        names = [f"{prefix}_{column}" for prefix, column in _replaced(table)]
        given = [dict(zip(names, values, strict=True)) for values in replaced_columns(table, rows)]

        def body(transaction: Transaction) -> int:
            return sum(transaction.run(f"rows_replace {table.name}", **values) for values in given)

        return await self._database.write(body)

    async def sequences(self) -> list[TableSequence]:
        return await self._database.read_in_thread(lambda reader: reader.all(TableSequence, "rows_sequences"))

    async def mark(self) -> bytes | None:
        found = await self._database.read_in_thread(lambda reader: reader.one(Content, "rows_mark"))
        return None if found is None else found.content

    async def begin(self, mark: bytes) -> None:
        def body(transaction: Transaction) -> None:
            transaction.run("rows_forget_secrets")
            transaction.run("change_begin_epoch", epoch=new_id())
            require_marked(transaction.run("rows_begin", mark=mark, now_ms=transaction.now_ms))

        await self._database.write(body)

    async def write(self, table: RowTable, rows: Sequence[Row], before: bytes, mark: bytes) -> None:
        def body(transaction: Transaction) -> None:
            given: list[dict[str, SQLiteValue]] = [dict(zip(table.columns, row, strict=True)) for row in rows]
            require_marked(transaction.run("rows_note", mark=mark, before=before))
            transaction.run_many(f"rows_write {table.name}", given)

        await self._database.write(body)

    async def finish(self, sequences: Mapping[str, int], before: bytes) -> None:
        def body(transaction: Transaction) -> None:
            require_marked(transaction.run("rows_finish", before=before))
            for table, number in sequences.items():
                transaction.run("rows_forget_sequence", table=table)
                transaction.run("rows_set_sequence", table=table, number=number)

        await self._database.write(body)


def row_statements(table: RowTable) -> dict[str, str]:
    """Return the statements that read, write and count the rows of a table, by name."""
    sealed = sealed_columns(table)
    found = [f"{quote_identifier(column)} = :key_{column}" for column in table.key]
    found += [f"{quote_identifier(column)} IS :old_{column}" for column in sealed]
    return table_statements(
        table,
        _TEMPLATES | _REPLACE if sealed else _TEMPLATES,
        values=", ".join(f":{column}" for column in table.columns),
        after=", ".join(f":after_{column}" for column in table.key),
        assigned=", ".join(f"{quote_identifier(column)} = :new_{column}" for column in sealed),
        found=" AND ".join(found),
    )


def _replaced(table: RowTable) -> list[tuple[str, str]]:
    """Return the parameters of ``rows_replace`` as prefix and column, in the order of `replaced_columns`."""
    sealed = sealed_columns(table)
    return [("key", column) for column in table.key] + [(each, column) for each in ("old", "new") for column in sealed]
