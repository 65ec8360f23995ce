"""Observation through an application, from any process: the pieces of a turn, then its commit."""

from __future__ import annotations

import asyncio

import pytest

import lash


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_turn_is_seen_as_it_runs_and_before_its_commit(backend_url: str, backend_name: str) -> None:
    """Pieces arrive in order and before the commit; a cursor in the middle continues after it."""
    app = lash.App(backend_url)

    @app.agent
    async def assistant(turn: lash.Turn) -> str:
        for piece in ("to", "be"):
            turn.activity({"text": piece})
        return "to be"

    async with app, lash.App(backend_url, worker=False) as elsewhere:
        chat = app.session("s", agent=assistant)
        stream = elsewhere.session("s").observe(await elsewhere.session("s").cursor())
        await chat.ask("say it", timeout_s=20)
        seen: list[lash.Observed] = []
        async with asyncio.timeout(60):
            while not any(isinstance(each, lash.Committed) for each in seen):
                seen.append(await anext(stream))
        shown = [each for each in seen if isinstance(each, lash.TurnActivity)]
        assert [each.payload for each in shown] == [{"text": "to"}, {"text": "be"}]
        assert isinstance(seen[-1], lash.Committed)
        again = elsewhere.session("s").observe(shown[0].cursor)
        async with asyncio.timeout(60):
            following = await anext(again)
        assert isinstance(following, lash.TurnActivity)
        assert following.payload == {"text": "be"}
        await stream.aclose()
        await again.aclose()
