"""Limits on whole turns and processes: they begin when the rate permits, and run while they hold a place."""

from __future__ import annotations

from typing import Any

import pytest

import lash
from lash.errors import ConfigError
from lash.model.process.process import Cancellation
from lash.model.wait import Resolved
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.test_step_places import Gate, until_parked, until_places
from tests.runtime.turn_bench import Bench
from tests.runtime.worker_kit import until


async def test_turns_run_one_after_the_other(bench: Bench) -> None:
    """The turn of another session is parked until the place is free; a turn that waits for more gives its place up."""
    app = await bench.app(worker=True)
    app.limit("api", concurrency=1)
    gate = Gate()

    @app.agent(limit="api")
    async def clerk(turn: Turn) -> str:
        await turn.step(gate.call, turn.text)
        if turn.text == "b":
            await turn.wait("go")
        return turn.text

    for count, name in enumerate(("a", "b", "c"), 1):
        await app.session(name, agent=clerk).send(name)
        await until_places(app, count)
    await until(lambda: gate.running == ["a"])
    await until_parked(app, "b")
    gate.end("a")
    await until(lambda: gate.running == ["b"])
    gate.end("b")
    # It waits without a place.
    await until(lambda: gate.running == ["c"])
    assert len(await app.storage.limits.places("api")) == 1
    gate.end("c")
    await until_places(app, 0)
    (wait,) = await app.storage.waits.pending()
    await app.storage.waits.resolve_id(wait.key_id, Resolved())
    assert await _last(app, "b") == "b"


async def test_a_rate_counts_the_start_of_a_turn(bench: Bench) -> None:
    """Each turn begins at its own moment; it needs no other one when it resumes, or is tried again."""
    app = await bench.app()
    app.limit("api", rate="1/minute")
    began, calls = bench.clock.now_ms(), list[int]()

    @app.agent(limit="api")
    async def clerk(turn: Turn) -> None:
        calls.append((bench.clock.now_ms() - began) // 1_000)
        await turn.sleep(seconds=10)

    for name in ("a", "b", "c"):
        await app.session(name, agent=clerk).send(name)
    for _ in range(14):
        await app.drain()
        await bench.seconds(10)
    assert calls == [0, 10, 60, 70, 120, 130]


async def test_keys_of_turns(bench: Bench) -> None:
    """The key comes from the turn; sessions of different keys do not wait for each other."""
    app = await bench.app(worker=True)
    app.limit("api", concurrency=1)
    gate = Gate()

    async def tenant(turn: Turn) -> str:
        return turn.session_id[0]

    @app.agent(limit="api", limit_key=tenant)
    async def clerk(turn: Turn) -> str:
        return await turn.step(gate.call, turn.text)

    for name in ("a1", "b1"):
        await app.session(name, agent=clerk).send(name)
        await until(lambda name=name: name in gate.running)
    await app.session("a2", agent=clerk).send("a2")
    await until_parked(app, "a2")
    for name in ("a1", "a2", "b1"):
        gate.end(name)
    for key in ("a", "b"):
        await until_places(app, 0, key=key)


async def test_processes_run_one_after_the_other(bench: Bench) -> None:
    """The key comes from the arguments; a process that is cancelled while it waits never begins."""
    app = await bench.app(worker=True)
    app.limit("api", concurrency=1)
    gate = Gate()

    @app.process(limit="api", limit_key=lambda _context, tenant, _text: tenant)
    async def job(context: Context, tenant: str, _text: str) -> str:
        return tenant + await context.step(gate.call, _text)

    handles = []
    for count, (tenant, text) in enumerate((("ann", "a"), ("ann", "b"), ("ann", "c")), 1):
        handles.append(await app.start(job, tenant, text))
        await until_places(app, count, key="ann")
    other = await app.start(job, "bob", "d")
    await until(lambda: sorted(gate.running) == ["a", "d"])
    await handles[1].cancel()
    assert isinstance(await app.storage.waiter.await_outcome(handles[1].process_id), Cancellation)
    await until_places(app, 2, key="ann")
    for name in ("a", "c", "d"):
        gate.end(name)
    assert [await each.result() for each in (handles[0], handles[2], other)] == ["anna", "annc", "bobd"]
    assert gate.most == 2


async def test_a_cancelled_turn_never_begins(bench: Bench) -> None:
    """A turn that is cancelled while it waits for its first place ends as cancelled, and leaves the line."""
    app = await bench.app(worker=True)
    app.limit("api", concurrency=1)
    gate = Gate()

    @app.agent(limit="api")
    async def clerk(turn: Turn) -> str:
        return await turn.step(gate.call, turn.text)

    for count, name in enumerate(("a", "b"), 1):
        await app.session(name, agent=clerk).send(name)
        await until_places(app, count)
    await until_parked(app, "b")
    await app.session("b").cancel()
    await until_places(app, 1)
    gate.end("a")
    await until_places(app, 0)

    async def is_over() -> bool:
        return not await app.session("b").pending()

    await until(is_over)
    assert gate.most == 1


async def test_a_step_under_the_limit_of_its_turn_needs_no_other_place(bench: Bench) -> None:
    """A turn that holds the only place runs steps under the same limit."""
    app = await bench.app()
    app.limit("api", concurrency=1)

    async def call() -> str:
        return "done"

    @app.agent(limit="api")
    async def clerk(turn: Turn) -> str:
        return await turn.options(limit="api").step(call)

    await app.session("s", agent=clerk).send("x")
    await app.drain()
    assert await _last(app, "s") == "done"


@pytest.mark.parametrize("given", [{"limit_key": "k"}, {"limit": "api", "limit_key": 3}], ids=str)
async def test_bad_declarations_are_refused(given: dict[str, Any]) -> None:
    """A key needs a limit, and is a text or a function."""
    router = lash.Router()
    with pytest.raises(ConfigError, match="limit_key"):
        router.agent(**given)
    with pytest.raises(ConfigError, match="limit_key"):
        router.process(**given)


async def test_an_unknown_limit_is_refused_when_the_app_starts() -> None:
    """The error names the agent or process, and the declared limits."""
    app = lash.App("sqlite://")
    app.limit("api", concurrency=1)

    @app.agent(limit="apl")
    async def clerk(turn: Turn) -> str:
        return turn.text

    with pytest.raises(ConfigError, match="agent 'clerk': unknown limit 'apl'; declared: api"):
        await app.open()


async def _last(app: lash.App, session_id: str) -> str:
    """Return the reply in a session once it is there."""

    async def is_there() -> bool:
        return len(await app.session(session_id).messages()) > 1

    await until(is_there)
    return (await app.session(session_id).messages())[-1].text
