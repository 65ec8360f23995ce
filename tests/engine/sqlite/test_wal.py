from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from lash.sqlite.engine.database import Database, Reader, SQLiteOptions
from tests.engine.sqlite.kit import Gate, ids, open_database

PAGE = 1024


async def write_pages(database: Database, pages: int) -> None:
    await database.write(lambda transaction: transaction.run("insert_bulk", payload=bytes(pages * PAGE)))


async def settle(database: Database) -> None:
    """Wait until the writer has checkpointed after its last group."""
    await database.write(lambda _transaction: None)


async def test_the_log_is_copied_back_when_it_is_long(tmp_path: Path) -> None:
    """The writer checkpoints whenever the log has grown by the configured pages, and the log restarts."""
    names: list[str] = []
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(checkpoint_pages=50), hook=names.append)
    for _ in range(40):
        await write_pages(database, 10)
    await settle(database)
    assert 5 <= names.count("checkpoint") <= 10
    assert (tmp_path / "x.db-wal").stat().st_size < 100 * PAGE
    await database.close()


async def test_a_checkpoint_follows_the_outcomes(tmp_path: Path) -> None:
    """The callers whose writes make a checkpoint due do not wait for it."""
    gate = Gate()

    def hold(name: str) -> None:
        if name == "checkpoint":
            gate(None)  # type: ignore[arg-type]

    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(checkpoint_pages=10), hook=hold)
    await write_pages(database, 20)
    await gate.entered()
    gate.open()
    await database.close()


class Relay:
    """Readers that always overlap: each keeps its snapshot until another has taken a newer one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = 0
        self.over = False

    def __call__(self, reader: Reader) -> None:
        ids(reader)
        with self._changed:
            self._taken += 1
            mine = self._taken
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._taken > mine or self.over, 30)

    def end(self) -> None:
        with self._changed:
            self.over = True
            self._changed.notify_all()


async def test_readers_that_always_overlap_cannot_make_the_log_grow(tmp_path: Path) -> None:
    """With a reader on the log at every moment, it still stays within a few times the usual length."""
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(checkpoint_pages=50))
    relay = Relay()

    async def keep_reading() -> None:
        while not relay.over:
            await database.read_in_thread(relay)

    runners = [asyncio.create_task(keep_reading()) for _ in range(2)]
    longest = 0
    for _ in range(200):
        await write_pages(database, 20)
        longest = max(longest, (tmp_path / "x.db-wal").stat().st_size)
    relay.end()
    await asyncio.gather(*runners)
    await database.close()
    # 4,000 pages were written in all.
    assert longest < 50 * PAGE * 16


async def test_a_reader_that_stays_does_not_stop_the_writer(tmp_path: Path) -> None:
    """While one snapshot is held the log has to grow; when it is released the log shrinks again."""
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(checkpoint_pages=50))
    gate = Gate()

    def body(reader: Reader) -> None:
        ids(reader)
        gate(reader)

    await write_pages(database, 1)
    reading = asyncio.create_task(database.read_in_thread(body))
    await gate.entered()
    for _ in range(12):
        await write_pages(database, 40)
    assert (tmp_path / "x.db-wal").stat().st_size > 400 * PAGE
    gate.open()
    await reading
    for _ in range(3):
        await write_pages(database, 40)
    await settle(database)
    assert (tmp_path / "x.db-wal").stat().st_size < 100 * PAGE
    await database.close()
