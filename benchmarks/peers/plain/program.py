"""A table of messages, written by hand: the least that a store of conversations can do."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks.peers.protocol import Answer, Question, Watch, all_turns, digest, serve

_TABLE = "CREATE TABLE IF NOT EXISTS messages (id {key}, session TEXT NOT NULL, role TEXT NOT NULL, body TEXT NOT NULL)"
_INDEX = "CREATE INDEX IF NOT EXISTS messages_of_session ON messages (session, id)"
Write = Callable[[int, dict[str, str]], Awaitable[None]]


async def chat(question: Question) -> Answer:
    """Insert four rows for each turn in one transaction, the sessions at once."""
    on = _on_postgres if question["url"].startswith("postgresql") else _on_sqlite
    return await on(question)


async def _converse(question: Question, write: Write) -> Watch:
    numbers, turns = question["sessions"], question["turns"]
    texts = all_turns(numbers, turns)
    watch = Watch()

    async def one(session: int) -> None:
        for number, turn in enumerate(texts[session]):
            began = time.monotonic()
            await write(session, turn)
            watch.note(number, began)

    watch.start(question)
    await asyncio.gather(*(one(session) for session in numbers))
    watch.stop()
    return watch


async def _on_sqlite(question: Question) -> Answer:
    connection = sqlite3.connect(question["url"].removeprefix("sqlite:///"), isolation_level=None)
    for statement in ("PRAGMA journal_mode = wal", "PRAGMA synchronous = full", "PRAGMA busy_timeout = 15000"):
        connection.execute(statement)
    connection.execute(_TABLE.format(key="INTEGER PRIMARY KEY"))
    connection.execute(_INDEX)

    async def write(session: int, turn: dict[str, str]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        rows = [(f"session-{session}", part, text) for part, text in turn.items()]
        connection.executemany("INSERT INTO messages (session, role, body) VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")

    watch = await _converse(question, write)
    digests = []
    for session in question["sessions"]:
        rows = connection.execute("SELECT body FROM messages WHERE session = ? ORDER BY id", (f"session-{session}",))
        digests.append(digest(body for (body,) in rows))
    connection.close()
    return watch.answer(digests=digests)


async def _on_postgres(question: Question) -> Answer:
    async with asyncpg.create_pool(question["url"], min_size=1, max_size=16) as pool:
        await pool.execute(_TABLE.format(key="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"))
        await pool.execute(_INDEX)

        async def write(session: int, turn: dict[str, str]) -> None:
            rows = [(f"session-{session}", part, text) for part, text in turn.items()]
            async with pool.acquire() as connection, connection.transaction():
                await connection.executemany("INSERT INTO messages (session, role, body) VALUES ($1, $2, $3)", rows)

        watch = await _converse(question, write)
        digests = []
        for session in question["sessions"]:
            rows = await pool.fetch("SELECT body FROM messages WHERE session = $1 ORDER BY id", f"session-{session}")
            digests.append(digest(row["body"] for row in rows))
    return watch.answer(digests=digests)


async def reopen(question: Question) -> Answer:
    """Open the file again and read the last twenty messages, then all."""
    began = time.monotonic()
    connection = sqlite3.connect(question["url"].removeprefix("sqlite:///"))
    tail = "SELECT body FROM messages WHERE session = 'session-0' ORDER BY id DESC LIMIT 20"
    assert len(connection.execute(tail).fetchall()) == 20
    last = time.monotonic()
    rows = connection.execute("SELECT body FROM messages WHERE session = 'session-0' ORDER BY id")
    found = digest(body for (body,) in rows)
    return {"last_ms": (last - began) * 1e3, "all_ms": (time.monotonic() - last) * 1e3, "digests": [found]}


serve(("asyncpg",), {"chat": chat, "reopen": reopen})
