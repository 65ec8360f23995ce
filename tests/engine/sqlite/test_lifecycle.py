from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lash.errors import ConfigError, StorageClosed
from lash.sqlite.engine.database import Database, Transaction
from tests.engine.sqlite.kit import Gate, ids, insert, open_database

ROOT = Path(__file__).parents[3]


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lash-sqlite")]


def open_files(directory: Path) -> list[str]:
    """The files below the directory that this process holds open."""
    links: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        # The descriptor that listed the directory is closed by now.
        with suppress(FileNotFoundError):
            links.append(str(descriptor.readlink()))
    return [link for link in links if link.startswith(str(directory))]


def names_in(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


async def test_closing_drains_and_tidies(tmp_path: Path) -> None:
    """Accepted writes are committed, no thread or file stays open, and the WAL is removed."""
    database = await open_database(tmp_path / "x.db")
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.entered()
    tasks = [asyncio.create_task(database.write(insert(number))) for number in range(100)]
    tasks.append(asyncio.create_task(database.read_in_thread(lambda _reader: 1)))
    await asyncio.sleep(0)
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    gate.open()
    await closing
    await first
    assert await asyncio.gather(*tasks) == [1] * 101
    assert engine_threads() == []
    assert open_files(tmp_path) == []
    assert names_in(tmp_path) == ["x.db", "x.db.lock", "x.db.turn"]
    again = await open_database(tmp_path / "x.db")
    assert again.read(ids) == list(range(100))
    await again.close()


async def test_a_closed_database_says_so() -> None:
    """Every use after the close raises StorageClosed, and a second close does nothing."""
    database = await open_database()
    await database.close()
    with pytest.raises(StorageClosed):
        await database.write(insert(1))
    with pytest.raises(StorageClosed):
        database.read(ids)
    with pytest.raises(StorageClosed):
        await database.read_in_thread(ids)
    await database.close()


async def test_two_closes_at_once() -> None:
    """Both callers wait for the end; cancelling one does not keep the database open."""
    database = await open_database()
    gate = Gate()
    writing = asyncio.create_task(database.write(gate))
    await gate.entered()
    closes = [asyncio.create_task(database.close()) for _ in range(3)]
    await asyncio.sleep(0)
    closes[0].cancel()
    gate.open()
    results = await asyncio.gather(*closes, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [None, None]
    assert engine_threads() == []
    await writing


async def test_a_cancelled_caller_that_waits_leaves_nothing(tmp_path: Path) -> None:
    """A body whose caller is cancelled before it starts never runs; the others do."""
    database = await open_database(tmp_path / "x.db")
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.entered()
    kept, cancelled = (asyncio.create_task(database.write(insert(number))) for number in (1, 2))
    await asyncio.sleep(0)
    cancelled.cancel()
    gate.open()
    await first
    assert await kept == 1
    assert database.read(ids) == [1]
    await database.close()


async def test_a_caller_cancelled_within_its_group(tmp_path: Path) -> None:
    """A body that has not started within the running transaction is skipped as well."""
    database = await open_database(tmp_path / "x.db")
    outer, inner = Gate(), Gate()
    first = asyncio.create_task(database.write(outer))
    await outer.entered()
    second = asyncio.create_task(database.write(inner))
    cancelled, kept = (asyncio.create_task(database.write(insert(number))) for number in (1, 2))
    await asyncio.sleep(0)
    outer.open()
    await inner.entered()
    cancelled.cancel()
    await asyncio.sleep(0)
    inner.open()
    assert await kept == 1
    assert database.read(ids) == [2]
    await database.close()
    await asyncio.gather(first, second)
    assert cancelled.cancelled()


async def test_a_cancelled_caller_whose_body_runs(tmp_path: Path) -> None:
    """Once a body runs it is applied whole, whether or not its caller still waits."""
    database = await open_database(tmp_path / "x.db")
    gate = Gate()

    def write_two(transaction: Transaction) -> None:
        insert(1)(transaction)
        gate(transaction)
        insert(2)(transaction)

    task = asyncio.create_task(database.write(write_two))
    await gate.entered()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open()
    await database.write(insert(3))
    assert database.read(ids) == [1, 2, 3]
    await database.close()


async def test_a_cancelled_open_leaves_nothing(tmp_path: Path) -> None:
    """A cancelled open closes everything that it had opened."""
    gate = Gate()

    def wait(_connection: object, _new: object) -> None:
        gate(None)  # type: ignore[arg-type]

    task = asyncio.create_task(open_database(tmp_path / "x.db", prepare=wait))
    await gate.entered()
    threads = [thread for thread in threading.enumerate() if thread.name == "lash-sqlite-writer"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open()
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
    assert engine_threads() == []
    assert open_files(tmp_path) == []


def test_another_event_loop(tmp_path: Path) -> None:
    """A database refuses other event loops with a remedy, and can be closed from one when its own is closed."""
    database = asyncio.run(open_database(tmp_path / "x.db"))

    async def use() -> None:
        with pytest.raises(ConfigError, match="event loop"):
            await database.write(insert(1))
        with pytest.raises(ConfigError, match="event loop"):
            await database.read_in_thread(ids)
        with pytest.raises(ConfigError, match="event loop"):
            database.read(ids)
        await database.close()

    with pytest.raises(ConfigError, match="event loop"):
        database.read(ids)
    asyncio.run(use())
    assert engine_threads() == []


def test_a_loop_that_died_with_work_in_flight(tmp_path: Path) -> None:
    """Outcomes for a closed loop are dropped, and closing does not hang."""
    gate = Gate()

    async def leave() -> Database:
        database = await open_database(tmp_path / "x.db")
        task = asyncio.create_task(database.write(gate))
        await gate.entered()
        task.cancel()
        return database

    database = asyncio.run(leave())
    gate.open()
    asyncio.run(database.close())
    assert engine_threads() == []


def in_child(action: Callable[[], None]) -> int:
    """Run the action in a forked child and return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child(tmp_path: Path) -> None:
    """A forked child cannot use the database and holds no lock of it; the parent can go on."""

    async def parent() -> None:
        database = await open_database(tmp_path / "x.db")

        def use() -> None:
            assert [name for name in open_files(tmp_path) if name.endswith((".lock", ".turn"))] == []
            for call in (database.write(insert(1)), database.close(), database.read_in_thread(ids)):
                with pytest.raises(ConfigError, match="forked"):
                    call.send(None)
            with pytest.raises(ConfigError, match="forked"):
                database.read(ids)

        assert in_child(use) == 0
        assert await database.write(insert(2)) == 1
        assert database.read(ids) == [2]
        await database.close()

    asyncio.run(parent())


UNCLOSED = """
import asyncio, sys
from tests.engine.sqlite.kit import insert, open_database
async def main():
    database = await open_database(sys.argv[1])
    await database.write(insert(1))
    await database.read_in_thread(lambda reader: None)
asyncio.run(main())
print("done")
"""


def test_a_program_that_forgets_to_close(tmp_path: Path) -> None:
    """A program that exits without closing exits silently, and its acknowledged writes are stored."""
    command = [sys.executable, "-W", "error", "-c", UNCLOSED, str(tmp_path / "x.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")

    async def look() -> list[int]:
        database = await open_database(tmp_path / "x.db")
        found = database.read(ids)
        await database.close()
        return found

    assert asyncio.run(look()) == [1]


async def test_nothing_of_a_call_stays_in_memory(tmp_path: Path) -> None:
    """Bodies and values are freed once their outcomes are delivered, also while the threads are idle."""

    class Ballast:
        def __call__(self, _scope: object) -> Ballast:
            return Ballast()

    database = await open_database(tmp_path / "x.db")
    write, read = Ballast(), Ballast()
    written, found = await database.write(write), await database.read_in_thread(read)
    traces = [weakref.ref(thing) for thing in (write, read, written, found)]
    del write, read, written, found
    for _ in range(1000):
        if all(trace() is None for trace in traces):
            break
        await asyncio.sleep(0.001)
    assert [trace() for trace in traces] == [None] * 4
    await database.close()


async def test_durability_is_visible(tmp_path: Path) -> None:
    """A file is durable, memory is not."""
    file, memory = await open_database(tmp_path / "x.db"), await open_database()
    assert (file.durable, memory.durable) == (True, False)
    await file.close()
    await memory.close()


async def test_two_databases_on_one_file(tmp_path: Path) -> None:
    """Two databases of one process alternate and see each other's commits; the last to close removes the WAL."""
    one, two = await open_database(tmp_path / "x.db"), await open_database(tmp_path / "x.db")
    await asyncio.gather(*(one.write(insert(number)) for number in range(20)), two.write(insert(100)))
    await asyncio.gather(*(two.write(insert(number)) for number in range(20, 40)), one.write(insert(101)))
    assert one.read(ids) == two.read(ids) == [*range(40), 100, 101]
    await one.close()
    assert (tmp_path / "x.db-wal").exists()
    await two.close()
    assert not (tmp_path / "x.db-wal").exists()
