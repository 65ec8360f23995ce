"""Crashed turns: the next run takes the same input at the same places and repeats no step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from lash.model.effect import TurnScope
from lash.model.queue import BatchDraft, Delivery, Slot, TurnInput
from lash.model.session.message import Message
from lash.runtime.app import App
from lash.runtime.hooks import STEP, Attributes, Hook
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, claim_turn, texts


class Crash:
    """Makes a run vanish at its agent's wait, with its lease and its claims left as they were."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._reached = asyncio.Event()

    async def here(self) -> None:
        self._reached.set()
        await asyncio.get_running_loop().create_future()

    async def run(self, app: App, session_id: str) -> None:
        """Run the next turn up to the wait, and advance the clock beyond its lease."""
        task = asyncio.create_task((await claim_turn(app, session_id)).run())
        async with asyncio.timeout(30):
            await self._reached.wait()
        task.cancel()
        await asyncio.wait({task})
        await self._bench.seconds(31)


async def test_early_input_after_a_crash(bench: Bench) -> None:
    """Early input of the dead run joins at the same place, before later and newly due messages."""
    app, crash = await bench.app(), Crash(bench)
    seen: list[tuple[list[str], list[str]]] = []

    async def note(messages: list[Message]) -> int:
        return len(messages)

    @app.agent
    async def agent(turn: Turn) -> str:
        first = [text for _, text in texts(await turn.join_early_input())]
        await turn.step("note", note, turn.messages())
        if turn.attempt == 1:
            await crash.here()
        seen.append((first, [text for _, text in texts(await turn.join_early_input())]))
        return "done"

    chat = app.session("s", agent)
    await chat.send("start")
    due = datetime.fromtimestamp(bench.clock.now_ms() / 1_000 + 10, UTC)
    await chat.send("due later", early=True, at=due)
    await chat.send("early", early=True)
    await crash.run(app, "s")
    await chat.send("since", early=True)
    await app.drain()
    assert seen == [(["early"], ["due later", "since"])]
    assert [text for _, text in texts(await chat.messages())] == ["start", "early", "due later", "since", "done"]
    assert await chat.pending() == ()


async def test_merged_input_after_a_crash(bench: Bench) -> None:
    """Messages merged into one turn or one join stay the same group, whatever could join by then."""
    app, crash = await bench.app(), Crash(bench)
    seen: list[tuple[str, list[str]]] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        said = turn.text
        joined = [text for _, text in texts(await turn.join_early_input())]
        if turn.attempt == 1 and not seen:
            await crash.here()
        seen.append((said, joined))
        return "done"

    await app.storage.sessions.create("s")
    for text in ("one", "two"):
        await _merging(app, text)
    for text in ("early one", "early two"):
        await _merging(app, text, early=True)
    await crash.run(app, "s")
    await _merging(app, "early three", early=True)
    await _merging(app, "three")
    await app.drain()
    assert seen == [("one\ntwo", ["early one", "early two"]), ("early three", []), ("three", [])]


async def test_a_crash_repeats_no_recorded_step(bench: Bench) -> None:
    """The next run has the records and keys of an undisturbed run, and runs only the missing steps."""
    app, crash = await bench.app(), Crash(bench)
    calls: list[str] = []
    records: dict[str, list[str]] = {}

    async def tool(name: str) -> str:
        calls.append(name)
        return name

    @app.agent
    async def agent(turn: Turn) -> str:
        for name in ("a", "b", "c"):
            await turn.step(tool, name)
            if turn.session_id == "s" and turn.attempt == 1 and name == "b":
                await crash.here()
        scope = TurnScope(session_id=turn.session_id, turn_id=turn.turn_id)
        found = await app.storage.effects.list(scope)
        records[turn.session_id] = [f"{each.replay_key} {each.envelope.command}" for each in found]
        return "done"

    await app.session("s", agent).send("x")
    await crash.run(app, "s")
    await app.session("undisturbed", agent).send("x")
    await app.drain()
    assert sorted(calls) == ["a", "a", "b", "b", "c", "c"]
    assert records["s"] == records["undisturbed"]
    assert len(records["s"]) == 3


async def test_a_wake_joins_a_running_turn(bench: Bench) -> None:
    """A wake during a turn joins it, joins again after a crash, and is in history once."""
    app, crash = await bench.app(), Crash(bench)

    @app.process
    async def work(ctx: Context) -> None:
        await ctx.wake("half done")

    @app.agent
    async def agent(turn: Turn) -> str:
        await turn.join_early_input()
        if turn.attempt == 1:
            await crash.here()
        return f"{len(turn.wakes)} wakes"

    await app.session("s", agent).send("x")
    await app.starting(wake="s").start(work)
    options = app.options
    app._require().options = type(options)(sessions=0)
    await app.drain()
    app._require().options = options
    await crash.run(app, "s")
    await app.drain()
    assert texts(await app.session("s").messages()) == [("user", "x"), ("event", "half done"), ("assistant", "1 wakes")]
    assert await app.session("s").pending() == ()


async def test_a_hook_of_the_application_that_fails_buys_nothing_twice(bench: Bench) -> None:
    """A tracing hook that fails after the model answered does not cause a second call."""
    bought: list[str] = []

    class Clumsy(Hook):
        def __init__(self) -> None:
            self.failures = 1

        @contextmanager
        def span(self, kind: str, attributes: Attributes) -> Iterator[None]:
            yield
            if kind == STEP and self.failures:
                self.failures -= 1
                raise RuntimeError("the tracer is down")

    app = await bench.app(hooks=(Clumsy(),))

    async def complete() -> str:
        bought.append("completion")
        return "said"

    @app.agent(retry=Retry(max_attempts=3, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        return await turn.step(complete)

    chat = app.session("s", agent)
    await chat.send("x", key="k")
    await app.drain()
    assert await chat.ask("x", key="k", timeout_s=5) == "said"
    assert bought == ["completion"]


async def test_a_crash_does_not_use_up_the_only_attempt(bench: Bench) -> None:
    """Without retries a failure is final; a crash is not: the turn runs again from its records."""
    app, crash = await bench.app(), Crash(bench)

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        if turn.attempt == 1:
            await crash.here()
        return "recovered"

    chat = app.session("s", agent)
    await chat.send("x", key="k")
    await crash.run(app, "s")
    await app.drain()
    assert await chat.ask("x", key="k", timeout_s=5) == "recovered"


async def _merging(app: App, text: str, *, early: bool = False) -> None:
    await app.storage.queue.enqueue(
        BatchDraft(
            session_id="s",
            payloads=(TurnInput.of_text(text),),
            slot=Slot.JOIN,
            merge_key="m",
            delivery=Delivery.EARLIEST_SAFE_BOUNDARY if early else Delivery.AFTER_CURRENT_TURN_COMMIT,
        )
    )
