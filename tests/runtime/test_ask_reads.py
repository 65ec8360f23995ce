"""How often callers that wait for replies read the database."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import lash
from lash.backend.session_waiter import SharedSessionWaiter

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


async def test_a_message_that_is_being_sent_is_not_asked_for(backend_url: str) -> None:
    """However long sending takes, the polls meanwhile neither query for the message nor wake its caller."""
    statements = Statements()
    async with await lash.open(backend_url, on_statement=statements.statement) as storage:
        waiter = storage.session_waiter
        assert isinstance(waiter, SharedSessionWaiter)
        often = SharedSessionWaiter(waiter._rows, storage.activity, storage.hints, poll_s=0.001)
        with often.awaiting_reply("s") as watch, pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await watch.changed()
        await often.close()
    assert reads(statements) == 0
