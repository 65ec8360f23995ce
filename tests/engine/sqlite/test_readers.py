from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import apsw
import pytest

from lash.errors import ConfigError, StorageFailure
from lash.sqlite.engine.connection import open_memory, open_reader, open_writer
from lash.sqlite.engine.database import Database, Reader, SQLiteOptions, Transaction
from tests.engine.sqlite.kit import Count, Gate, Item, ids, insert, open_database


@pytest.fixture(params=["file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "x.db" if request.param == "file" else None


async def read(database: Database, body: object, how: str) -> object:
    assert callable(body)
    return database.read(body) if how == "inline" else await database.read_in_thread(body)


@pytest.mark.parametrize("how", ["inline", "thread"])
async def test_a_read_cannot_write(path: Path | None, how: str) -> None:
    """A statement that would write is refused in a read, and the next write works."""
    database = await open_database(path)
    with pytest.raises(StorageFailure, match="insert_item"):
        await read(database, lambda reader: reader.all(Item, "insert_item", id=1, label="x"), how)
    assert await read(database, ids, how) == []
    assert await database.write(insert(1)) == 1
    assert await read(database, ids, how) == [1]
    await database.close()


async def test_a_read_is_one_snapshot(tmp_path: Path) -> None:
    """What is committed while a read runs does not appear in it."""
    database = await open_database(tmp_path / "x.db")
    gate = Gate()

    def twice(reader: Reader) -> tuple[list[int], list[int]]:
        before = ids(reader)
        gate(reader)
        return before, ids(reader)

    await database.write(insert(1))
    reading = asyncio.create_task(database.read_in_thread(twice))
    await gate.entered()
    await database.write(insert(2))
    assert database.read(ids) == [1, 2]
    gate.open()
    assert await reading == ([1], [1])
    await database.close()


async def test_reads_in_a_file_do_not_wait_for_the_writer(tmp_path: Path) -> None:
    """While a write transaction is open, reads return at once, from committed data."""
    database = await open_database(tmp_path / "x.db")
    gate = Gate()

    def write(transaction: Transaction) -> None:
        insert(1)(transaction)
        gate(transaction)

    writing = asyncio.create_task(database.write(write))
    await gate.entered()
    assert database.read(ids) == []
    assert await database.read_in_thread(ids) == []
    gate.open()
    await writing
    assert database.read(ids) == [1]
    await database.close()


async def test_reads_in_memory_wait_for_the_commit() -> None:
    """In memory a read that starts during a transaction sees it whole, never a part of it."""
    database = await open_database()
    gate = Gate()

    def write(transaction: Transaction) -> None:
        insert(1)(transaction)
        gate(transaction)
        insert(2)(transaction)

    writing = asyncio.create_task(database.write(write))
    await gate.entered()
    reading = asyncio.create_task(database.read_in_thread(ids))
    await asyncio.sleep(0.01)
    assert not reading.done()
    gate.open()
    assert await reading == [1, 2]
    await writing
    await database.close()


async def test_an_acknowledged_write_is_seen_by_the_next_read(path: Path | None) -> None:
    """Once `write` has returned, every kind of read sees what it wrote."""
    database = await open_database(path)
    for number in range(1, 30):
        await database.write(insert(number))
        assert database.read(lambda reader: reader.one(Count, "count_items")) == Count(number)
        assert await database.read_in_thread(lambda reader: reader.one(Count, "count_items")) == Count(number)
    await database.close()


async def test_a_read_that_raises_leaves_nothing_behind(path: Path | None) -> None:
    """An exception of the body propagates unchanged, and the snapshot is released."""

    def stumble(reader: Reader) -> None:
        ids(reader)
        raise ZeroDivisionError

    database = await open_database(path)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            database.read(stumble)
        with pytest.raises(ZeroDivisionError):
            await database.read_in_thread(stumble)
    await database.write(insert(1))
    assert database.read(ids) == [1]
    await database.close()


async def test_no_read_within_a_read(path: Path | None) -> None:
    """A read inside the body of another is refused instead of hanging or mixing snapshots."""
    database = await open_database(path)
    with pytest.raises(ConfigError, match="inside the body"):
        database.read(lambda _reader: database.read(ids))
    assert database.read(ids) == []
    await database.close()


async def test_one_query_is_a_read(path: Path | None) -> None:
    """It sees what is committed, cannot write, is refused within a read, and leaves no transaction if it fails."""
    database = await open_database(path)
    await database.write(insert(1))
    assert database.ask(Item, "items") == [Item(1, "x")]
    with pytest.raises(StorageFailure, match="insert_item"):
        database.ask(Item, "insert_item", id=2, label="x")
    with pytest.raises(ConfigError, match="inside the body"):
        database.read(lambda _: database.ask(Item, "items"))
    await database.write(insert(2))
    assert [item.id for item in database.ask(Item, "items")] == [1, 2]
    await database.close()


async def test_a_query_is_compiled_once(tmp_path: Path) -> None:
    """Other bounds of a range do not make SQLite compile the query again, on connections of all kinds."""
    file = str(tmp_path / "x.db")
    for connection in (
        open_memory(SQLiteOptions(), lambda _connection, _new: None),
        open_writer(file, SQLiteOptions(), lambda _connection, _new: None),
        open_reader(file, SQLiteOptions()),
    ):
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1
        connection.close()


async def test_long_reads_run_side_by_side(tmp_path: Path) -> None:
    """As many long reads run at once as there are threads; further ones wait, and the loop goes on."""
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(reader_threads=2))
    gates = [Gate(), Gate(), Gate()]
    tasks = [asyncio.create_task(database.read_in_thread(gate)) for gate in gates]
    await gates[0].entered()
    await gates[1].entered()
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("lash-sqlite-reader") == 2
    gates[0].open()
    await gates[2].entered()
    assert not tasks[1].done()
    gates[1].open()
    gates[2].open()
    await asyncio.gather(*tasks)
    await database.close()


async def test_a_cancelled_read_that_waits_is_skipped(tmp_path: Path) -> None:
    """A long read that had not started when its caller was cancelled never runs."""
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(reader_threads=1))
    gate = Gate()
    ran: list[Reader] = []
    first = asyncio.create_task(database.read_in_thread(gate))
    await gate.entered()
    second = asyncio.create_task(database.read_in_thread(ran.append))
    await asyncio.sleep(0)
    second.cancel()
    gate.open()
    await first
    await database.close()
    assert second.cancelled()
    assert ran == []


async def test_one_query_does_not_wait_for_the_writer(tmp_path: Path) -> None:
    """While a transaction has the writer's connection, a query sees what was committed before, at once."""
    database, gate = await open_database(tmp_path / "x.db"), Gate()
    await database.write(insert(1))

    def write_and_wait(transaction: Transaction) -> None:
        insert(2)(transaction)
        gate(transaction)

    writing = asyncio.create_task(database.write(write_and_wait))
    await gate.entered()
    assert [each.id for each in database.ask(Item, "items")] == [1]
    gate.open()
    await writing
    assert [each.id for each in database.ask(Item, "items")] == [1, 2]
    await database.close()


async def test_one_query_reads_no_page_that_this_storage_has_written(tmp_path: Path) -> None:
    """A query after a commit finds its pages in memory; another connection would read them again."""
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(loop_commit_ms=60_000))
    for number in range(9):
        await database.write_briefly(insert(number))
    # The first run of a query is on the connection for reading only.
    database.ask(Item, "items")
    for number in range(10, 15):
        await database.write_briefly(insert(number))
        before = _bytes_read()
        assert len(database.ask(Item, "items")) == number
        assert _bytes_read() - before < 1_024
    await database.close()


def _bytes_read() -> int:
    """Return how many bytes this process has read, less those of reading that number."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("rchar:"))
