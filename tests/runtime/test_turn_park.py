"""Turns that wait: they give back their slot, and resume from their records."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from typing import Any, assert_type

import pytest

import lash
from lash.runtime.app import App
from lash.runtime.definition import AgentDefinition
from lash.runtime.policy import NO_RETRY, WorkerOptions
from lash.runtime.processes.context import Context
from lash.runtime.steps.journal import Journal
from lash.runtime.turns.end import TurnEnd
from lash.runtime.turns.inbox import Inbox
from lash.runtime.turns.run import TurnRun
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, run_turn


async def test_asking_on_one_slot(bench: Bench) -> None:
    """A turn that asks another agent gives back its only slot, and runs each of its steps once."""
    app = await bench.app(worker=True, options=WorkerOptions(sessions=1))
    calls: list[str] = []

    async def think(text: str) -> str:
        calls.append(text)
        return text.upper()

    @app.agent
    async def expert(turn: Turn) -> str:
        return await turn.step(think, turn.text)

    @app.agent
    async def front(turn: Turn) -> str:
        first = await turn.step(think, "first")
        answers = await turn.gather(turn.ask(expert, "a"), turn.ask("expert", "b"))
        return f"{first} {answers} {turn.attempt}"

    assert await app.session("s", agent=front).ask("hi", timeout_s=60) == "FIRST ['A', 'B'] 1"
    assert sorted(calls) == ["a", "b", "first"]


async def test_many_turns_that_wait_for_each_other(bench: Bench) -> None:
    """Far more turns than slots ask a child each, and all of them finish; no question is asked twice."""
    app = await bench.app(worker=True, options=WorkerOptions(sessions=1))
    asked: list[str] = []

    @app.agent
    async def expert(turn: Turn) -> str:
        asked.append(turn.text)
        return f"re: {turn.text}"

    @app.agent
    async def front(turn: Turn) -> str:
        return await turn.ask(expert, turn.text)

    numbers = [str(number) for number in range(50)]
    chats = [app.session(f"s{number}", agent=front) for number in numbers]
    replies = await asyncio.gather(*(chat.ask(chat.session_id, timeout_s=60) for chat in chats))
    assert replies == [f"re: s{number}" for number in numbers]
    assert sorted(asked) == sorted(f"s{number}" for number in numbers)


async def test_a_child_is_asked_without_a_slot(bench: Bench) -> None:
    """A question to a child session, in a step or outside of it, does not block the worker."""
    app = await bench.app(worker=True, options=WorkerOptions(sessions=1))

    @app.agent
    async def expert(turn: Turn) -> str:
        return f"{turn.session_id} {turn.text}"

    @app.agent
    async def front(turn: Turn) -> str:
        child = await turn.child("child", agent=expert)
        said = await child.ask("durable")
        return said + ", " + await turn.step("ask", child.ask, "in a step", key=turn.turn_id)

    assert await app.session("s", agent=front).ask("hi", timeout_s=60) == "child durable, child in a step"
    assert len(await app.session("child").messages()) == 4


async def test_the_result_of_a_process(bench: Bench) -> None:
    """A turn is parked until its process ends; a failure is raised where the agent waits."""
    app = await bench.app(worker=True, options=WorkerOptions(sessions=1))

    @app.agent
    async def other(turn: Turn) -> str:
        return turn.text

    @app.process
    async def work(ctx: Context, number: int) -> int:
        await app.session("other", agent=other).ask("the slot is free", key=ctx.process_id, timeout_s=60)
        return 2 * number

    @app.process(retry=NO_RETRY)
    async def fail(ctx: Context) -> int:
        raise ValueError("no")

    @app.agent
    async def front(turn: Turn) -> str:
        handle = await turn.start(work, 21)
        result = await handle.result()
        with pytest.raises(lash.ProcessFailed, match="no"):
            await (await turn.start(fail)).result()
        return str(result)

    assert await app.session("s", agent=front).ask("hi", of_type=int, timeout_s=60) == 42


async def test_pauses_and_waits(bench: Bench) -> None:
    """Pauses, waits, the time and random values are the same in every run; a value has the declared type."""
    app = await bench.app()
    runs: list[tuple[datetime.datetime, uuid.UUID, float]] = []

    @app.agent
    async def front(turn: Turn) -> str:
        runs.append((await turn.now(), turn.uuid(), turn.random()))
        await turn.sleep(hours=1)
        with pytest.raises(TimeoutError):
            await turn.wait("never", timeout_s=10)
        keys.append(await turn.wait_key("approval"))
        approved = await turn.wait("approval", of_type=datetime.date)
        assert_type(approved, datetime.date)
        return f"{approved:%d.%m.}"

    keys: list[str] = []
    chat = app.session("s", agent=front)
    await chat.send("hi", key="k")
    assert await app.drain() == 1
    await bench.seconds(3_600)
    assert await app.drain() == 1
    await bench.seconds(10)
    assert await app.drain() >= 1
    await app.resolve(keys[0], "2024-02-29")
    assert await app.drain() == 1
    assert await chat.ask("hi", key="k", timeout_s=60) == "29.02."
    assert len(set(runs)) == 1


async def _answers_a_cancellation(turn: Turn) -> str:
    """Repeat a message, or wait and answer once the turn is cancelled."""
    if turn.text != "wait":
        return turn.text
    try:
        await turn.wait("approval")
    except asyncio.CancelledError:
        return "stopped"
    return "never"


async def test_cancelling_a_parked_turn(bench: Bench) -> None:
    """The agent gets CancelledError where it waits, and can answer; later input is handled afterwards."""
    app = await bench.app(worker=True)

    chat = app.session("s", agent=app.agent(_answers_a_cancellation))
    await chat.send("wait", key="1")
    await _parked(app, "s")
    await chat.send("next", key="2")
    assert await chat.cancel("enough") is True
    assert await chat.ask("wait", key="1", timeout_s=60) == "stopped"
    assert await chat.ask("next", key="2", timeout_s=60) == "next"


async def test_a_late_answer_about_a_cancellation(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that began with the hint, and ends after the resumed run has found the command, interrupts nothing."""
    app, late = await bench.app(worker=True), set[asyncio.Task[None]]()
    read, prepared = asyncio.Event(), asyncio.Event()
    prepare, find_cancel = TurnRun._prepare, Inbox.find_cancel

    async def prepare_beside_a_check(run: TurnRun, agent: AgentDefinition) -> Journal:
        late.add(asyncio.create_task(run.check_cancel()))
        journal = await prepare(run, agent)
        prepared.set()
        return journal

    async def find_late(inbox: Inbox, turn_id: str) -> str | None:
        reason = await find_cancel(inbox, turn_id)
        if asyncio.current_task() in late:
            read.set()
            await prepared.wait()
        else:
            await read.wait()
        return reason

    chat = app.session("s", agent=app.agent(_answers_a_cancellation))
    await chat.send("wait", key="1")
    await _parked(app, "s")
    monkeypatch.setattr(TurnRun, "_prepare", prepare_beside_a_check)
    monkeypatch.setattr(Inbox, "find_cancel", find_late)
    assert await chat.cancel("enough") is True
    assert await chat.ask("wait", key="1", timeout_s=60) == "stopped"
    assert prepared.is_set()


async def test_a_failed_question(bench: Bench) -> None:
    """The failure of another turn is raised where the agent asked, and is recorded."""
    app = await bench.app(worker=True)

    @app.agent(retry=NO_RETRY)
    async def expert(turn: Turn) -> str:
        raise ValueError("no idea")

    @app.agent
    async def front(turn: Turn) -> str:
        try:
            return await turn.ask(expert, "hi")
        except lash.TurnFailed as failed:
            return failed.reason

    assert "no idea" in await app.session("s", agent=front).ask("hi", timeout_s=60)


async def test_agents_that_ask_each_other_without_end(bench: Bench) -> None:
    """A chain of questions has a bound, and the error names it."""
    app = await bench.app(worker=True)

    @app.agent(retry=NO_RETRY)
    async def front(turn: Turn) -> str:
        return await turn.ask("front", turn.text)

    with pytest.raises(lash.TurnFailed, match="at depth 17, and at most 16"):
        await app.session("s", agent=front).ask("hi", timeout_s=60)


async def test_hand_off(bench: Bench) -> None:
    """Another agent answers the turn with the same input and state, and later messages that name no agent."""
    app = await bench.app(worker=True)

    @app.agent
    async def expert(turn: Turn) -> str:
        return f"expert: {turn.text} {turn.state.get('seen')}"

    @app.agent
    async def front(turn: Turn) -> Any:  # noqa: ANN401
        turn.state["seen"] = "yes"
        return await turn.hand_off(expert)

    assert await app.session("s", agent=front).ask("a", timeout_s=60) == "expert: a yes"
    assert await app.session("s").ask("b", timeout_s=60) == "expert: b yes"


async def test_a_question_times_out(bench: Bench) -> None:
    """A question has a deadline, which is recorded; the turn is not parked beyond it."""
    app = await bench.app()

    @app.agent
    async def front(turn: Turn) -> str:
        try:
            return await turn.ask("nobody", "hi", timeout_s=5)
        except lash.WaitTimedOut:
            return "no answer"

    await app.session("s", agent=front).send("hi", key="k")
    assert await run_turn(app, "s") is TurnEnd.PARKED
    await bench.seconds(5)
    assert await run_turn(app, "s") is TurnEnd.COMMITTED
    assert await app.session("s", agent=front).ask("hi", key="k", timeout_s=60) == "no answer"


async def _parked(app: App, session_id: str) -> None:
    async with asyncio.timeout(60):
        while True:
            work = await app.storage.queue.list(session_id)
            if work and work[0].available_at_ms:
                return
            await asyncio.sleep(0.01)
