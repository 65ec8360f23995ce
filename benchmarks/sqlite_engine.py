"""What each measure of the SQLite engine is worth, as ratios of numbers taken in one run.

Run ``python benchmarks/sqlite_engine.py [--seconds 1.5] [--json]``. Absolute numbers depend on the disk and on what
else the machine does; the ratios are what to look at.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import Queue

import apsw

from lash.clock import SystemClock
from lash.sqlite.database import Database, SQLiteOptions, Transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS head (owner TEXT PRIMARY KEY, revision INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS node (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, payload BLOB NOT NULL);
"""
QUERIES = {
    "advance": "INSERT INTO head VALUES (:owner, 1) ON CONFLICT (owner) DO UPDATE SET revision = revision + 1",
    "append": "INSERT INTO node (owner, payload) VALUES (:owner, :payload)",
}
PAYLOAD = os.urandom(400)
NODES = 3
CALLERS = 32
PROCESSES = 3
Numbers = dict[str, float]


def prepare(connection: apsw.Connection, _new: bool) -> None:  # noqa: FBT001
    """Create the tables."""
    connection.execute(SCHEMA)


def commit_of(owner: str) -> Callable[[Transaction], None]:
    """Return a body that does what a small commit does: one head and three nodes."""

    def body(transaction: Transaction) -> None:
        transaction.run("advance", owner=owner)
        transaction.run_many("append", [{"owner": owner, "payload": PAYLOAD}] * NODES)

    return body


async def open_database(path: str, options: SQLiteOptions) -> Database:
    """Open the file with the queries of this benchmark."""
    return await Database.open(path, queries=QUERIES, prepare=prepare, options=options, clock=SystemClock())


def bare_loop(path: str, seconds: float, group: int) -> float:
    """Return the commits per second of apsw alone, with so many commits in one transaction."""
    connection = apsw.Connection(path)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    prepare(connection, True)
    commits, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        connection.execute("BEGIN IMMEDIATE")
        for number in range(group):
            owner = f"owner-{number}"
            connection.execute(QUERIES["advance"], {"owner": owner})
            for _ in range(NODES):
                connection.execute(QUERIES["append"], {"owner": owner, "payload": PAYLOAD})
        connection.execute("COMMIT")
        commits += group
    connection.close()
    return commits / seconds


async def engine_waits(path: str, seconds: float, callers: int, options: SQLiteOptions) -> list[float]:
    """Return how long each commit of so many concurrent callers took."""
    database = await open_database(path, options)
    waits: list[float] = []
    end = time.perf_counter() + seconds

    async def caller(number: int) -> None:
        while (start := time.perf_counter()) < end:
            await database.write(commit_of(f"owner-{number}"))
            waits.append(time.perf_counter() - start)

    await asyncio.gather(*(caller(number) for number in range(callers)))
    await database.close()
    return waits


async def busy_loop_waits(path: str, seconds: float, options: SQLiteOptions) -> tuple[list[float], float]:
    """Commit while the event loop is kept busy in slices of 0.2 ms; return the waits and the loop's own share."""
    database = await open_database(path, options)
    waits: list[float] = []
    slices = 0
    begin = time.perf_counter()
    end = begin + seconds

    async def caller(number: int) -> None:
        while (start := time.perf_counter()) < end:
            await database.write(commit_of(f"owner-{number}"))
            waits.append(time.perf_counter() - start)
            await asyncio.sleep(0.002)

    async def hog() -> None:
        nonlocal slices
        while time.perf_counter() < end:
            until = time.perf_counter() + 0.0002
            while time.perf_counter() < until:
                pass
            slices += 1
            await asyncio.sleep(0)

    await asyncio.gather(hog(), *(caller(number) for number in range(4)))
    share = slices * 0.0002 / (time.perf_counter() - begin)
    await database.close()
    return waits, share


def process_main(path: str, seconds: float, take_turns: bool, results: Queue[list[float]]) -> None:  # noqa: FBT001
    """Write without a pause, as one of several processes."""
    options = SQLiteOptions(take_turns=take_turns)
    results.put(asyncio.run(engine_waits(path, seconds, 4, options)))


def rival_processes(path: str, seconds: float, *, take_turns: bool) -> list[list[float]]:
    """Return the waits of each of several processes that write to one file."""
    context = multiprocessing.get_context("spawn")
    results: Queue[list[float]] = context.Queue()
    arguments = (path, seconds, take_turns, results)
    processes = [context.Process(target=process_main, args=arguments) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    waits = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return waits


def measure_commits(folder: str, seconds: float) -> Numbers:
    """Group commit against a transaction for each commit, and both against apsw alone."""
    full = SQLiteOptions()
    alone = SQLiteOptions(group_limit=1)
    bare_one = bare_loop(f"{folder}/bare-1", seconds, 1)
    bare_group = bare_loop(f"{folder}/bare-32", seconds, CALLERS)
    one = asyncio.run(engine_waits(f"{folder}/one", seconds, 1, full))
    many = asyncio.run(engine_waits(f"{folder}/many", seconds, CALLERS, full))
    ungrouped = asyncio.run(engine_waits(f"{folder}/alone", seconds, CALLERS, alone))
    return {
        "bare apsw, commits/s": bare_one,
        "bare apsw, 32 in a transaction, commits/s": bare_group,
        "1 caller, commits/s": len(one) / seconds,
        "1 caller, median ms": statistics.median(one) * 1e3,
        "32 callers, commits/s": len(many) / seconds,
        "32 callers, median ms": statistics.median(many) * 1e3,
        "32 callers, one transaction each, commits/s": len(ungrouped) / seconds,
        "ratio: 1 caller / bare": len(one) / seconds / bare_one,
        "ratio: 32 callers / bare": len(many) / seconds / bare_one,
        "ratio: 32 callers / bare with 32 in a transaction": len(many) / seconds / bare_group,
        "ratio: group commit / one transaction each": len(many) / len(ungrouped),
    }


def measure_lending(folder: str, seconds: float) -> Numbers:
    """A busy event loop, with and without lending."""
    lent, share = asyncio.run(busy_loop_waits(f"{folder}/lent", seconds, SQLiteOptions()))
    kept, kept_share = asyncio.run(busy_loop_waits(f"{folder}/kept", seconds, SQLiteOptions(lend_gil=False)))
    return {
        "busy loop, commits/s": len(lent) / seconds,
        "busy loop, longest ms": max(lent) * 1e3,
        "busy loop, share left to the loop": share,
        "busy loop without lending, commits/s": len(kept) / seconds,
        "busy loop without lending, longest ms": max(kept) * 1e3,
        "busy loop without lending, share left to the loop": kept_share,
        "ratio: commits, lending / not": len(lent) / len(kept),
        "ratio: longest wait, not / lending": max(kept) / max(lent),
    }


def measure_turns(folder: str, seconds: float) -> Numbers:
    """Several processes, with and without turns."""
    fair = rival_processes(f"{folder}/fair", seconds, take_turns=True)
    free = rival_processes(f"{folder}/free", seconds, take_turns=False)
    longest_fair, longest_free = (max(max(waits) for waits in group) for group in (fair, free))
    total_fair, total_free = (sum(len(waits) for waits in group) for group in (fair, free))
    return {
        "3 processes, commits/s": total_fair / seconds,
        "3 processes, longest ms": longest_fair * 1e3,
        "3 processes, fewest / most commits": min(map(len, fair)) / max(map(len, fair)),
        "3 processes without turns, commits/s": total_free / seconds,
        "3 processes without turns, longest ms": longest_free * 1e3,
        "3 processes without turns, fewest / most commits": min(map(len, free)) / max(map(len, free)),
        "ratio: commits, turns / none": total_fair / total_free,
        "ratio: longest wait, none / turns": longest_free / longest_fair,
    }


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="how long each measurement runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        for measure in (measure_commits, measure_lending, measure_turns):
            numbers |= measure(folder, arguments.seconds)
    if arguments.json:
        print(json.dumps({name: round(value, 3) for name, value in numbers.items()}))
        return
    for name, value in numbers.items():
        print(f"{name:55}{value:12.2f}")


if __name__ == "__main__":
    main()
