"""How often callers that wait for replies read the database."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import lash

CALLERS = 200
MOST_READS = 2 * CALLERS
READS = ("node_one", "queue_page", "reply_queued")
"""The statements that read a node, a page of the queue, and the messages that many callers wait for."""

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


class Statements(lash.Hook):
    """Counts statements by name."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def statement(self, name: str) -> None:
        self.names[name] += 1


def reads(statements: Statements) -> int:
    """Return the number of reads for replies."""
    return sum(statements.names[name] for name in READS)


async def reply(turn: lash.Turn) -> str:
    return f"re: {turn.text}"


async def asked(app: lash.App) -> None:
    """Let each caller ask a session of its own, concurrently."""
    texts = [str(number) for number in range(CALLERS)]
    replies = await asyncio.gather(*(app.session(f"s{text}").ask(text, timeout_s=120) for text in texts))
    assert replies == [f"re: {text}" for text in texts]


async def prepared(app: lash.App) -> None:
    for number in range(CALLERS):
        await app.storage.sessions.create(f"s{number}")


async def test_a_reply_takes_at_most_two_reads(backend_url: str) -> None:
    """200 callers on 200 sessions, answered in the same process: a caller reads only after hints for its session."""
    statements = Statements()
    app = lash.App(backend_url, hooks=[statements])
    app.agent(reply)
    async with app:
        await prepared(app)
        statements.names.clear()
        await asked(app)
    assert reads(statements) <= MOST_READS


async def test_a_reply_from_another_storage_takes_at_most_two_reads(backend_url: str) -> None:
    """200 callers, answered by a worker on another storage; where hints name no session, callers share a read."""
    statements = Statements()
    app = lash.App(backend_url, worker=False, hooks=[statements])
    app.agent(reply)
    other = lash.App(backend_url)
    other.agent(reply)
    async with other, app:
        await prepared(app)
        statements.names.clear()
        await asked(app)
    assert reads(statements) <= MOST_READS
