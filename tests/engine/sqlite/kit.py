"""A small database for the tests of the engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import apsw
import msgspec

from lash.base.clock import Clock, SystemClock
from lash.errors import RevisionConflict
from lash.sqlite.engine.database import Database, Prepare, Reader, SQLiteOptions, StatementHook, Transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS item (
    id INTEGER PRIMARY KEY,
    label TEXT NOT NULL,
    parent INTEGER REFERENCES item (id) DEFERRABLE INITIALLY DEFERRED
);
CREATE TABLE IF NOT EXISTS bulk (payload BLOB NOT NULL);
"""

QUERIES = {
    "insert_item": "INSERT INTO item (id, label) VALUES (:id, :label)",
    "insert_child": "INSERT INTO item (id, label, parent) VALUES (:id, 'child', :parent)",
    "insert_or_give_up": "INSERT OR ROLLBACK INTO item (id, label) VALUES (:id, :label)",
    "rename_all": "UPDATE item SET label = :label",
    "take_item": "DELETE FROM item WHERE id = :id RETURNING id, label",
    "insert_bulk": "INSERT INTO bulk VALUES (:payload)",
    "item": "SELECT id, label FROM item WHERE id = :id",
    "items": "SELECT id, label FROM item ORDER BY id",
    "count_items": "SELECT count(*) FROM item",
    "odd_row": "SELECT 'no number', label FROM item",
    "no_such_table": "SELECT 1 FROM nowhere",
}


class Item(msgspec.Struct, array_like=True, frozen=True):
    id: int
    label: str


class Count(msgspec.Struct, array_like=True, frozen=True):
    number: int


def create_tables(connection: apsw.Connection, _new: bool) -> None:  # noqa: FBT001
    connection.execute(SCHEMA)


async def open_database(
    path: object = None,
    *,
    options: SQLiteOptions | None = None,
    hook: StatementHook | None = None,
    prepare: Prepare = create_tables,
    clock: Clock | None = None,
) -> Database:
    return await Database.open(
        None if path is None else str(path),
        queries=QUERIES,
        prepare=prepare,
        options=options or SQLiteOptions(),
        clock=clock or SystemClock(),
        on_statement=hook,
    )


def write_then_refuse(transaction: Transaction) -> None:
    """A body that fails after it has written."""
    transaction.run("insert_item", id=50, label="gone")
    raise RevisionConflict("s", 1, 2)


def insert(number: int, label: str = "x") -> Callable[[Transaction], int]:
    return lambda transaction: transaction.run("insert_item", id=number, label=label)


def ids(reader: Reader) -> list[int]:
    return [item.id for item in reader.all(Item, "items")]


class Gate:
    """A body that holds the writer until the test releases it, so that others queue up behind it."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._free = threading.Event()

    def __call__(self, _scope: Reader) -> None:
        self._entered.set()
        assert self._free.wait(30)

    async def entered(self) -> None:
        assert await asyncio.to_thread(self._entered.wait, 30)

    def open(self) -> None:
        self._free.set()


async def queue_behind(database: Database, gate: Gate, *bodies: Callable[[Transaction], object]) -> list[object]:
    """Queue the bodies while the gate is closed, open it, and return every value or error."""
    first = asyncio.create_task(database.write(gate))
    await gate.entered()
    tasks = [asyncio.create_task(database.write(body)) for body in bodies]
    await asyncio.sleep(0)
    gate.open()
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)
