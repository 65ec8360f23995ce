"""What a commit and a read cost, as ratios measured in one run on each backend.

Run with ``python -m benchmarks.sessions [--json] [--commits N] [--large N]``. SQLite writes to a real file with full
durability, PostgreSQL is a private server that waits for the disk. The bare driver writes the same nodes, bytes, usage
and head row by row in a transaction, without checks, fences or replay.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import apsw
import asyncpg

import lash
from lash.ids import new_id
from lash.testing.factories import commit, draft, node, spent
from lash.testing.postgres_server import PostgresServer

_SIZES = (1, 20, 200)
_CALLERS = 32
_TAIL = 20
_TABLES = (
    "CREATE TABLE bare_heads (session text PRIMARY KEY, revision bigint)",
    "CREATE TABLE bare_nodes (session text, id text, parent text, body text, PRIMARY KEY (session, id))",
    "CREATE TABLE bare_blobs (hash text PRIMARY KEY, content text)",
    "CREATE TABLE bare_usage (session text, tokens bigint)",
)
_HEAD = "INSERT INTO bare_heads VALUES ($1, 1) ON CONFLICT (session) DO UPDATE SET revision = bare_heads.revision + 1"
_NODE = "INSERT INTO bare_nodes VALUES ($1, $2, $3, $4)"
_BLOB = "INSERT INTO bare_blobs VALUES ($1, $2)"
_USAGE = "INSERT INTO bare_usage VALUES ($1, $2)"


class Writer:
    """Commits chains of nodes to one session, each turn below the last."""

    def __init__(self, storage: lash.Storage) -> None:
        self._storage = storage
        self.session_id = new_id()
        self._revision = 0
        self._leaf: str | None = None

    async def commit(self, size: int) -> None:
        """Commit one turn of this many nodes; the first creates the session."""
        if self._revision == 0:
            await self._storage.sessions.create(self.session_id)
        nodes = []
        for _ in range(size):
            nodes.append(node(new_id(), self._leaf, text="x" * 300))
            self._leaf = nodes[-1].node_id
        turn = commit(
            self._revision,
            *nodes,
            session_id=self.session_id,
            turn_id=new_id(),
            checkpoint=draft(components={"tool_state": new_id().encode() * 60}),
            usage=(spent(100),),
        )
        self._revision = (await self._storage.session(self.session_id).commit(turn)).revision


async def per_second(action: Callable[[], Awaitable[object]], times: int) -> float:
    """Return how often the action runs in a second, after one run to warm up."""
    await action()
    begin = time.perf_counter()
    for _ in range(times):
        await action()
    return times / (time.perf_counter() - begin)


async def measure(
    storage: lash.Storage, bare: Callable[[int], Awaitable[None]], commits: int, large: int
) -> dict[str, float]:
    """Measure one backend; every figure is a ratio but the first."""
    writer, results = Writer(storage), dict[str, float]()
    alone = await per_second(partial(writer.commit, 3), commits)
    results["commits per second, 3 nodes, one caller"] = round(alone)
    writers = [Writer(storage) for _ in range(_CALLERS)]
    begin = time.perf_counter()
    await asyncio.gather(*(_repeat(each, commits // 4) for each in writers))
    together = _CALLERS * (commits // 4) / (time.perf_counter() - begin)
    results[f"{_CALLERS} callers / one caller"] = round(together / alone, 2)
    for size in _SIZES:
        fresh = Writer(storage)
        ours = await per_second(partial(fresh.commit, size), max(10, commits // size))
        theirs = await per_second(partial(bare, size), max(10, commits // size))
        results[f"commit of {size} nodes, lash / bare driver row by row"] = round(ours / theirs, 2)
    results |= await _growth(storage, commits, large)
    return results


async def _growth(storage: lash.Storage, commits: int, large: int) -> dict[str, float]:
    """Compare a session of a hundred nodes with a large one."""
    figures = []
    for count in (100, large):
        writer = Writer(storage)
        for _ in range(count // 100):
            await writer.commit(100)
        session = storage.session(writer.session_id)
        tail = await per_second(partial(session.load, lash.ActivePath(last=_TAIL)), commits)
        figures.append((await per_second(partial(writer.commit, 3), commits), tail))
    (small_commit, small_tail), (large_commit, large_tail) = figures
    return {
        f"commit, {large} stored nodes / 100 stored nodes": round(large_commit / small_commit, 2),
        f"last {_TAIL} of a path, {large} stored nodes / 100 stored nodes": round(large_tail / small_tail, 2),
    }


async def _repeat(writer: Writer, times: int) -> None:
    for _ in range(times):
        await writer.commit(3)


def _rows(session: str, size: int) -> list[tuple[str, str, str | None, str]]:
    return [(session, new_id(), None, "x" * 400) for _ in range(size)]


async def measure_sqlite(folder: str, commits: int, large: int) -> dict[str, float]:
    """Measure SQLite with full durability against the driver in one thread."""
    connection = apsw.Connection(str(Path(folder) / "bare.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    for statement in _TABLES:
        connection.execute(statement)

    async def bare(size: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_HEAD, ("s",))
        connection.executemany(_NODE, _rows("s", size))
        connection.execute(_BLOB, (new_id(), "x" * 2000))
        connection.execute(_USAGE, ("s", 100))
        connection.execute("COMMIT")

    async with await lash.open(f"sqlite:///{Path(folder) / 'lash.db'}") as storage:
        return await measure(storage, bare, commits, large)


async def measure_postgres(url: str, commits: int, large: int) -> dict[str, float]:
    """Measure PostgreSQL against the driver on one connection."""
    connection = await asyncpg.connect(url)
    for statement in _TABLES:
        await connection.execute(statement)

    async def bare(size: int) -> None:
        async with connection.transaction():
            await connection.execute(_HEAD, "s")
            for row in _rows("s", size):
                await connection.execute(_NODE, *row)
            await connection.execute(_BLOB, new_id(), "x" * 2000)
            await connection.execute(_USAGE, "s", 100)

    async with await lash.open(url) as storage:
        results = await measure(storage, bare, commits, large)
    await connection.close()
    return results


def main() -> None:
    """Measure both backends and print what came out."""
    parser = argparse.ArgumentParser(description="Ratios of commits and reads, measured in one run.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--commits", type=int, default=400, help="how many commits a figure is made of")
    parser.add_argument("--large", type=int, default=20_000, help="how many nodes the large session holds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = {"sqlite": asyncio.run(measure_sqlite(folder, options.commits, options.large))}
    with PostgresServer(durable=True) as server:
        results["postgres"] = asyncio.run(measure_postgres(server.url, options.commits, options.large))
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for backend, figures in results.items():
        print(backend)
        for what, figure in figures.items():
            print(f"  {what:<65} {figure:>8}")


if __name__ == "__main__":
    main()
