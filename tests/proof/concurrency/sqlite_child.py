"""A process that writes to a SQLite file, started and controlled by the tests.

``python -m tests.proof.concurrency.sqlite_child ROLE PATH ARGUMENT…`` prints ``ready`` once the file is open, plays
its role after a line on standard input, and prints what it did.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine

import apsw

from lash.base.clock import SystemClock
from lash.sqlite.engine.database import Database, SQLiteOptions, Transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY AUTOINCREMENT, writer TEXT NOT NULL, number INTEGER NOT NULL);
"""
QUERIES = {"insert_entry": "INSERT INTO entry (writer, number) VALUES (:writer, :number)"}
FOREVER = 600


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def open_entries(path: str, options: SQLiteOptions, report: Callable[[bool], None] | None = None) -> Database:
    def prepare(connection: apsw.Connection, new: bool) -> None:  # noqa: FBT001
        connection.execute(SCHEMA)
        if report is not None:
            report(new)

    return await Database.open(path, queries=QUERIES, prepare=prepare, options=options, clock=SystemClock())


def pair(writer: str, number: int) -> Callable[[Transaction], None]:
    def body(transaction: Transaction) -> None:
        for _ in range(2):
            transaction.run("insert_entry", writer=writer, number=number)

    return body


async def compete(path: str, writer: str, fair_lock: str, commits: str) -> None:
    """Write with two callers without a pause, one row per commit."""
    database = await open_entries(path, SQLiteOptions(fair_lock=fair_lock == "yes"))
    say("ready")
    sys.stdin.readline()

    async def caller() -> None:
        for number in range(int(commits)):
            await database.write(lambda transaction: transaction.run("insert_entry", writer=writer, number=number))  # noqa: B023

    await asyncio.gather(caller(), caller())
    await database.close()


async def first_open(path: str, writer: str) -> None:
    """Open a file that may not exist yet, print whether it was new, and write one row."""
    say("ready")
    sys.stdin.readline()
    new: list[bool] = []
    database = await open_entries(path, SQLiteOptions(), new.append)
    await database.write(lambda transaction: transaction.run("insert_entry", writer=writer, number=0))
    await database.close()
    say("new" if new == [True] else "old")


async def hold(path: str) -> None:
    """Stay inside a write transaction until killed."""
    database = await open_entries(path, SQLiteOptions())

    def body(transaction: Transaction) -> None:
        transaction.run("insert_entry", writer="held", number=0)
        say("ready")
        time.sleep(FOREVER)

    await database.write(body)


async def until_killed(path: str, writer: str) -> None:
    """Write pairs of rows with four callers and print each number once it is acknowledged."""
    database = await open_entries(path, SQLiteOptions(checkpoint_pages=20))
    say("ready")
    numbers = iter(range(10**9))

    async def caller() -> None:
        for number in numbers:
            await database.write(pair(writer, number))
            say(str(number))

    await asyncio.gather(*(caller() for _ in range(4)))


ROLES: dict[str, Callable[..., Coroutine[None, None, None]]] = {
    "compete": compete,
    "first_open": first_open,
    "hold": hold,
    "until_killed": until_killed,
}

if __name__ == "__main__":
    asyncio.run(ROLES[sys.argv[1]](*sys.argv[2:]))
