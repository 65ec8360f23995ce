"""A session as application code uses it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import lash
from lash.model.queue import BatchDraft, SessionCommand
from lash.runtime.policy import NO_RETRY
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, texts


async def test_ask_returns_the_reply(bench: Bench) -> None:
    """A worker of any app answers; asking again under the same key returns the same reply without a turn."""
    app = await bench.app(worker=True)
    asked: list[str] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        asked.append(turn.text)
        return f"re {turn.text}"

    asking = await bench.app() if bench.shared else app
    if asking is not app:
        asking.agent(agent.function)
    chat = asking.session("s", "agent")
    assert await chat.ask("hello", key="k", timeout_s=30) == "re hello"
    assert await chat.ask("hello", key="k", timeout_s=30) == "re hello"
    assert asked == ["hello"]


async def test_a_session_nobody_spoke_to_is_empty(bench: Bench) -> None:
    """Reading works before the first message and after it; a deleted session raises its own error."""
    app = await bench.app()
    chat = app.session("s")
    assert (await chat.messages(), await chat.messages(last=2)) == ([], [])
    assert (await chat.usage(), await chat.pending(), await chat.dead_letters()) == ((), (), ())
    await chat.send("hello")
    assert len(await chat.pending()) == 1
    await chat.delete()
    for reading in (chat.messages, chat.usage, chat.pending):
        with pytest.raises(lash.SessionDeleted):
            await reading()


async def test_ask_raises_for_a_dead_letter(bench: Bench) -> None:
    """TurnFailed has the reason, also for later callers and behind a hundred other dead letters."""
    app = await bench.app()

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        raise ValueError(f"no {turn.text}")

    chat = app.session("s", agent)
    for number in range(101):
        await chat.send(f"{number}")
    await chat.send("last", key="k")
    await app.drain()
    with pytest.raises(lash.TurnFailed, match="ValueError: no last") as failed:
        await chat.ask("last", key="k", timeout_s=5)
    assert failed.value.session_id == "s"


async def test_ask_gives_up_and_goes_on(bench: Bench) -> None:
    """After a timeout the message stays, and asking again under the same key waits for the same turn."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return "at last"

    chat = app.session("s", agent)
    with pytest.raises(lash.WaitTimedOut, match="'k'"):
        await chat.ask("x", key="k", timeout_s=0.02)
    assert len(await chat.pending()) == 1
    await app.drain()
    assert await chat.ask("x", key="k", timeout_s=5) == "at last"


async def test_ask_waits_through_a_requeue(bench: Bench) -> None:
    """The caller waits for a requeued message as for any other."""
    app = await bench.app()
    broken = True

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        if broken:
            raise ValueError("broken")
        return "fixed"

    chat = app.session("s", agent)
    sent = await chat.send("x", key="k")
    await app.drain()
    broken = False
    await chat.requeue(sent.batch_id)
    asking = asyncio.create_task(chat.ask("x", key="k", timeout_s=30))
    await asyncio.sleep(0)
    await app.drain()
    assert await asking == "fixed"


async def test_ask_of_a_message_that_was_taken_back(bench: Bench) -> None:
    """A message that was cancelled before its turn raises TurnFailed."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return "never"

    chat = app.session("s", agent)
    sent = await chat.send("x", key="k")
    await app.storage.queue.cancel("s", sent.batch_id)
    with pytest.raises(lash.TurnFailed, match="cancelled"):
        await chat.ask("x", key="k", timeout_s=5)


async def test_ask_does_not_write_while_it_waits(bench: Bench) -> None:
    """A waiting caller reads only after hints, never wakes itself, and writes its message once."""
    statements: Counter[str] = Counter()

    class Counting(lash.Hook):
        def statement(self, name: str) -> None:
            statements[name] += 1

    app = await bench.app(hooks=(Counting(),))

    @app.agent
    async def agent(turn: Turn) -> str:
        return "never"

    chat = app.session("s", agent)
    await app.storage.sessions.create("s")
    statements.clear()
    with pytest.raises(lash.WaitTimedOut):
        await chat.ask("x", timeout_s=0.3)
    assert sum(count for name, count in statements.items() if name.startswith("queue_")) < 15, statements


async def test_messages_counts_messages(bench: Bench) -> None:
    """The last n messages are n messages, even with other nodes between them."""
    app = await bench.app(worker=True)
    started = asyncio.Event()

    @app.agent
    async def agent(turn: Turn) -> str:
        if turn.text == "cancelled":
            started.set()
            await asyncio.get_running_loop().create_future()
        return f"re {turn.text}"

    chat = app.session("s", agent)
    await chat.ask("first", timeout_s=30)
    await chat.send("cancelled")
    await started.wait()
    await chat.cancel()
    await chat.ask("last", timeout_s=30)
    said = ["first", "re first", "cancelled", "last", "re last"]
    for count in range(6):
        assert [text for _, text in texts(await chat.messages(last=count))] == said[5 - count :]
    assert [text for _, text in texts(await chat.messages(last=50))] == said
    with pytest.raises(lash.InvalidInput):
        await chat.messages(last=-1)


@pytest.mark.parametrize("text", [None, 5, b"bytes", {"a": 1}])
async def test_a_message_is_text(bench: Bench, text: object) -> None:
    """Anything else is refused before its session is created."""
    app = await bench.app()
    with pytest.raises(lash.InvalidInput):
        await app.session("s").send(text)  # type: ignore[arg-type]
    assert await app.storage.sessions.open("s") is None


async def test_a_session_is_made_by_its_first_message(bench: Bench) -> None:
    """The first message creates it, once; a deleted session can be created again, without its messages."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return f"{len(turn.messages())}"

    chat = app.session("s", agent)
    await asyncio.gather(*(chat.send(f"{number}") for number in range(5)))
    await app.drain()
    assert [text for role, text in texts(await chat.messages()) if role == "assistant"] == ["1", "3", "5", "7", "9"]
    assert await chat.delete() is True
    assert await chat.delete() is False
    with pytest.raises(lash.SessionDeleted):
        await chat.messages()


async def test_pending_shows_what_waits(bench: Bench) -> None:
    """Queued messages and commands are listed in order."""
    app = await bench.app()
    chat = app.session("s")
    await chat.send("one")
    order = SessionCommand(command="later")
    await app.storage.queue.enqueue(BatchDraft(session_id="s", payloads=(order,)))
    waiting = await chat.pending()
    assert [type(batch.payloads[0]).__name__ for batch in waiting] == ["TurnInput", "SessionCommand"]
