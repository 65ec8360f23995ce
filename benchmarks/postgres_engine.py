"""What the PostgreSQL engine saves: ratios measured in one run on one server, so that they can be compared.

Run with ``python benchmarks/postgres_engine.py [--json] [--calls N]``. The server is a private one that waits for the
disk. Each pair is measured in alternating rounds, and the best round of each side counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import asyncpg
import msgspec

from lash.postgres.database import Database
from lash.postgres.options import PostgresOptions
from lash.testing.postgres_server import PostgresServer, find_binaries

ROUNDS = 3
STATEMENTS = 6
QUERIES = {
    "create": "CREATE TABLE items (id bigint PRIMARY KEY, n bigint NOT NULL)",
    "fill": "INSERT INTO items SELECT id, 0 FROM generate_series(1, 6) AS id",
    "get": "SELECT id, n FROM items WHERE id = $1",
    "add": "UPDATE items SET n = n + 1 WHERE id = $1 RETURNING id, n",
    "add_all": "UPDATE items SET n = n + 1 WHERE id <= $1 RETURNING id, n",
}


class Item(msgspec.Struct, array_like=True):
    id: int
    n: int


Action = Callable[[], Awaitable[object]]


async def calls_per_second(action: Action, calls: int) -> float:
    await action()
    start = time.perf_counter()
    for _ in range(calls):
        await action()
    return calls / (time.perf_counter() - start)


async def ratio(fast: Action, slow: Action, calls: int) -> dict[str, float]:
    """Measure both by turns and compare the best rounds."""
    rounds = [(await calls_per_second(fast, calls), await calls_per_second(slow, calls)) for _ in range(ROUNDS)]
    best_fast, best_slow = max(pair[0] for pair in rounds), max(pair[1] for pair in rounds)
    return {"fast_per_s": round(best_fast), "slow_per_s": round(best_slow), "ratio": round(best_fast / best_slow, 2)}


async def in_transaction(database: Database) -> None:
    async with database.transaction() as transaction:
        for item in range(1, STATEMENTS + 1):
            await transaction.run("add", item)


async def measure(url: str, calls: int) -> dict[str, dict[str, float]]:
    options = PostgresOptions.from_url(url)
    ours = await Database.open(options, queries=QUERIES)
    async with asyncpg.create_pool(options.dsn, min_size=0) as resetting_pool:
        resetting = await Database.open(options, queries=QUERIES, pool=resetting_pool)
        async with ours.transaction() as transaction:
            await transaction.run("create")
            await transaction.run("fill")
        results = {
            "read: no reset / driver's reset": await ratio(
                lambda: ours.read_one(Item, "get", 1), lambda: resetting.read_one(Item, "get", 1), calls
            ),
            "write: no reset / driver's reset": await ratio(
                lambda: ours.write_one(Item, "add", 1, repeatable=False),
                lambda: resetting.write_one(Item, "add", 1, repeatable=False),
                calls,
            ),
            "six rows: one statement / BEGIN, six statements, COMMIT": await ratio(
                lambda: ours.write_one(Item, "add_all", STATEMENTS, repeatable=False),
                lambda: in_transaction(ours),
                calls,
            ),
            "read: bare driver on one connection / engine": await ratio(
                await bare_read(options.dsn), lambda: ours.read_one(Item, "get", 1), calls
            ),
        }
        await resetting.close()
    await ours.close()
    return results


async def bare_read(dsn: str) -> Action:
    connection = await asyncpg.connect(dsn)

    async def read() -> object:
        return await connection.fetch(QUERIES["get"], 1)

    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--calls", type=int, default=500, help="calls in each round")
    arguments = parser.parse_args()
    with PostgresServer(durable=True, binaries=find_binaries()) as server:
        results = asyncio.run(measure(server.url, arguments.calls))
    if arguments.json:
        print(json.dumps(results))
        return
    for name, numbers in results.items():
        print(f"{name}: {numbers['ratio']} ({numbers['fast_per_s']:.0f}/s against {numbers['slow_per_s']:.0f}/s)")


if __name__ == "__main__":
    main()
