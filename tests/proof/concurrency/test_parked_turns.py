"""Very many turns that ask each other, on few slots."""

from __future__ import annotations

import asyncio
import os
from typing import Final

import pytest

import lash

PARENTS: Final = {"sqlite": 250, "postgres": 250}
"""A thousand take a minute; `LASH_PARENTS=1000` sets another number for both."""
BOTH: Final = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


@BOTH
@pytest.mark.timeout(600)
async def test_many_parents_on_one_slot(backend_url: str, backend_name: str) -> None:
    """Hundreds of turns ask two children each on one slot; all finish, and each question is answered once."""
    parents = int(os.environ.get("LASH_PARENTS", PARENTS[backend_name]))
    answered: list[str] = []
    app = lash.App(backend_url, options=lash.WorkerOptions(sessions=1))

    @app.agent
    async def expert(turn: lash.Turn) -> str:
        answered.append(turn.text)
        return f"re {turn.text}"

    @app.agent
    async def front(turn: lash.Turn) -> str:
        first, second = await turn.gather(turn.ask(expert, turn.text + "a"), turn.ask(expert, turn.text + "b"))
        return f"{first} {second}"

    async with app:
        chats = [app.session(f"s{number}", agent=front) for number in range(parents)]
        replies = await asyncio.gather(*(chat.ask(chat.session_id, timeout_s=540) for chat in chats))
        assert replies == [f"re s{number}a re s{number}b" for number in range(parents)]
        assert len(answered) == len(set(answered)) == 2 * parents
        counts = await app.storage.counts()
        assert counts.queued == 0
