from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from lash.sqlite.engine.database import SQLiteOptions
from tests.engine.sqlite.kit import Count, Item, insert, open_database

TURNS = 1000
TRIES = 8


class Observed:
    """Commits and reads that finished while the event loop was busy."""

    def __init__(self) -> None:
        self.commits = 0
        self.reads = 0
        self.longest_stall = 0
        """The most iterations of the loop between two commits."""

    async def burn(self) -> None:
        """Keep the event loop busy: it runs other tasks only between slices of 0.2 ms."""
        seen, stall = self.commits, 0
        for _ in range(TURNS):
            end = time.perf_counter() + 0.0002
            while time.perf_counter() < end:
                pass
            await asyncio.sleep(0)
            stall = stall + 1 if self.commits == seen else 0
            seen = self.commits
            self.longest_stall = max(self.longest_stall, stall)


async def observe(path: Path, *, yield_gil: bool) -> Observed:
    """Commit and read while the loop is busy."""
    # Without fsync: the speed of a busy disk is not measured here.
    database = await open_database(path, options=SQLiteOptions(yield_gil=yield_gil, synchronous="normal"))
    await database.write(insert(0))
    observed = Observed()

    async def keep_writing() -> None:
        while True:
            await database.write(insert(observed.commits + 1))
            observed.commits += 1

    async def keep_reading() -> None:
        while True:
            await database.read_in_thread(lambda reader: [reader.one(Item, "item", id=0) for _ in range(10)])
            observed.reads += 1

    tasks = [asyncio.create_task(keep_writing()), asyncio.create_task(keep_reading())]
    await observed.burn()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    stored = database.read(lambda reader: reader.one(Count, "count_items"))
    assert stored is not None
    assert stored.number > observed.commits
    await database.close()
    return observed


async def test_a_busy_loop_does_not_starve_its_threads(tmp_path: Path) -> None:
    """While the loop is busy there is a commit and a long read every ten iterations on average.

    On a loaded machine the threads may wait for a processor instead, so one of a few tries must show it.
    """
    seen: list[tuple[int, int]] = []
    while len(seen) < TRIES:
        observed = await observe(tmp_path / f"{len(seen)}.db", yield_gil=True)
        if min(observed.commits, observed.reads) > TURNS // 10:
            return
        seen.append((observed.commits, observed.reads))
    pytest.fail(f"commits and reads in {TURNS} turns: {seen}")


async def test_without_lending_commits_stall(tmp_path: Path) -> None:
    """Without the GIL yield a commit waits many times longer for the same loop, often until the loop is idle.

    A loaded machine interrupts the loop and so lets the threads in by chance; one of a few tries must show it.
    """
    stalls: list[tuple[int, int]] = []
    while len(stalls) < TRIES:
        lent = await observe(tmp_path / f"yielding-{len(stalls)}.db", yield_gil=True)
        kept = await observe(tmp_path / f"kept-{len(stalls)}.db", yield_gil=False)
        if lent.longest_stall * 3 < kept.longest_stall:
            return
        stalls.append((lent.longest_stall, kept.longest_stall))
    pytest.fail(f"longest stalls with and without the GIL yield: {stalls}")
