"""The first of several: which one wins, what becomes of the others, and what later runs see."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import InvalidInput, StepFailed
from lash.model.process.process import ProcessPhase
from lash.model.value import JSON
from lash.model.wait import Resolved
from lash.runtime.policy import Retry
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.process_bench import World, records_of


async def test_the_first_of_several_waits_is_recorded_and_the_others_are_left(world: World) -> None:
    """Each signal is received once, also if several are there; a loser is not recorded."""
    app = await world.app()

    @app.process
    async def inbox(ctx: Context) -> list[JSON]:
        world.count("runs")
        got: list[JSON] = []
        while len(got) < 4:
            which, value = await ctx.wait_any(ctx.wait_signal("a"), ctx.wait_signal("b"), ctx.sleep(60))
            got.append([which, value])
        return got

    handle = await app.start(inbox)
    await app.drain()
    await handle.signal("b", 1, key="1")
    await app.drain()
    parked = (await app.storage.processes.list(with_state=True)).processes[0].state
    assert parked is not None
    assert parked.phase is ProcessPhase.WAITING
    assert parked.waits_for in ("signal a", "signal b"), "which is read first is not fixed"
    await handle.signal("b", 2, key="2")
    await handle.signal("a", 3, key="3")
    await app.drain()
    assert world.calls["runs"] == 3, "it waited without a run"
    await world.seconds(61)
    await app.drain()
    first, *both, last = await handle.result(timeout_s=5)
    assert (first, last) == ([1, 1], [2, None])
    assert sorted(map(str, both)) == ["[0, 3]", "[1, 2]"], "both were there, and which is read first is not fixed"
    records = await records_of(app, handle)
    assert sorted(key for key in records if not key.startswith("sleep")) == ["race#1", "race#2", "race#3", "race#4"]


async def test_a_wait_that_loses_stays_open_and_a_child_goes_on(world: World) -> None:
    """What lost can be waited for again; the value is of the given type."""
    app = await world.app()

    @app.process
    async def child(ctx: Context) -> str:
        await ctx.sleep(100)
        return "grown"

    @app.process
    async def parent(ctx: Context) -> list[JSON]:
        started = await ctx.start(child)
        approval = ctx.wait("approval", of_type=set[int])
        which, _ = await ctx.wait_any(started.result(), approval, ctx.sleep(10))
        again = await ctx.wait_any(started.result(), ctx.wait("approval", of_type=set[int]))
        assert again[0] == 1
        assert isinstance(again[1], set)
        return [which, sorted(again[1]), await started.result()]

    handle = await app.start(parent)
    await app.drain()
    await world.seconds(11)
    await app.drain()
    (pending,) = await app.storage.waits.pending()
    await app.storage.waits.resolve_id(pending.key_id, Resolved(value=[2, 1]))
    await app.drain()
    await world.seconds(100)
    await app.drain()
    assert await handle.result(timeout_s=5) == [2, [1, 2], "grown"]


async def test_a_time_limit_of_a_wait_can_win(world: World) -> None:
    """The error of the first one is raised, in every run."""
    app = await world.app()

    @app.process
    async def impatient(ctx: Context) -> str:
        try:
            await ctx.wait_any(ctx.wait_signal("never"), ctx.wait_signal("late", timeout_s=5))
        except TimeoutError as error:
            await ctx.sleep(1)
            return f"{error} and {await ctx.wait_signal('late')}"
        return "no"

    handle = await app.start(impatient)
    await app.drain()
    await world.seconds(6)
    await app.drain()
    await handle.signal("late", "late", key="1")
    await world.seconds(2)
    await app.drain()
    assert await handle.result(timeout_s=5) == "no signal 'late' came in time and late"


async def test_a_pause_beats_a_step_that_runs(world: World) -> None:
    """The step is cancelled; later runs have the same winner and do not start the step again."""
    app = await world.app()
    ended: list[str] = []

    async def endless() -> str:
        world.count("endless")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")
        return "never"

    @app.process
    async def limited(ctx: Context) -> str:
        if await ctx.race(ctx.step(endless), ctx.sleep(0.05)) is None:
            await ctx.sleep(1)
            return "too slow"
        return "no"

    handle = await app.start(limited)
    await app.drain()
    await world.seconds(2)
    await app.drain()
    assert await handle.result(timeout_s=5) == "too slow"
    assert (world.calls["endless"], ended) == (1, ["endless"])
    assert set(await records_of(app, handle)) == {"race#1", "sleep#1", "sleep#2"}


@pytest.mark.parametrize("what", ["signal", "wait", "child"])
async def test_what_comes_while_a_step_runs_beats_it(world: World, what: str) -> None:
    """A run that a step keeps in memory sees what its other branches wait for."""
    app = await world.app(worker=True, real_time=True)
    running = asyncio.Event()

    async def endless() -> str:
        running.set()
        await asyncio.Event().wait()
        return "never"

    @app.process
    async def child(ctx: Context) -> str:
        return str(await ctx.wait_signal("go"))

    @app.process
    async def stoppable(ctx: Context) -> str:
        started = await ctx.start(child)
        waits = {"signal": ctx.wait_signal("go"), "wait": ctx.wait("go"), "child": started.result()}
        chosen = waits.pop(what)
        for other in waits.values():
            other.close()
        return str(await ctx.race(ctx.step(endless), chosen))

    handle = await app.start(stoppable)
    await asyncio.wait_for(running.wait(), 30)
    if what == "wait":
        while not (pending := await app.storage.waits.pending()):  # noqa: ASYNC110 (another task opens it)
            await asyncio.sleep(0.01)
        await app.storage.waits.resolve_id(pending[0].key_id, Resolved(value="went"))
    else:
        targets = {"signal": handle.process_id, "child": f"{handle.process_id}:start.child#1"}
        await app.signal(targets[what], "go", "went", key="1")
    assert await handle.result(timeout_s=60) == "went"


async def test_a_step_that_is_faster_wins_in_every_run(world: World) -> None:
    """The winner's result is replayed although the loser could end first by then; a failed attempt changes nothing."""
    app = await world.app()

    async def quick() -> str:
        return f"quick {world.count('quick')}"

    @app.process(retry=Retry(max_attempts=3, first_pause_s=1))
    async def racing(ctx: Context) -> list[JSON]:
        won = await ctx.race(ctx.sleep(10), ctx.wait_signal("go"), ctx.step(quick))
        if world.count("runs") == 1:
            raise OSError("broken off")
        return [won, await ctx.wait_signal("go")]

    handle = await app.start(racing)
    await app.drain()
    await handle.signal("go", "went", key="1")
    await world.seconds(60)
    await app.drain()
    assert await handle.result(timeout_s=5) == ["quick 1", "went"], "the signal was left to the wait after the race"


async def test_branches_of_several_steps_race(world: World) -> None:
    """A loser's steps stay recorded; only the winner runs again, from its records."""
    app = await world.app()
    cancelled: list[str] = []

    async def work(name: str) -> str:
        world.count(name)
        return name

    async def branch(ctx: Context, name: str, pause_s: float) -> str:
        try:
            first: str = await ctx.step("work", work, name)
            await ctx.sleep(pause_s)
            return first + await ctx.step("work", work, name * 2)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    @app.process
    async def racing(ctx: Context) -> str:
        won: str = await ctx.race(branch(ctx, "a", 20), branch(ctx, "b", 10))
        await ctx.sleep(60)
        return won

    handle = await app.start(racing)
    await app.drain()
    await world.seconds(11)
    await app.drain()
    await world.seconds(61)
    await app.drain()
    assert await handle.result(timeout_s=5) == "bbb"
    assert dict(world.calls) == {"a": 1, "b": 1, "bb": 1}
    assert cancelled == ["a"]
    assert "race#1.0/work#1" in await records_of(app, handle)


async def test_a_winner_that_failed_stays_the_winner_once_the_function_continues(world: World) -> None:
    """Without a record the next attempt races again; with the failure caught, every run has the same failure."""
    app = await world.app()

    async def flaky() -> str:
        raise OSError(f"failure {world.count('flaky')}")

    @app.process(retry=Retry(max_attempts=3, first_pause_s=1))
    async def racing(ctx: Context) -> str:
        try:
            await ctx.race(ctx.step(flaky), ctx.wait_signal("go"))
        except (OSError, StepFailed) as error:
            if world.count("runs") == 1:
                raise
            await ctx.sleep(1)
            return f"{type(error).__name__} {await ctx.wait_signal('go')}"
        return "no"

    handle = await app.start(racing)
    await app.drain()
    await world.seconds(2)
    await app.drain()
    await handle.signal("go", "went", key="1")
    await world.seconds(2)
    await app.drain()
    assert await handle.result(timeout_s=5) == "StepFailed went"
    assert world.calls["flaky"] == 2


async def test_a_cancellation_ends_a_race_without_a_winner(world: World) -> None:
    """A process that is cancelled while it waits for the first of several ends as cancelled."""
    app = await world.app()

    @app.process
    async def racing(ctx: Context) -> str:
        return str(await ctx.race(ctx.wait_signal("go"), ctx.sleep(60)))

    handle = await app.start(racing)
    await app.drain()
    await handle.cancel("enough")
    await app.drain()
    assert (await handle.status()).value == "cancelled"
    assert "race#1" not in await records_of(app, handle)


async def test_what_cannot_race_is_refused(world: World) -> None:
    """wait_any takes only what can be waited for, and both take at least one."""
    app = await world.app()

    async def quick() -> None:
        pass

    @app.process
    async def wrong(ctx: Context) -> list[str]:
        said = []
        for make in (lambda: ctx.wait_any(ctx.step(quick)), ctx.wait_any, ctx.race):  # type: ignore[call-overload]
            try:
                await make()
            except InvalidInput as error:
                said.append(str(error))
        return said

    handle = await app.start(wrong)
    await app.drain()
    first, *others = await handle.result(timeout_s=5)
    assert "expected a wait, a signal, a pause or the result of a child, got coroutine; race()" in first
    assert others == ["expected at least one awaitable"] * 2


async def test_turns_race_too(world: World) -> None:
    """A turn waits for the first of several while it is parked, and races steps."""
    app = await world.app()

    async def quick() -> str:
        return f"quick {world.count('quick')}"

    @app.agent
    async def agent(turn: Turn) -> str:
        which, _ = await turn.wait_any(turn.wait("approval"), turn.sleep(10))
        return f"{which} {await turn.race(turn.step(quick), turn.sleep(10))}"

    chat = app.session("s", agent=agent)
    await chat.send("hello", key="1")
    await app.drain()
    assert not world.calls["quick"]
    await world.seconds(11)
    await app.drain()
    assert await chat.ask("hello", key="1", timeout_s=5) == "1 quick 1"
