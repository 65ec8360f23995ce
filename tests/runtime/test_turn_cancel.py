"""Cancelled turns, and commands to a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import lash
from lash.model.queue import BatchDraft, SessionCommand
from lash.model.session.node import ProtocolEntry
from lash.runtime.app import App
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.turns.end import TurnEnd
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, claim_turn, run_turn, texts


async def test_cancel_ends_the_running_turn_alone(bench: Bench) -> None:
    """Its input is consumed and marked, its output dropped, its usage kept; the next message is answered."""
    app = await bench.app(worker=True)
    started = asyncio.Event()

    @app.agent
    async def agent(turn: Turn) -> str:
        if turn.text == "next":
            return f"state {dict(turn.state)}"
        turn.state["half"] = "done"
        turn.add("half a thought")
        turn.usage("m", input_tokens=3)
        await turn.attach(b"half", "text/plain")
        started.set()
        await asyncio.get_running_loop().create_future()
        return "never"

    chat = app.session("s", agent)
    await chat.send("long", key="long")
    await started.wait()
    await chat.send("next", key="next")
    assert await chat.cancel("the user said so") is True
    with pytest.raises(lash.TurnFailed, match="cancelled"):
        await chat.ask("long", key="long", timeout_s=30)
    assert await chat.ask("next", key="next", timeout_s=30) == "state {}"
    assert [text for _, text in texts(await chat.messages())] == ["long", "next", "state {}"]
    read = await app.storage.session("s").load()
    assert read is not None
    marks = [node.entry for node in read.graph.nodes if isinstance(node.entry, ProtocolEntry)]
    assert [mark.payload for mark in marks] == [{"type": "turn_cancelled", "reason": "the user said so"}]
    assert [entry.usage.input_tokens for entry in read.usage] == [3]
    assert len((await app.storage.attachments.list_uncommitted()).entries) == 1
    await _until(lambda: _is_empty(app))
    assert await chat.dead_letters() == ()


async def test_cancel_is_part_of_the_commit(bench: Bench) -> None:
    """If nothing is queued before it, the commit of the cancelled turn consumes the command."""
    app = await bench.app(worker=True)
    started = asyncio.Event()

    @app.agent
    async def agent(turn: Turn) -> str:
        started.set()
        await asyncio.get_running_loop().create_future()
        return "never"

    chat = app.session("s", agent)
    await chat.send("long", key="long")
    await started.wait()
    await chat.cancel()
    with pytest.raises(lash.TurnFailed, match="cancelled"):
        await chat.ask("long", key="long", timeout_s=30)
    assert await chat.pending() == ()
    head = await app.storage.session("s").head()
    assert head is not None
    assert head.revision == 1


async def test_an_order_that_came_too_late_hits_no_other_turn(bench: Bench) -> None:
    """If its turn has ended, the command is consumed and the next turn is not cancelled."""
    app = await bench.app()
    go_on = asyncio.Event()
    started = asyncio.Event()

    @app.agent
    async def agent(turn: Turn) -> str:
        if turn.text == "first":
            await chat.send("second", key="second")
            assert await chat.cancel() is True
        else:
            started.set()
            await go_on.wait()
        return f"re {turn.text}"

    chat = app.session("s", agent)
    await chat.send("first")
    assert await run_turn(app, "s") is TurnEnd.COMMITTED
    run = await claim_turn(app, "s")
    running = asyncio.create_task(run.run())
    await started.wait()
    await run.check_cancel()
    go_on.set()
    assert await running is TurnEnd.COMMITTED
    await app.drain()
    assert [text for _, text in texts(await chat.messages())] == ["first", "re first", "second", "re second"]
    assert await chat.pending() == ()


async def test_cancel_without_a_turn_does_nothing(bench: Bench) -> None:
    """Neither a message that no worker has started nor the next one is cancelled."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return "ok"

    chat = app.session("s", agent)
    await chat.send("one")
    assert await chat.cancel() is False
    await app.drain()
    assert await chat.cancel() is False
    await chat.send("two")
    await app.drain()
    assert [text for _, text in texts(await chat.messages())] == ["one", "ok", "two", "ok"]


async def test_cancel_of_a_turn_that_waits_for_its_next_attempt(bench: Bench) -> None:
    """The agent is not run again: the turn ends as cancelled when its pause is over."""
    app = await bench.app()
    attempts: list[int] = []

    @app.agent(retry=Retry(max_attempts=5, first_pause_s=60))
    async def agent(turn: Turn) -> str:
        attempts.append(turn.attempt)
        raise ValueError("broken")

    chat = app.session("s", agent)
    await chat.send("x", key="k")
    await app.drain()
    assert await chat.cancel("enough") is True
    await bench.seconds(61)
    await app.drain()
    assert attempts == [1]
    assert await chat.pending() == ()
    with pytest.raises(lash.TurnFailed, match="cancelled"):
        await chat.ask("x", key="k", timeout_s=5)


async def test_an_agent_may_answer_a_cancellation(bench: Bench) -> None:
    """An agent that catches it and returns has its reply committed; the command cancels no other turn."""
    app = await bench.app(worker=True)
    started = asyncio.Event()

    @app.agent
    async def stubborn(turn: Turn) -> str:
        if turn.text == "next":
            return "untouched"
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return "I stop here"
        return "never"

    chat = app.session("s", stubborn)
    await chat.send("long", key="long")
    await started.wait()
    await chat.cancel()
    assert await chat.ask("long", key="long", timeout_s=30) == "I stop here"
    assert await chat.ask("next", timeout_s=30) == "untouched"
    await _until(lambda: _is_empty(app))


async def test_an_agent_that_breaks_while_it_is_cancelled_is_cancelled(bench: Bench) -> None:
    """An error during cancellation does not make a dead letter."""
    app = await bench.app(worker=True)
    started = asyncio.Event()

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise ValueError("clumsy")

    chat = app.session("s", agent)
    await chat.send("x", key="k")
    await started.wait()
    await chat.cancel()
    with pytest.raises(lash.TurnFailed, match="cancelled"):
        await chat.ask("x", key="k", timeout_s=30)
    assert await chat.dead_letters() == ()


async def test_an_unknown_order_is_noted_and_does_not_block(bench: Bench) -> None:
    """An unknown command is consumed with a note, and the messages after it are answered."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return "ok"

    await app.storage.sessions.create("s")
    await app.storage.queue.enqueue(BatchDraft(session_id="s", payloads=(SessionCommand(command="dance"),)))
    await app.session("s", agent).send("x")
    await app.drain()
    assert [note["command"] for note in bench.notes.of("command.unknown")] == ["dance"]
    assert texts(await app.session("s").messages()) == [("user", "x"), ("assistant", "ok")]
    assert await app.session("s").pending() == ()


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 (it is another task that consumes)
            await asyncio.sleep(0.01)


async def _is_empty(app: App) -> bool:
    return await app.session("s").pending() == ()
