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


async def test_a_worker_begins_what_it_is_told_before_it_looks(backend_name: str, backend_url: str) -> None:
    """A hinted session whose history is cached is started at once; the poll comes after."""
    if backend_name != "postgres":
        pytest.skip("on SQLite the hint of the file may come before the hint with the name")
    names: list[str] = []

    class Statements(lash.Hook):
        def statement(self, name: str) -> None:
            names.append(name)

    app = lash.App(backend_url, hooks=[Statements()])
    entered: asyncio.Queue[list[str]] = asyncio.Queue()

    @app.agent
    async def agent(turn: Turn) -> str:
        entered.put_nowait(list(names))
        return "ok"

    async with app:
        assert await app.session("s").ask("first", timeout_s=60) == "ok"
        await entered.get()
        # Wait for the poll that follows the first turn.
        await asyncio.sleep(0.5)
        names.clear()
        await app.session("s").send("second")
        taken = await asyncio.wait_for(entered.get(), 60)
    assert taken[:2] == ["queue_enqueue", "queue_facts"]
