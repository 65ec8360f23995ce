"""The input of a turn: order, keys, early input, wakes."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.model.session.message import Message, ProcessOrigin
from lash.runtime.policy import Retry
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, take_session, texts

AGAIN = Retry(max_attempts=5, first_pause_s=0)


async def test_a_resend_under_the_same_key_is_one_message(bench: Bench) -> None:
    """A resend is idempotent before and after the answer; another text under its key is refused."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return "ok"

    chat = app.session("s", agent)
    first = await chat.send("hello", key="k")
    again = await chat.send("hello", key="k")
    assert (first.batch_id, first.created, again.created) == (again.batch_id, True, False)
    await app.drain()
    assert (await chat.send("hello", key="k")).state is lash.model.BatchState.CONSUMED
    with pytest.raises(lash.errors.SourceKeyConflict):
        await chat.send("other", key="k")
    await app.drain()
    assert texts(await chat.messages()) == [("user", "hello"), ("assistant", "ok")]


async def test_many_senders_and_many_apps(bench: Bench) -> None:
    """8 senders and 3 working apps on one session: no loss, no duplicate, whole turns, each sender in order."""
    apps = [await bench.app(worker=True) for _ in range(3 if bench.shared else 1)]
    running = 0
    most = 0

    async def agent(turn: Turn) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return f"re {turn.text}"

    for app in apps:
        app.agent(agent)

    async def speak(sender: int) -> None:
        chat = apps[sender % len(apps)].session("s", "agent")
        for number in range(5):
            await chat.send(f"{sender}:{number}", key=f"{sender}:{number}")
            await chat.send(f"{sender}:{number}", key=f"{sender}:{number}")

    await asyncio.gather(*(speak(sender) for sender in range(8)))
    for sender in range(8):
        assert await apps[0].session("s", "agent").ask(f"{sender}:4", key=f"{sender}:4", timeout_s=60)
    said = [text for _, text in texts(await apps[0].session("s").messages())]
    assert len(said) == 80
    assert [f"re {text}" for text in said[::2]] == said[1::2]
    for sender in range(8):
        assert [text for text in said[::2] if text.startswith(f"{sender}:")] == [f"{sender}:{n}" for n in range(5)]
    assert most == 1
    assert await apps[0].session("s").pending() == ()


async def test_early_input_joins_at_the_checkpoint(bench: Bench) -> None:
    """Early messages join there, in order, and are part of history; others wait for their own turn."""
    app = await bench.app()
    joined: list[list[str]] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        if turn.text == "start":
            chat = app.session("s")
            await chat.send("later")
            await chat.send("early 1", early=True)
            await chat.send("early 2", early=True)
            turn.add("working")
            joined.append([text for _, text in texts(await turn.join_early_input())])
            joined.append([text for _, text in texts(await turn.join_early_input())])
            assert turn.text == "start\nearly 1\nearly 2"
            assert len(turn.batches) == 3
        return f"re {turn.text.count('early')}"

    await app.session("s", agent).send("start")
    await app.drain()
    assert joined == [["early 1", "early 2"], []]
    said = [text for _, text in texts(await app.session("s").messages())]
    assert said == ["start", "working", "early 1", "early 2", "re 2", "later", "re 0"]
    assert await app.session("s").pending() == ()


async def test_early_input_alone_gets_a_turn(bench: Bench) -> None:
    """Without a running turn, or without a join in it, early input is a message like any other."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return f"re {turn.text}"

    chat = app.session("s", agent)
    await chat.send("one", early=True)
    await app.drain()
    assert [text for _, text in texts(await chat.messages())] == ["one", "re one"]


async def test_a_later_attempt_takes_the_same_early_input(bench: Bench) -> None:
    """A retry joins the same early input at the same place; later messages wait for the next join."""
    app = await bench.app()
    seen: list[tuple[list[str], list[str]]] = []

    async def note(messages: list[Message]) -> int:
        return len(messages)

    @app.agent(retry=AGAIN)
    async def agent(turn: Turn) -> str:
        chat = app.session("s")
        if turn.attempt == 1:
            await chat.send("early 1", early=True)
        first = [text for _, text in texts(await turn.join_early_input())]
        await turn.step("note", note, turn.messages())
        if turn.attempt == 1:
            await chat.send("early 2", early=True)
            raise ValueError("crash")
        second = [text for _, text in texts(await turn.join_early_input())]
        seen.append((first, second))
        return "done"

    await app.session("s", agent).send("start")
    await app.drain()
    assert seen == [(["early 1"], ["early 2"])]
    said = [text for _, text in texts(await app.session("s").messages())]
    assert said == ["start", "early 1", "early 2", "done"]


async def test_a_checkpoint_that_took_nothing_takes_nothing_again(bench: Bench) -> None:
    """Messages that arrived after an empty join do not join there in a retry."""
    app = await bench.app()
    seen: list[int] = []

    @app.agent(retry=AGAIN)
    async def agent(turn: Turn) -> str:
        seen.append(len(await turn.join_early_input()))
        if turn.attempt == 1 and turn.text == "start":
            await app.session("s").send("early", early=True)
            raise ValueError("crash")
        return "done"

    await app.session("s", agent).send("start")
    await app.drain()
    assert seen[:2] == [0, 0]
    assert [text for _, text in texts(await app.session("s").messages())] == ["start", "done", "early", "done"]


async def test_early_input_that_was_cancelled_meanwhile(bench: Bench) -> None:
    """A message cancelled between two attempts is not committed, and the turn continues without it."""
    app = await bench.app()

    @app.agent(retry=Retry(max_attempts=2, first_pause_s=60))
    async def agent(turn: Turn) -> str:
        if turn.attempt == 1:
            await chat.send("early 1", key="e", early=True)
            await app.session("s").send("early 2", early=True)
        joined = await turn.join_early_input()
        if turn.attempt == 1:
            raise ValueError("crash")
        return f"{len(joined)} joined"

    chat = app.session("s", agent)
    await chat.send("start")
    await app.drain()
    assert [batch.attempts for batch in await chat.pending()] == [1, 0, 0]
    early = await chat.send("early 1", key="e", early=True)
    assert await app.storage.queue.cancel("s", early.batch_id) is not None
    await bench.seconds(61)
    await app.drain()
    assert [text for _, text in texts(await chat.messages())] == ["start", "early 2", "1 joined"]


async def test_wakes_come_as_messages_and_are_acknowledged(bench: Bench) -> None:
    """A process wakes its session: an EVENT message with its origin, answered by the same agent."""
    app = await bench.app()
    handles: list[str] = []

    @app.process
    async def work(ctx: Context, topic: str) -> str:
        await ctx.wake(f"{topic}: done")
        return topic

    @app.agent(retry=AGAIN)
    async def agent(turn: Turn) -> str:
        if turn.wakes:
            return f"received {turn.wakes[0].input}"
        job = await turn.start(work, topic="cats")
        handles.append(job.process_id)
        if turn.attempt < 3:
            raise ValueError("crash")
        return "started"

    @app.agent
    async def other(turn: Turn) -> str:
        return "never asked"

    await app.session("s", agent).send("go")
    await app.drain()
    assert len(handles) == 3
    assert len(set(handles)) == 1
    messages = await app.session("s").messages()
    assert texts(messages) == [
        ("user", "go"),
        ("assistant", "started"),
        ("event", "cats: done"),
        ("assistant", "received cats: done"),
    ]
    assert isinstance(messages[2].origin, ProcessOrigin)
    assert messages[2].origin.process_id == handles[0]
    granted = await app.storage.grants.list(lash.model.AgentScope(session_id="s"))
    assert [entry.grant.process_id for entry in granted] == [handles[0]]
    assert await app.session("s").pending() == ()
    assert await app.handle(handles[0]).result(timeout_s=5) == "cats"


async def test_the_agent_is_remembered_and_can_be_changed(bench: Bench) -> None:
    """A message without an agent goes to the last one; a message that names another changes it."""
    app = await bench.app()

    @app.agent
    async def first(turn: Turn) -> str:
        return "first"

    @app.agent
    async def second(turn: Turn) -> str:
        return "second"

    await app.session("s", first).send("a")
    await app.session("s").send("b")
    await app.session("s", "second").send("c")
    await app.session("s").send("d")
    await app.drain()
    said = [text for role, text in texts(await app.session("s").messages()) if role == "assistant"]
    assert said == ["first", "first", "second", "second"]


async def test_an_unknown_agent_loses_nothing(bench: Bench) -> None:
    """An app that does not know the agent reports it and leaves the message; another app answers at once."""
    app = await bench.app()

    @app.agent
    async def known(turn: Turn) -> str:
        return "known"

    chat = app.session("s", known)
    await chat.send("one")
    app._definitions.agents.clear()
    await app.drain()
    await app.drain()
    (batch,) = await chat.pending()
    assert batch.attempts == 0
    assert {note["session_id"] for note in bench.notes.of("definition.unknown")} == {"s"}
    assert "known" in bench.notes.of("definition.unknown")[0]["message"]
    if bench.shared:
        app = await bench.app()
    app.agent(known.function)
    await app.drain()
    assert texts(await app.session("s").messages()) == [("user", "one"), ("assistant", "known")]


async def test_a_session_that_others_hold_is_left_alone(bench: Bench) -> None:
    """While another worker holds the lease nothing is claimed; after it expires the turn runs here."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return "ok"

    chat = app.session("s", agent)
    await chat.send("x")
    await take_session(app.storage, "s", ttl_ms=10_000)
    await app.drain()
    assert len(await chat.pending()) == 1
    await bench.seconds(11)
    await app.drain()
    assert await chat.pending() == ()


async def test_starting_a_process_only_registers_it(bench: Bench) -> None:
    """A turn only registers the process; workers run it, here none."""
    app = await bench.app(options=lash.WorkerOptions(processes=0))
    ran: list[str] = []

    @app.process
    async def work(ctx: Context) -> None:
        ran.append(ctx.process_id)

    @app.agent
    async def agent(turn: Turn) -> str:
        return (await turn.start(work)).process_id

    chat = app.session("s", agent)
    await chat.send("go")
    await app.drain()
    _, process_id = texts(await chat.messages())[-1]
    record = await app.handle(process_id).record()
    assert (record.status, record.last_sequence, ran) == (lash.ProcessStatus.RUNNING, 0, [])
