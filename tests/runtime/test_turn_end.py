"""Lost and released turns, and concurrent commits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from lash.model.session.checkpoint import CheckpointDraft
from lash.model.session.commit import Append, Commit
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from lash.runtime.app import App
from lash.runtime.policy import NO_RETRY
from lash.runtime.turns.end import TurnEnd
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, claim_turn, run_turn, texts


async def test_a_turn_whose_lease_was_taken_changes_nothing(bench: Bench) -> None:
    """The old run cannot record, add or commit; the new one replays the records and runs the rest, once."""
    app = await bench.app()
    calls: list[str] = []
    stolen = False

    async def first() -> str:
        calls.append("first")
        return "one"

    async def second() -> str:
        calls.append("second")
        return "two"

    @app.agent
    async def agent(turn: Turn) -> str:
        nonlocal stolen
        one = await turn.step(first)
        if not stolen:
            stolen = True
            # The lease expires, and another worker runs the turn meanwhile.
            await bench.seconds(3_600)
            ended.append(await run_turn(app, "s"))
        return f"{one} {await turn.step(second)}"

    ended: list[TurnEnd] = []
    chat = app.session("s", agent)
    await chat.send("x")
    ended.append(await run_turn(app, "s"))
    assert ended == [TurnEnd.COMMITTED, TurnEnd.LOST]
    assert calls == ["first", "second", "second"]
    assert texts(await chat.messages()) == [("user", "x"), ("assistant", "one two")]
    head = await app.storage.session("s").head()
    assert head is not None
    assert head.revision == 1
    assert await chat.dead_letters() == ()


async def test_a_lost_turn_is_stopped_even_if_its_agent_resists(bench: Bench) -> None:
    """An agent that swallows its cancellation after the loss commits nothing."""
    app = await bench.app()
    started = asyncio.Event()

    @app.agent
    async def stubborn(turn: Turn) -> str:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return "still here"
        return "never"

    chat = app.session("s", stubborn)
    await chat.send("x")
    run = await claim_turn(app, "s")
    running = asyncio.create_task(run.run())
    await started.wait()
    run.lose()
    assert await running is TurnEnd.LOST
    assert [note["session_id"] for note in bench.notes.of("lease.lost")] == ["s"]
    assert await app.storage.session("s").load() is None
    assert len(await chat.pending()) == 1


async def test_a_turn_that_is_given_back_costs_no_attempt(bench: Bench) -> None:
    """A stopping worker releases its turn: the next worker replays its steps in attempt 1."""
    app = await bench.app()
    started = asyncio.Event()
    calls: list[int] = []

    async def step() -> str:
        calls.append(1)
        return "done"

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        done = await turn.step(step)
        if not started.is_set():
            started.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                return "half a reply"
        return f"{done} in attempt {turn.attempt}"

    chat = app.session("s", agent)
    await chat.send("x", key="k")
    run = await claim_turn(app, "s")
    running = asyncio.create_task(run.run())
    await started.wait()
    run.release()
    assert await running is TurnEnd.RELEASED
    assert await app.storage.leases.holder("s") is None
    await app.drain()
    assert await chat.ask("x", key="k", timeout_s=5) == "done in attempt 1"
    assert calls == [1]


@pytest.mark.parametrize("end", ["release", "lose"])
async def test_a_run_that_is_stopped_before_it_began(bench: Bench, end: str) -> None:
    """The agent is never called, and the message stays queued."""
    app = await bench.app()
    calls: list[str] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        calls.append(turn.text)
        return "ok"

    chat = app.session("s", agent)
    await chat.send("x")
    run = await claim_turn(app, "s")
    getattr(run, end)()
    assert await run.run() is (TurnEnd.RELEASED if end == "release" else TurnEnd.LOST)
    assert calls == []
    await app.drain()
    assert calls == ["x"]


async def test_a_deleted_session_ends_its_turn(bench: Bench) -> None:
    """A turn whose session is deleted meanwhile commits nothing and raises nothing."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        await app.session("s").delete()
        return "into the void"

    await app.session("s", agent).send("x")
    assert await run_turn(app, "s") is TurnEnd.LOST
    assert await app.storage.sessions.open("s") is None


async def test_a_host_commit_beside_the_lease_is_kept(bench: Bench) -> None:
    """A commit of the host during a turn and the turn's own commit both stand, with nodes and state of both."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        if turn.text == "look":
            return str(sorted(turn.state.items()))
        turn.state["turn"] = "mine"
        await _host_commit(app, "s", {"host": b'{"value":"theirs"}', "old": b'{"value":2}'})
        return "ok"

    chat = app.session("s", agent)
    await chat.send("x")
    await app.drain()
    await chat.send("look")
    await app.drain()
    assert [text for _, text in texts(await chat.messages())] == [
        "from the host",
        "x",
        "ok",
        "look",
        "[('host', 'theirs'), ('old', 2), ('turn', 'mine')]",
    ]


async def _host_commit(app: App, session_id: str, components: dict[str, bytes]) -> None:
    head = await app.storage.session(session_id).head()
    entry = MessageEntry(message=Message.of_text("host", Role.SYSTEM, "from the host"))
    node = Node(
        node_id="host",
        parent_node_id=None if head is None else head.leaf_node_id,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        entry=entry,
    )
    await app.storage.session(session_id).commit(
        Commit(
            session_id=session_id,
            expected_revision=0 if head is None else head.revision,
            graph=Append(nodes=(node,)),
            checkpoint=CheckpointDraft(components=components),
        )
    )
