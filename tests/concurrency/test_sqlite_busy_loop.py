from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from lash.sqlite.database import SQLiteOptions
from tests.sqlite.kit import Count, Item, insert, open_database

SLICES = 1000
TRIES = 8


async def burn(slices: int) -> None:
    """Keep the event loop busy: it gets back to its other work only between slices of 0.2 ms."""
    for _ in range(slices):
        end = time.perf_counter() + 0.0002
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0)


async def work_done_while_busy(path: Path, *, lend_gil: bool) -> tuple[int, int]:
    """Return how many commits and how many long reads were answered while the loop was busy."""
    database = await open_database(path, options=SQLiteOptions(lend_gil=lend_gil))
    await database.write(insert(0))
    commits = reads = 0

    async def keep_writing() -> None:
        nonlocal commits
        while True:
            await database.write(insert(commits + 1))
            commits += 1

    async def keep_reading() -> None:
        nonlocal reads
        while True:
            await database.read_in_thread(lambda reader: [reader.one(Item, "item", id=0) for _ in range(10)])
            reads += 1

    tasks = [asyncio.create_task(keep_writing()), asyncio.create_task(keep_reading())]
    await burn(SLICES)
    done = commits, reads
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    count = database.read(lambda reader: reader.one(Count, "count_items"))
    assert count is not None
    assert count.number > done[0]
    await database.close()
    return done


async def test_a_busy_loop_does_not_starve_its_threads(tmp_path: Path) -> None:
    """While the loop is busy there is a commit and a long read at least every ten turns."""
    commits, reads = await work_done_while_busy(tmp_path / "x.db", lend_gil=True)
    assert commits > SLICES // 10
    assert reads > SLICES // 10


async def test_without_lending_the_threads_starve(tmp_path: Path) -> None:
    """Without lending the same loop lets less than half of the work through, usually next to nothing.

    A loaded machine interrupts the loop and so lets the threads in by chance: one of a few tries has to show it.
    """
    tries: list[tuple[int, int]] = []
    while len(tries) < TRIES:
        lent = sum(await work_done_while_busy(tmp_path / f"lent-{len(tries)}.db", lend_gil=True))
        kept = sum(await work_done_while_busy(tmp_path / f"kept-{len(tries)}.db", lend_gil=False))
        if kept * 2 < lent:
            return
        tries.append((lent, kept))
    pytest.fail(f"work done with and without lending: {tries}")
