"""The drivers alone, doing the least that an answer across processes takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg

from benchmarks.peers.protocol import Answer, Question, serve

_PAUSE_S = 0.05
_LOOK_S = 0.005
_TABLE = "CREATE TABLE IF NOT EXISTS events (number integer PRIMARY KEY)"


def _open(url: str) -> apsw.Connection:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(15_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute(_TABLE)
    return connection


async def worker(question: Question) -> Answer:
    """Wait for rows: by a notification on PostgreSQL, by reading ``data_version`` every 5 ms on SQLite."""
    on = _hear if question["url"].startswith("postgresql") else _look
    return await on(question)


async def _look(question: Question) -> Answer:
    connection, entered = _open(question["url"]), dict[int, float]()
    seen = connection.pragma("data_version")
    await asyncio.to_thread(Path(question["ready"]).touch)
    while len(entered) < question["events"]:
        await asyncio.sleep(_LOOK_S)
        version = connection.pragma("data_version")
        if version != seen:
            seen = version
            for row in connection.execute("SELECT number FROM events").fetchall():
                assert isinstance(row[0], int)
                entered.setdefault(row[0], time.monotonic())
    connection.close()
    return {"entered": [entered[number] for number in range(question["events"])]}


async def _hear(question: Question) -> Answer:
    listener, reader = await asyncpg.connect(question["url"]), await asyncpg.connect(question["url"])
    await reader.execute(_TABLE)
    entered, news = dict[int, float](), asyncio.Event()
    await listener.add_listener("events", lambda *_: news.set())
    await asyncio.to_thread(Path(question["ready"]).touch)
    while len(entered) < question["events"]:
        await news.wait()
        news.clear()
        for row in await reader.fetch("SELECT number FROM events"):
            entered.setdefault(row["number"], time.monotonic())
    await listener.close()
    await reader.close()
    return {"entered": [entered[number] for number in range(question["events"])]}


async def sender(question: Question) -> Answer:
    """Commit one row at a time, and send a notification."""
    while not await asyncio.to_thread(Path(question["ready"]).exists):
        await asyncio.sleep(_PAUSE_S)
    if not question["url"].startswith("postgresql"):
        connection = _open(question["url"])

        async def insert(number: int) -> None:
            connection.execute("INSERT INTO events VALUES (?)", (number,))

        return await _send(question["events"], insert)
    server = await asyncpg.connect(question["url"])

    async def insert_and_tell(number: int) -> None:
        await server.execute("INSERT INTO events VALUES ($1)", number)
        await server.execute("NOTIFY events")

    try:
        return await _send(question["events"], insert_and_tell)
    finally:
        await server.close()


async def _send(events: int, insert: Callable[[int], Awaitable[None]]) -> Answer:
    acknowledged: list[float] = []
    for number in range(events):
        await asyncio.sleep(_PAUSE_S)
        await insert(number)
        acknowledged.append(time.monotonic())
    return {"acknowledged": acknowledged}


async def poll(question: Question) -> Answer:
    """Poll a server every 50 ms for work, like a worker without notifications."""
    connection = await asyncpg.connect(question["url"])
    await connection.execute(_TABLE)
    begin, used, queries = time.monotonic(), time.process_time(), 0
    while time.monotonic() < begin + question["seconds"]:
        await connection.fetch("SELECT number FROM events LIMIT 1")
        queries += 1
        await asyncio.sleep(_PAUSE_S)
    taken = time.monotonic() - begin
    answer = {"queries_s": queries / taken, "cpu": (time.process_time() - used) / taken}
    await connection.close()
    return answer


serve(("apsw", "asyncpg"), {"latency_worker": worker, "latency_sender": sender, "idle": poll})
