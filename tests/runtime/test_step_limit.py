"""Steps under a named limit: they start when its rate permits, and their turns and processes take no slot meanwhile."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.errors import ConfigError, InvalidInput, UnknownDefinition
from lash.model.limit import Limit, Rate
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.processes.context import Context
from lash.runtime.steps.journal import StepOptions
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench


async def test_turns_wait_for_their_moment_without_a_slot(bench: Bench) -> None:
    """Each turn starts its step at its own moment, once; while it waits it is parked, and says for what."""
    app = await bench.app()
    app.limit("api", rate="1/minute")
    began, calls = bench.clock.now_ms(), list[tuple[str, int]]()

    async def call(text: str) -> str:
        calls.append((text, (bench.clock.now_ms() - began) // 1_000))
        return text

    @app.agent
    async def clerk(turn: Turn) -> str:
        return await turn.options(limit="api").step(call, turn.text)

    for number in range(3):
        await app.session(f"s{number}", agent=clerk).send(f"{number}")
    await app.drain()
    assert [moment for _, moment in calls] == [0]
    parked = [await app.storage.leases.parked(f"s{number}") for number in range(3)]
    assert [each.waiting_for for each in parked if each is not None] == ["limit api", "limit api"]
    assert [each.waiting for each in await app.storage.limits.list()] == [2]
    for _ in range(4):
        await bench.seconds(30)
        await app.drain()
    assert [moment for _, moment in calls] == [0, 60, 120]
    assert sorted(text for text, _ in calls) == ["0", "1", "2"]


async def test_processes_and_keys(bench: Bench) -> None:
    """Processes wait in the same line; another key has a line of its own; a burst starts at once."""
    app = await bench.app()
    app.limit("api", rate="1/minute", burst=2)
    calls: list[str] = []

    async def call(text: str) -> None:
        calls.append(text)

    @app.process
    async def job(context: Context, tenant: str, text: str) -> str:
        await context.options(limit="api", limit_key=tenant).step(call, text)
        return text

    handles = [await app.start(job, *each) for each in (("ann", "a"), ("ann", "b"), ("ann", "c"), ("bob", "d"))]
    await app.drain()
    assert (len(calls), "d" in calls) == (3, True)
    await bench.seconds(60)
    await app.drain()
    assert sorted(calls) == ["a", "b", "c", "d"]
    assert [await handle.result() for handle in handles] == ["a", "b", "c", "d"]


async def test_a_repeated_step_reserves_again(bench: Bench) -> None:
    """An attempt after a failure has a moment of its own: none is used twice."""
    app = await bench.app()
    app.limit("api", rate="1/minute")
    calls: list[int] = []
    began = bench.clock.now_ms()

    async def call() -> str:
        calls.append((bench.clock.now_ms() - began) // 1_000)
        if len(calls) < 4:
            raise ValueError("not yet")
        return "done"

    @app.agent(retry=Retry(max_attempts=4, first_pause_s=0))
    async def clerk(turn: Turn) -> str:
        return await turn.options(limit="api").step(call)

    chat = app.session("s", agent=clerk)
    await chat.send("x")
    for _ in range(8):
        await app.drain()
        await bench.seconds(30)
    assert calls == [0, 60, 120, 180]


async def test_a_recorded_step_needs_no_moment(bench: Bench) -> None:
    """A step that is replayed reserves nothing, and one without a limit writes nothing to it."""
    app = await bench.app()
    app.limit("api", rate="1/minute")

    async def call(text: str) -> str:
        return text

    @app.agent
    async def clerk(turn: Turn) -> str:
        first = await turn.options(limit="api").step(call, "first")
        await turn.sleep(minutes=10)
        return first + await turn.step("plain", call, "second")

    chat = app.session("s", agent=clerk)
    await chat.send("x")
    await app.drain()
    (limit,) = await app.storage.limits.list()
    await bench.seconds(600)
    await app.drain()
    assert await chat.state() == {}
    assert [each.text for each in (await chat.messages())][-1:] == ["firstsecond"]
    assert [each.interval_us for each in await app.storage.limits.list()] == [limit.interval_us]
    assert (await app.storage.limits.list())[0].next_at_ms == bench.clock.now_ms()


async def test_a_step_beside_others_waits_in_memory(bench: Bench) -> None:
    """Inside a task of another library a step cannot park its turn; it waits, and runs once."""
    app = await bench.app()
    app.limit("api", rate="20/second")
    calls: list[int] = []

    async def call(number: int) -> int:
        calls.append(number)
        return number

    @app.agent
    async def clerk(turn: Turn) -> str:
        numbers = [
            asyncio.create_task(_awaited(turn.options(limit="api", key=f"{number}").step(call, number)))
            for number in range(3)
        ]
        return f"{await asyncio.gather(*numbers)}"

    chat = app.session("s", agent=clerk)
    await chat.send("x")
    await app.drain()
    assert sorted(calls) == [0, 1, 2]


async def test_a_changed_rate_needs_no_restart(bench: Bench) -> None:
    """Declaring a limit again changes what is reserved from then on."""
    app = await bench.app()
    app.limit("api", rate="1/minute")
    calls: list[str] = []

    async def call(text: str) -> None:
        calls.append(text)

    @app.agent
    async def clerk(turn: Turn) -> None:
        await turn.options(limit="api").step(call, turn.text)

    await app.session("a", agent=clerk).send("a")
    await app.drain()
    await bench.seconds(60)
    app.limit("api", rate="1/second")
    for name in ("b", "c"):
        await app.session(name, agent=clerk).send(name)
    await app.drain()
    await bench.seconds(1)
    await app.drain()
    assert sorted(calls) == ["a", "b", "c"]


@pytest.mark.parametrize("declared", ["", "api"])
async def test_an_unknown_limit_is_refused(bench: Bench, declared: str) -> None:
    """A step that names an unknown limit fails before it runs, with the known ones in the error."""
    app = await bench.app()
    if declared:
        app.limit(declared, rate="1/minute")
    errors: list[UnknownDefinition] = []

    @app.agent(retry=NO_RETRY)
    async def clerk(turn: Turn) -> str:
        try:
            await turn.options(limit="ap").step(_nothing)
        except UnknownDefinition as error:
            errors.append(error)
        return "done"

    await app.session("s", agent=clerk).send("x")
    await app.drain()
    assert str(errors[0]) == f"unknown limit 'ap'; registered: {declared or 'none'}"


async def test_bad_declarations_are_refused(bench: Bench) -> None:
    """A bad name or rate is refused where it is written, and a key needs a limit; routers bring theirs along."""
    app = await bench.app()
    for name, rate in (("", "1/minute"), ("api", "1/week"), ("api", "often")):
        with pytest.raises(InvalidInput):
            app.limit(name, rate=rate)
    with pytest.raises(InvalidInput, match="limit_key needs a limit"):
        StepOptions(limit_key="ann")
    router = lash.Router()
    router.limit("api", rate="1/minute")
    app.include(router)
    assert router.declared.limits == (("api", Limit(rate=Rate(count=1, period_ms=60_000))),)


async def _awaited(step: object) -> object:
    return await step  # type: ignore[misc]


async def _nothing() -> None:
    raise ConfigError("it must not run")
