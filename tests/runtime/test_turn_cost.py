"""The statements of one turn."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.runtime.turns.turn import Turn

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

ON_POSTGRES = ["queue_enqueue", "work_poll", "queue_facts", "queue_claim_turn", "commit_alone_leased", "work_poll"]
"""The message, the poll that finds it, the facts, lease and claim, the commit, and the poll that finds no more."""
ON_SQLITE = 39
"""Statements, with the ones that begin and end a transaction."""
BY_A_WORKER = {"postgres": 2, "sqlite": 15}
"""The message with its turn, and the commit; the reply is in memory, and there is nothing to poll for."""


async def test_a_turn_is_few_statements(backend_name: str, backend_url: str) -> None:
    """From a message to its committed turn: six round trips on PostgreSQL, three write transactions on SQLite."""
    names: list[str] = []

    class Statements(lash.Hook):
        def statement(self, name: str) -> None:
            names.append(name)

    app = lash.App(backend_url, worker=False, hooks=[Statements()])

    @app.agent
    async def agent(turn: Turn) -> str:
        return f"re: {turn.text}"

    async with app:
        for text in ("first", "second"):
            await app.session("s").send(text)
            await app.drain()
        names.clear()
        await app.session("s").send("third")
        await app.drain()
        taken = list(names)
    if backend_name == "postgres":
        assert taken == ON_POSTGRES
    else:
        assert len(taken) <= ON_SQLITE


async def test_a_turn_begins_with_its_message(backend_name: str, backend_url: str) -> None:
    """A worker of the sender's own application takes the lease with the message: one write less, and no poll."""
    names: list[str] = []

    class Statements(lash.Hook):
        def statement(self, name: str) -> None:
            names.append(name)

    # A poll by the clock does not come during the test.
    app = lash.App(backend_url, hooks=[Statements()], options=lash.WorkerOptions(poll_s=600))
    begun: list[list[str]] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        begun.append([each for each in names if each not in {"begin", "commit"}])
        return f"re: {turn.text}"

    async with app:
        for text in ("first", "second"):
            assert await app.session("s").ask(text, timeout_s=60) == f"re: {text}"
            # Wait for the poll that follows the turn.
            await asyncio.sleep(0.5)
        names.clear()
        assert await app.session("s").ask("third", timeout_s=60) == "re: third"
        await asyncio.sleep(0.5)
        taken = list(names)
    if backend_name == "postgres":
        assert begun[-1] == ["queue_enqueue_turn"]
    else:
        assert begun[-1] == ["queue_head", "queue_reserve_key", "queue_insert", "lease_acquire"]
    assert len(taken) <= BY_A_WORKER[backend_name], (len(taken), taken)
