"""Versions, changed code, failed attempts, and which workers may continue a process."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from lash.errors import StorageFailure, StoreError, StoreUnavailable
from lash.model.process.process import (
    HOST,
    EngineInput,
    Failure,
    ProcessStatus,
    Provenance,
    Recovery,
)
from lash.runtime.app import App
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.processes.context import Context
from tests.runtime.process_bench import World, kinds_of, outcome_of, records_of


async def test_old_runs_go_on_with_old_code(world: World) -> None:
    """A run keeps the version that it started with; while no worker has that version, it waits and its log says so."""
    app = await world.app()

    async def old(ctx: Context) -> str:
        await ctx.sleep(10)
        return "old"

    async def new(ctx: Context) -> str:
        return "new"

    first = await app.start(app.process(name="job", version="1")(old))
    await app.drain()
    del app._definitions.processes["job", "1"]
    second = await app.start(app.process(name="job", version="2")(new))
    await world.seconds(10)
    await app.drain()
    assert await second.result(timeout_s=5) == "new"
    assert await first.status() is ProcessStatus.RUNNING
    assert world.heard.of("definition.unknown")[0]["process_id"] == first.process_id
    [told] = [event.payload for event in await first.events() if event.event_type == "process.attempt_failed"]
    assert isinstance(told, dict)
    assert "job version 1" in str(told["message"])
    app.process(name="job", version="1")(old)
    await app.drain()
    if world.shared:
        app = await world.app()
        app.process(name="job", version="1")(old)
        await app.drain()
        assert await app.handle(first.process_id).result(timeout_s=5) == "old"


async def test_changed_code_is_named_and_the_process_waits_for_it_to_be_mended(world: World) -> None:
    """The mismatch names step, path and both values; it costs no attempt, and fixed code continues the run."""
    app = await world.app()
    pages = {"now": 1}

    async def fetch(page: int) -> int:
        return page

    @app.process(retry=Retry(max_attempts=2, first_pause_s=1, longest_pause_s=30))
    async def reader(ctx: Context) -> int:
        page = await ctx.step(fetch, pages["now"])
        await ctx.sleep(1)
        return page

    handle = await app.start(reader)
    await app.drain()
    pages["now"] = 2
    for _ in range(4):
        await world.seconds(31)
        await app.drain()
    assert await handle.status() is ProcessStatus.RUNNING
    [told] = [event.payload for event in await handle.events() if event.event_type == "process.attempt_failed"]
    assert isinstance(told, dict)
    assert told["code"] == "EffectMismatch"
    for part in ("fetch#1", "command.input.args[0]", "was 1, now 2"):
        assert part in str(told["message"])
    pages["now"] = 1
    await world.seconds(31)
    await app.drain()
    assert await handle.result(timeout_s=5) == 1


@pytest.mark.parametrize("what", ["start", "emit", "wake", "result type"])
async def test_changed_code_is_noticed_everywhere(world: World, what: str) -> None:
    """Children, emissions, wakes and result types that differ from the record stop the run, not the process."""
    app = await world.app()

    @app.process
    async def child(ctx: Context, number: int) -> None: ...

    async def number() -> int:
        return 7

    async def text() -> str:
        return "seven"

    @app.process(retry=NO_RETRY)
    async def changing(ctx: Context) -> None:
        changed = world.calls["changed"]
        match what:
            case "start":
                await ctx.start(child, changed)
            case "emit":
                await ctx.emit("something", {"number": changed})
            case "wake":
                await ctx.wake(f"number {changed}")
            case _:
                await ctx.step("count", text if changed else number)
        await ctx.sleep(1)

    handle = await app.start(changing)
    await app.drain()
    world.count("changed")
    await world.seconds(1)
    await app.drain()
    assert await handle.status() is ProcessStatus.RUNNING
    assert (await handle.events())[-1].payload["code"] == "EffectMismatch"  # type: ignore[call-overload, index]
    world.calls["changed"] = 0
    await world.seconds(301)
    await app.drain()
    assert await handle.status() is ProcessStatus.COMPLETED


async def test_attempts_are_counted_and_the_last_one_ends_the_process(world: World) -> None:
    """Each failed attempt is an event; the last one fails the process with its error."""
    app = await world.app()

    @app.process(retry=Retry(max_attempts=3, first_pause_s=1, factor=1))
    async def hopeless(ctx: Context) -> None:
        raise OSError(f"attempt {world.count('attempt')}")

    handle = await app.start(hopeless)
    for _ in range(5):
        await app.drain()
        await world.seconds(1.1)
    assert world.calls["attempt"] == 3
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.message) == ("OSError", "attempt 3")
    assert (await kinds_of(handle)).count("process.attempt_failed") == 3


@pytest.mark.parametrize("trouble", [StoreUnavailable, StorageFailure])
async def test_trouble_of_the_database_ends_no_process(world: World, trouble: type[StoreError]) -> None:
    """Storage errors do not end a process: it continues soon, with the same result."""
    app = await world.app()

    @app.process(retry=Retry(max_attempts=2, first_pause_s=1, factor=1))
    async def patient(ctx: Context) -> str:
        if world.count("attempt") < 6:
            raise trouble("away or full")
        return "done"

    handle = await app.start(patient)
    for _ in range(6):
        await app.drain()
        await world.seconds(3)
    assert await handle.result(timeout_s=5) == "done"
    assert world.calls["attempt"] == 6


async def test_the_time_limit_of_a_process(world: World) -> None:
    """A run beyond the time limit of its process is a failed attempt."""
    app = await world.app()

    @app.process(timeout_s=0.02, retry=NO_RETRY)
    async def endless(ctx: Context) -> None:
        await asyncio.Event().wait()

    handle = await app.start(endless)
    await app.drain()
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.message) == ("TimeoutError", "process 'endless' took longer than 0.02 s")


async def test_a_process_bound_to_its_owner_is_left_by_others(world: World) -> None:
    """Once started, only its owner continues it."""
    if not world.shared:
        pytest.skip("a database in memory has one application")
    owner, other = await world.app(worker_id="owner"), await world.app(worker_id="other")

    async def bound(ctx: Context) -> str:
        world.count("runs")
        await ctx.sleep(10)
        return "mine"

    process = owner.process(bound)
    other.process(bound)
    registration = await owner._require().registration(
        process, "bound", (), {}, provenance=Provenance(originator=HOST), wake_session_id=None
    )
    await owner.storage.processes.register(msgspec.structs.replace(registration, recovery=Recovery.OWNER_BOUND))
    assert await owner.drain() == 1
    await world.seconds(10)
    assert await other.drain() == 0
    assert await owner.drain() == 1
    assert await owner.handle("bound").result(timeout_s=5) == "mine"


async def test_a_process_with_a_strange_input_is_failed(world: World) -> None:
    """Registered arguments without names fail the process, not the worker's run."""
    app = await world.app()

    @app.process
    async def task(ctx: Context, number: int) -> None: ...

    registration = await app._require().registration(
        task, "odd", (1,), {}, provenance=Provenance(originator=HOST), wake_session_id=None
    )
    payload = {"process": "task", "version": "1", "args": [1]}
    odd = msgspec.structs.replace(registration, input=EngineInput(kind="python", payload=payload))
    await app.storage.processes.register(odd)
    await app.drain()
    outcome = await outcome_of(app.handle("odd"))
    assert isinstance(outcome, Failure)
    assert outcome.code == "process_arguments_invalid"


async def test_a_run_that_lost_its_lease_changes_nothing(world: World) -> None:
    """A run whose lease another worker took records nothing, runs no further step, and ends nothing."""
    if not world.shared:
        pytest.skip("a database in memory has one application")
    slow, heir = await world.app(worker_id="slow"), await world.app(worker_id="heir")

    def declare(app: App, name: str) -> Any:  # noqa: ANN401 (a definition)
        async def first() -> str:
            if name == "slow":
                await world.seconds(31)
                await heir.drain()
            return name

        async def second() -> str:
            world.count(f"second {name}")
            return name

        async def task(ctx: Context) -> list[str]:
            try:
                one = await ctx.step(first)
            except Exception:  # noqa: BLE001 (code that goes on whatever happens)
                one = "lost"
            return [one, await ctx.step(second)]

        return app.process(task)

    process = declare(slow, "slow")
    declare(heir, "heir")
    handle = await slow.start(process)
    await slow.drain()
    assert await handle.result(timeout_s=5) == ["heir", "heir"]
    assert (world.calls["second slow"], world.calls["second heir"]) == (0, 1)
    assert (await records_of(slow, handle))["first#1"].outcome == "heir"
