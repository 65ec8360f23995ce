"""Space in the write-ahead log: the file grows in a few large steps, and zeros in it change nothing."""

from __future__ import annotations

import asyncio
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from benchmarks.kit.disk import log_bytes
from lash.sqlite.engine.database import Database, SQLiteOptions
from lash.sqlite.engine.log_space import LogSpace
from tests.engine.sqlite.kit import ids, insert, open_database

WRITES = 200


def length(database: Path) -> int:
    return database.with_name(f"{database.name}-wal").stat().st_size


async def settle(database: Database) -> None:
    """Wait until the writer's thread has done what the last write made due: it does so before the next one."""
    await database.write(lambda _transaction: None)
    await database.write(lambda _transaction: None)


@contextmanager
def files_may_not_exceed(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_the_log_grows_in_few_steps(tmp_path: Path) -> None:
    """Two hundred commits find space in a log that was made longer twice, and less is in use than it holds."""
    path = tmp_path / "x.db"
    database = await open_database(path)
    await database.write(insert(0))
    await settle(database)
    lengths = {length(path)}
    for number in range(1, WRITES):
        await database.write(insert(number))
        await settle(database)
        lengths.add(length(path))
    assert len(lengths) <= 3, lengths
    assert log_bytes(path) + 64 * 1024 < length(path)
    assert database.read(ids) == list(range(WRITES))
    await database.close()


async def test_the_log_gets_no_longer_than_a_checkpoint_lets_it(tmp_path: Path) -> None:
    """The space ends where the log is copied into the database."""
    path = tmp_path / "x.db"
    database = await open_database(path, options=SQLiteOptions(checkpoint_pages=50))
    for number in range(5):
        await database.write(insert(number))
    await settle(database)
    assert length(path) == 32 + 50 * (1024 + 24)
    await database.close()


async def test_a_log_that_is_not_synced_gets_no_space(tmp_path: Path) -> None:
    """Without an fsync for each commit a longer file costs nothing."""
    path = tmp_path / "x.db"
    database = await open_database(path, options=SQLiteOptions(synchronous="normal"))
    await database.write(insert(1))
    await settle(database)
    assert length(path) == log_bytes(path)
    await database.close()


async def test_a_full_disk_keeps_its_space_for_commits(tmp_path: Path) -> None:
    """If the log cannot be made longer, it stays as it is, and commits go on."""
    path = tmp_path / "x.db"
    with files_may_not_exceed(128 * 1024):
        database = await open_database(path)
        for number in range(20):
            await database.write(insert(number))
        await settle(database)
        assert length(path) <= 128 * 1024
        assert database.read(ids) == list(range(20))
        await database.close()


async def test_a_program_that_writes_is_not_waited_for(tmp_path: Path) -> None:
    """While a program without lash's lock holds that of SQLite, the log stays as it is and nothing waits."""
    connection = apsw.Connection(str(tmp_path / "x.db"))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE item (id INTEGER)")
    other = apsw.Connection(str(tmp_path / "x.db"))
    space = LogSpace(connection, str(tmp_path / "x.db"), SQLiteOptions())
    before = length(tmp_path / "x.db")
    other.execute("BEGIN IMMEDIATE")
    space.note(2)
    is_due = [space.is_due]
    space.make()
    is_due.append(space.is_due)
    assert length(tmp_path / "x.db") == before
    other.execute("COMMIT")
    # The log began again.
    space.note(1)
    is_due.append(space.is_due)
    space.make()
    is_due.append(space.is_due)
    assert length(tmp_path / "x.db") > before
    assert is_due == [True, False, True, False]
    other.close()
    connection.close()


KILLED = """
import asyncio, sys
from tests.engine.sqlite.kit import insert, open_database

async def main():
    database = await open_database(sys.argv[1])
    number = 0
    while True:
        await database.write(insert(number))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


def acknowledged_before_death(path: Path, after: int) -> int:
    """Kill a process that writes once this write was acknowledged, and return the last acknowledged one."""
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if int(line) >= after)
        process.kill()
        rest = [int(line) for line in process.stdout if line.endswith("\n")]
    return max([after, *rest])


@pytest.mark.parametrize("after", [0, 1, 7, 60, 150])
async def test_a_killed_process_leaves_every_acknowledged_write(tmp_path: Path, after: int) -> None:
    """The log of a killed process ends in zeros; each write that was acknowledged is there, and the file is whole."""
    path = tmp_path / "x.db"
    acknowledged = await asyncio.to_thread(acknowledged_before_death, path, after)
    # The thread makes space after the first outcome and before the second write.
    assert after == 0 or length(path) > log_bytes(path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for part in ("", "-wal"):
        shutil.copy(f"{path}{part}", copy / f"x.db{part}")
    for found in (path, copy / "x.db"):
        database = await open_database(found)
        assert database.read(ids)[: acknowledged + 1] == list(range(acknowledged + 1))
        await database.close()
        connection = apsw.Connection(str(found))
        assert connection.pragma("integrity_check") == "ok"
        connection.close()
