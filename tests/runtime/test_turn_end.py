"""Turns that are cancelled, taken away or given back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

import lash
from lash.liveness import current_owner
from lash.model.checkpoint import CheckpointDraft
from lash.model.commit import Append, Commit
from lash.model.lease import Acquired
from lash.model.message import Message, Role
from lash.model.node import MessageEntry, Node, ProtocolEntry
from lash.model.queue import BatchDraft, SessionCommand
from lash.runtime.app import App
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.run_turn import TurnEnd, TurnRun
from lash.runtime.turn import Turn
from tests.runtime.turn_bench import Bench, texts


async def test_cancel_ends_the_running_turn_alone(bench: Bench) -> None:
    """Its input is consumed and marked, what it had made is dropped, its usage stays; the next message is answered."""
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
    """Where nothing waits in front of it, the order is consumed by the commit of the turn that it ends."""
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
    """The turn that it was meant for has ended: the next one is not cancelled, and the order is consumed behind it."""
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
    assert await _run_turn(app, "s") is TurnEnd.COMMITTED
    run = await _turn_run(app, "s")
    running = asyncio.create_task(run.run())
    await started.wait()
    await run.obey()
    go_on.set()
    assert await running is TurnEnd.COMMITTED
    await app.drain()
    assert [text for _, text in texts(await chat.messages())] == ["first", "re first", "second", "re second"]
    assert await chat.pending() == ()


async def test_cancel_without_a_turn_does_nothing(bench: Bench) -> None:
    """A message that nobody has begun is not cancelled, nor is the next one."""
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
    """One that catches it and returns has its reply published; the order is consumed and hits no other turn."""
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
    """An error on the way out does not make a dead letter of what was to be cancelled."""
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
    """A command that nobody knows is consumed with a note, and the messages behind it are answered."""
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


async def test_a_turn_whose_lease_was_taken_changes_nothing(bench: Bench) -> None:
    """The old run cannot record, add or commit; the new one replays what was recorded and does the rest, once."""
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
            # Time passes: the lease lapses, and another worker does the turn meanwhile.
            await bench.seconds(3_600)
            ended.append(await _run_turn(app, "s"))
        return f"{one} {await turn.step(second)}"

    ended: list[TurnEnd] = []
    chat = app.session("s", agent)
    await chat.send("x")
    ended.append(await _run_turn(app, "s"))
    assert ended == [TurnEnd.COMMITTED, TurnEnd.LOST]
    assert calls == ["first", "second", "second"]
    assert texts(await chat.messages()) == [("user", "x"), ("assistant", "one two")]
    head = await app.storage.session("s").head()
    assert head is not None
    assert head.revision == 1
    assert await chat.dead_letters() == ()


async def test_a_lost_turn_is_stopped_even_if_its_agent_resists(bench: Bench) -> None:
    """An agent that swallows its cancellation after the loss publishes nothing."""
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
    run = await _turn_run(app, "s")
    running = asyncio.create_task(run.run())
    await started.wait()
    run.lose()
    assert await running is TurnEnd.LOST
    assert [note["session_id"] for note in bench.notes.of("lease.lost")] == ["s"]
    assert await app.storage.session("s").load() is None
    assert len(await chat.pending()) == 1


async def test_a_turn_that_is_given_back_costs_no_attempt(bench: Bench) -> None:
    """A worker that stops gives its turn back as it was: the next one replays its steps in attempt 1."""
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
    run = await _turn_run(app, "s")
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
    """The agent is never called, and the message stays for another run."""
    app = await bench.app()
    calls: list[str] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        calls.append(turn.text)
        return "ok"

    chat = app.session("s", agent)
    await chat.send("x")
    run = await _turn_run(app, "s")
    getattr(run, end)()
    assert await run.run() is (TurnEnd.RELEASED if end == "release" else TurnEnd.LOST)
    assert calls == []
    await app.drain()
    assert calls == ["x"]


async def test_a_deleted_session_ends_its_turn(bench: Bench) -> None:
    """A turn whose session is deleted under it publishes nothing and raises nothing."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        await app.session("s").delete()
        return "into the void"

    await app.session("s", agent).send("x")
    assert await _run_turn(app, "s") is TurnEnd.LOST
    assert await app.storage.sessions.open("s") is None


async def test_a_host_commit_beside_the_lease_is_kept(bench: Bench) -> None:
    """A commit of the host in mid-turn and the turn's own are both there, with the nodes and the state of both."""
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
    entry = MessageEntry(message=Message.text("host", Role.SYSTEM, "from the host"))
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


async def _turn_run(app: App, session_id: str) -> TurnRun:
    """Return a run of the session's next turn, as a worker begins it."""
    owner = current_owner()
    claimed = await app.storage.leases.claim(session_id, owner, ttl_ms=30_000)
    assert isinstance(claimed, Acquired)
    return TurnRun(app._require(), claimed.lease)


async def _run_turn(app: App, session_id: str) -> TurnEnd:
    return await (await _turn_run(app, session_id)).run()


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 (it is another task that consumes)
            await asyncio.sleep(0.01)


async def _is_empty(app: App) -> bool:
    return await app.session("s").pending() == ()
