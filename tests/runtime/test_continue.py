"""Processes that continue as new: what the next run has, and what it does not replay."""

from __future__ import annotations

import asyncio

from lash.model.process.process import Failure, ProcessStatus
from lash.model.value import JSON
from lash.runtime.policy import Retry
from lash.runtime.processes.context import Context
from tests.runtime.process_bench import World, kinds_of, outcome_of, records_of


async def test_a_long_loop_replays_nothing_of_its_earlier_runs(world: World) -> None:
    """Each run begins with its arguments and no records; the caller gets the result of the last run."""
    app = await world.app()

    async def work(number: int) -> int:
        return world.count(f"work {number}")

    @app.process
    async def loop(ctx: Context, done: int = 0, total: int = 0) -> int:
        for _ in range(20):
            total += await ctx.step(work, done)
            done += 1
        if done < 100:
            await ctx.continue_as_new(done, total=total)
        return total

    handle = await app.start(loop)
    await app.drain()
    assert await handle.result(timeout_s=5) == 100
    assert set(world.calls.values()) == {1}
    assert world.heard.of("step.replayed") == []
    assert [each["run"] for each in world.heard.of("process.continued")] == [2, 3, 4, 5]
    assert min(await records_of(app, handle)) == "5/work#1", "only the last run has records"
    assert (await handle.record()).projection.run == 5


async def test_signals_that_no_wait_received_come_to_the_next_run(world: World) -> None:
    """Each signal is received once, in its order, whichever run waits for it, also after a gap."""
    app = await world.app()

    @app.process
    async def inbox(ctx: Context, got: list[JSON]) -> list[JSON]:
        if not got:
            await ctx.wait_any(ctx.wait_signal("other"), ctx.sleep(1))
        got += [await ctx.wait_signal("item"), await ctx.wait_signal("item")]
        if len(got) < 6:
            await ctx.continue_as_new(got)
        return [*got, await ctx.wait_signal("other")]

    handle = await app.start(inbox, [])
    for number in range(5):
        await handle.signal("item", number, key=str(number))
    await app.drain()
    await world.seconds(2)
    await app.drain()
    assert (await handle.record()).projection.run == 3
    await handle.signal("item", 5, key="5")
    await handle.signal("other", "o", key="o")
    await app.drain()
    assert await handle.result(timeout_s=5) == [0, 1, 2, 3, 4, 5, "o"]


async def test_ids_and_keys_of_runs_differ_and_waits_keep_their_names(world: World) -> None:
    """Children, uuids and wakes of each run are new ones; a wait that was resolved stays resolved."""
    app = await world.app()

    @app.process
    async def child(ctx: Context, name: str) -> str:
        return name

    @app.process
    async def parent(ctx: Context, seen: list[str]) -> list[str]:
        started = await ctx.start(child, f"child {len(seen)}")
        key = await ctx.wait_key("approval")
        await app.resolve(key, "once")
        found = [await started.result(), started.process_id, str(ctx.uuid()), key, str(await ctx.wait("approval"))]
        if not seen:
            await ctx.continue_as_new(found)
        return seen + found

    handle = await app.starting(process_id="p").start(parent, [])
    await app.drain()
    found = await handle.result(timeout_s=5)
    first, second = found[:5], found[5:]
    assert (first[0], second[0]) == ("child 0", "child 5")
    assert (first[1], second[1]) == ("p:start.child#1", "p:2/start.child#1")
    assert first[2] != second[2]
    assert first[3:] == second[3:]


async def test_attempts_are_counted_for_each_run(world: World) -> None:
    """A failure in every run does not end the process; too many in one run do."""
    app = await world.app()

    @app.process(retry=Retry(max_attempts=2, first_pause_s=1))
    async def flaky(ctx: Context, run: int) -> None:
        if world.count(f"run {run}") == 1 or run == 4:
            raise OSError(f"run {run}")
        await ctx.continue_as_new(run + 1)

    handle = await app.start(flaky, 1)
    for _ in range(6):
        await app.drain()
        await world.seconds(5)
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert outcome.message == "run 4"
    assert (await kinds_of(handle)).count("process.attempt_failed") == 5


async def test_a_cancel_request_reaches_the_next_run(world: World) -> None:
    """A process that continues although it was cancelled is cancelled in its next run."""
    app = await world.app()

    @app.process
    async def stubborn(ctx: Context, run: int) -> None:
        try:
            await ctx.wait_signal("never")
        except asyncio.CancelledError:
            if run == 1:
                await ctx.continue_as_new(2)
            raise

    handle = await app.start(stubborn, 1)
    await app.drain()
    await handle.cancel("enough")
    await app.drain()
    record = await handle.record()
    assert (record.status, record.projection.run) == (ProcessStatus.CANCELLED, 2)


async def test_arguments_that_do_not_fit_end_the_process(world: World) -> None:
    """The error names the process, and no next run begins."""
    app = await world.app()

    @app.process
    async def wrong(ctx: Context, number: int) -> None:
        await ctx.continue_as_new(number, "more")

    handle = await app.start(wrong, 1)
    await app.drain()
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert "process 'wrong': too many positional arguments" in outcome.message
    assert (await handle.record()).projection.run == 1
