"""Concurrent branches: their keys, errors and pauses, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from lash.errors import ConfigError, StepFailed
from lash.model.process.process import Failure, ProcessStatus
from lash.runtime.errors import Suspended
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.process_bench import World, outcome_of, records_of


async def test_keys_do_not_depend_on_who_is_faster(world: World) -> None:
    """Branches that overtake each other keep the keys of their positions, and no step runs twice."""
    app = await world.app()

    async def fetch(name: str, turns: int) -> str:
        world.count(f"fetch {name}")
        for _ in range(turns):
            await asyncio.sleep(0.001)
        return name

    async def paced(ctx: Context, name: str) -> str:
        first: str = await ctx.step("fetch", fetch, name, 9 if name == "a" else 0)
        second: str = await ctx.step("fetch", fetch, first * 2, 0 if name == "a" else 9)
        return second

    @app.process
    async def parked(ctx: Context) -> list[str]:
        done: list[str] = await ctx.gather(paced(ctx, "a"), paced(ctx, "b"))
        await ctx.sleep(1)
        return done

    handle = await app.start(parked)
    await app.drain()
    keys = {"gather#1.0/fetch#1", "gather#1.0/fetch#2", "gather#1.1/fetch#1", "gather#1.1/fetch#2", "sleep#1"}
    assert set(await records_of(app, handle)) == keys
    await world.seconds(1)
    await app.drain()
    assert await handle.result(timeout_s=5) == ["aa", "bb"]
    assert [world.calls[f"fetch {name}"] for name in ("a", "b", "aa", "bb")] == [1, 1, 1, 1]


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_a_crash_between_two_lines_is_made_up_for(world: World, order: str) -> None:
    """Whichever branch was ahead at the crash, the next run executes only the missing steps."""
    app = await world.app()
    fast = {1: order[0], 2: order[1]}

    async def work(name: str, number: int) -> str:
        if fast[world.calls["runs"]] != name:
            for _ in range(20):
                await asyncio.sleep(0.002)
        world.count(f"{name}{number}")
        if world.calls["runs"] == 1 and name == order[0] and number == 2:
            raise OSError("broken off")
        return f"{name}{number}"

    async def line(ctx: Context, name: str) -> list[str]:
        return [await ctx.step("work", work, name, number) for number in (1, 2)]

    @app.process(retry=Retry(max_attempts=3, first_pause_s=1))
    async def both(ctx: Context) -> list[list[str]]:
        world.count("runs")
        done: list[list[str]] = await ctx.gather(line(ctx, "a"), line(ctx, "b"))
        return done

    handle = await app.start(both)
    await app.drain()
    await world.seconds(2)
    await app.drain()
    assert await handle.result(timeout_s=5) == [["a1", "a2"], ["b1", "b2"]]
    assert world.calls[f"{order[0]}1"] == 1, "it was recorded by the first run"
    assert world.calls[f"{order[0]}2"] == 2, "it failed in the first run"


async def test_the_first_error_ends_the_other_lines(world: World) -> None:
    """The other branches are cancelled, and have ended when the error arrives."""
    app = await world.app()
    ended: list[str] = []

    async def fail() -> None:
        raise ValueError("no")

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("endless")

    @app.process(retry=NO_RETRY)
    async def both(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.step(endless), ctx.step(fail), ctx.wait_signal("never"))
        except (ValueError, StepFailed) as error:
            ended.append(type(error).__name__)
        await ctx.sleep(1)
        return "went on"

    handle = await app.start(both)
    await app.drain()
    assert ended == ["endless", "ValueError"]
    await world.seconds(1)
    await app.drain()
    assert await handle.result(timeout_s=5) == "went on"
    assert ended[2:] == ["endless", "StepFailed"], "the failure is recorded, the cancelled step is not"


async def test_a_failure_in_one_line_is_not_recorded_by_another(world: World) -> None:
    """A branch that continues does not record the failure of another: the attempt fails, and the step runs again."""
    app = await world.app()

    async def flaky() -> str:
        if world.count("flaky") == 1:
            raise OSError("lost")
        return "found"

    async def quick(number: int) -> int:
        return number

    async def busy(ctx: Context) -> int:
        return sum([await ctx.step(quick, number) for number in range(10)])

    async def caught(ctx: Context) -> str:
        try:
            return await ctx.step(flaky)
        finally:
            # Time for the other branch to start several steps before the error arrives.
            for _ in range(5):
                await asyncio.sleep(0.005)

    @app.process(retry=Retry(max_attempts=3, first_pause_s=1))
    async def both(ctx: Context) -> list[Any]:
        return await ctx.gather(caught(ctx), busy(ctx))

    handle = await app.start(both)
    await app.drain()
    assert "gather#1.0/flaky#1" not in await records_of(app, handle)
    await world.seconds(2)
    await app.drain()
    assert await handle.result(timeout_s=5) == ["found", 45]


async def test_nested_gatherings_and_gatherings_of_waits(world: World) -> None:
    """Nested branches with steps, sleeps, signals, waits and children park once, when all of them wait."""
    app = await world.app()
    keys: list[str] = []

    async def fetch(name: str) -> str:
        world.count(name)
        await asyncio.sleep(0.01)
        return name

    @app.process
    async def child(ctx: Context) -> str:
        await ctx.sleep(5)
        return "child"

    async def inner(ctx: Context, name: str) -> list[str]:
        done: list[str] = await ctx.gather(ctx.step(fetch, f"{name}1"), ctx.step(fetch, f"{name}2"))
        await ctx.sleep(10)
        return [*done, await ctx.step(fetch, f"{name}3")]

    @app.process
    async def outer(ctx: Context) -> list[Any]:
        keys.append(await ctx.wait_key("answer"))
        started = await ctx.start(child)
        return await ctx.gather(
            inner(ctx, "a"),
            ctx.gather(inner(ctx, "b"), ctx.wait_signal("go")),
            ctx.wait("answer"),
            started.result(),
            ctx.gather(),
        )

    handle = await app.start(outer)
    await app.drain()
    assert await app.storage.process_leases.holder(handle.process_id) is None
    await handle.signal("go", {"ok": True})
    await app.drain()
    for _ in range(2):
        await world.seconds(5)
        await app.drain()
    assert len(set(keys)) == 1, "every run computes the same key"
    assert await app.resolve(keys[0], 42)
    await app.drain()
    assert await handle.result(timeout_s=5) == [
        ["a1", "a2", "a3"],
        [["b1", "b2", "b3"], {"ok": True}],
        42,
        "child",
        [],
    ]
    assert all(world.calls[name] == 1 for name in ("a1", "a2", "a3", "b1", "b2", "b3"))


async def test_an_error_deep_inside_arrives_although_others_wait(world: World) -> None:
    """A run is not parked while an error propagates through several levels of branches."""
    app = await world.app()

    async def fail() -> None:
        raise ValueError("deep down")

    async def level(ctx: Context, depth: int) -> None:
        if depth == 0:
            await ctx.step(fail)
        await ctx.gather(ctx.wait_signal("never"), level(ctx, depth - 1))

    @app.process(retry=NO_RETRY)
    async def deep(ctx: Context) -> None:
        await ctx.gather(level(ctx, 6), ctx.wait_signal("never"))

    handle = await app.start(deep)
    assert await app.drain() == 1
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert outcome.message == "deep down"


async def test_steps_in_foreign_tasks_are_refused(world: World) -> None:
    """Steps and waits in tasks that the run does not know raise ConfigError with a remedy."""
    app = await world.app()
    said: list[str] = []

    async def quick() -> int:
        return 1

    async def line(ctx: Context) -> int:
        return await ctx.step(quick)

    async def misuse(ctx: Context, number: int) -> Awaitable[Any] | None:
        match number:
            case 0:
                return asyncio.gather(line(ctx), line(ctx))
            case 1:
                return asyncio.create_task(line(ctx))
            case 2:
                return asyncio.ensure_future(_await(ctx.sleep(60)))
            case 3:
                return asyncio.gather(ctx.wait_signal("go"), ctx.sleep(60))
            case 4:
                return asyncio.ensure_future(_await(ctx.gather(ctx.step(quick))))
        return None

    @app.process(retry=NO_RETRY)
    async def careless(ctx: Context, number: int) -> None:
        awaitable = await misuse(ctx, number)
        assert awaitable is not None
        try:
            await awaitable
        except ConfigError as error:
            said.append(str(error))
            raise

    handles = [await app.start(careless, number) for number in range(5)]
    await app.drain()
    for handle in handles:
        outcome = await outcome_of(handle)
        assert isinstance(outcome, Failure), outcome
        assert outcome.code == "ConfigError"
    assert len(said) == 5
    assert all("gather()" in each and "options(key=...)" in each for each in said)


async def _await(awaitable: Awaitable[Any]) -> Any:  # noqa: ANN401 (whatever it returns)
    return await awaitable


async def test_what_is_safe_in_foreign_tasks(world: World) -> None:
    """Steps called in the function and awaited elsewhere are allowed, as are steps with explicit keys."""
    app = await world.app()

    async def quick(number: int) -> int:
        world.count("quick")
        return number

    async def line(ctx: Context, number: int) -> int:
        return await ctx.options(key=f"line-{number}").step(quick, number)

    @app.process
    async def free(ctx: Context) -> list[int]:
        first = await asyncio.gather(ctx.step(quick, 1), ctx.step(quick, 2))
        second = await asyncio.gather(line(ctx, 3), line(ctx, 4))
        third = await asyncio.wait_for(_await(ctx.step(quick, 5)), timeout=60)
        await ctx.sleep(1)
        return [*first, *second, third]

    handle = await app.start(free)
    await app.drain()
    await world.seconds(1)
    await app.drain()
    assert await handle.result(timeout_s=5) == [1, 2, 3, 4, 5]
    assert world.calls["quick"] == 5


async def test_turns_gather_too(world: World) -> None:
    """Branches of a turn have keys of their own, as in a process."""
    app = await world.app()

    async def fetch(name: str) -> str:
        world.count(name)
        return name

    async def line(turn: Turn, name: str) -> str:
        first = await turn.step(fetch, name)
        return first + await turn.step(fetch, name * 2)

    @app.agent
    async def answer(turn: Turn) -> str:
        parts: list[str] = await turn.gather(line(turn, "a"), line(turn, "b"))
        if world.count("turns") == 1:
            raise OSError("once more")
        return " ".join(parts)

    chat = app.session("s", answer)
    await chat.send("go")
    await app.drain()
    await world.seconds(10)
    await app.drain()
    assert world.calls["turns"] == 2
    assert [world.calls[name] for name in ("a", "b", "aa", "bb")] == [1, 1, 1, 1]


async def test_a_task_left_behind_writes_nothing(world: World) -> None:
    """After the function has returned, a task that it started cannot use the context."""
    app = await world.app()
    seen: list[BaseException] = []
    go = asyncio.Event()

    async def quick() -> int:
        return world.count("quick")

    @app.process
    async def leaver(ctx: Context) -> None:
        async def late() -> None:
            await go.wait()
            try:
                await ctx.options(key="late").step(quick)
            except BaseException as error:  # noqa: BLE001 (it is looked at below)
                seen.append(error)

        world.late = asyncio.create_task(late())  # type: ignore[attr-defined]

    handle = await app.start(leaver)
    await app.drain()
    assert await handle.status() is ProcessStatus.COMPLETED
    go.set()
    await world.late  # type: ignore[attr-defined]
    assert isinstance(seen[0], Suspended)
    assert world.calls["quick"] == 0


async def test_a_pause_that_was_given_up_does_not_wake_the_process(world: World) -> None:
    """After a branch failed, the pauses of cancelled branches do not affect when the process is due."""
    app = await world.app()

    async def fail() -> None:
        raise ValueError("no")

    @app.process
    async def sleeper(ctx: Context) -> str:
        with pytest.raises((ValueError, StepFailed)):
            await ctx.gather(ctx.sleep(5), ctx.gather(ctx.now(), ctx.step(fail)))
        await ctx.sleep(60)
        return "rested"

    handle = await app.start(sleeper)
    await app.drain()
    await world.seconds(6)
    assert await app.drain() == 0
    await world.seconds(54)
    assert await app.drain() == 1
    assert await handle.result(timeout_s=5) == "rested"
