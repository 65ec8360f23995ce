"""What order a worker runs queued sessions in: a new conversation and an urgent one do not wait for a backlog."""

from __future__ import annotations

from lash.runtime.policy import WorkerOptions
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench


async def test_new_and_urgent_conversations_pass_a_backlog(bench: Bench) -> None:
    """On one slot, a new conversation, its next message, and an urgent one wait for at most three other turns each."""
    app = await bench.app(options=WorkerOptions(sessions=1))
    ran: list[str] = []

    @app.agent
    async def clerk(turn: Turn) -> str:
        ran.append(turn.session_id)
        if len(ran) == 1:
            # The worker is busy here while all of the following is sent.
            for number in range(40):
                await app.session(f"old{number}", agent="clerk").send("x")
            await app.session("new", agent="clerk").send("x")
        elif turn.session_id == "new" and turn.text == "x":
            await app.session("new", agent="clerk").send("y")
            await app.session("urgent", agent="clerk").send("x", priority=9)
        return "done"

    await app.session("first", agent=clerk).send("x")
    await app.drain()
    first, second = (place for place, name in enumerate(ran) if name == "new")
    assert first <= 4
    assert second - first <= 4
    assert ran.index("urgent") - first <= 4
    assert len(ran) == 44
    assert ran.index("old0") < ran.index("old9") < ran.index("old19")


async def test_a_child_is_as_urgent_as_its_parent(bench: Bench) -> None:
    """A turn asks another session with the priority of its own message."""
    app = await bench.app()
    priorities: list[int] = []

    @app.agent
    async def expert(turn: Turn) -> str:
        priorities.extend(batch.priority for batch in turn.batches)
        return "done"

    @app.agent
    async def front(turn: Turn) -> str:
        priorities.extend(batch.priority for batch in turn.batches)
        return await turn.ask(expert, turn.text)

    chat = app.session("s", agent=front)
    await chat.send("x", priority=4)
    await app.drain()
    assert priorities == [4, 4, 4]
