"""What a turn asks of the database, statement by statement."""

from __future__ import annotations

import pytest

import lash
from lash.runtime.turn import Turn

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

ON_POSTGRES = ["queue_enqueue", "work_look", "queue_facts", "queue_begin_turn", "commit_apply", "work_look"]
"""The message, the look that finds it, what is there, lease and claim, the commit, and the look that finds no more."""
ON_SQLITE = 41
"""Statements, with those that begin and end a transaction."""


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
