"""The life of a process: its start, its children, and its cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lash.errors import ConfigError, InvalidInput, ProcessFailed
from lash.model.process.process import (
    Cancellation,
    ProcessAcquired,
    ProcessStatus,
    Success,
)
from lash.runtime.app import App
from lash.runtime.policy import NO_RETRY, WorkerOptions
from lash.runtime.processes.context import Context
from lash.runtime.processes.run import ProcessRun, RunEnd
from lash.runtime.worker.worker import Worker
from tests.factories.bytes import ScriptedBytes
from tests.runtime.process_bench import World, outcome_of


async def test_a_registered_process_is_run_once_by_whoever_comes(world: World) -> None:
    """It survives a reopening, is listed, a new worker finishes it, and a second drain does nothing."""
    app = await world.app()

    async def task(ctx: Context, number: int) -> int:
        world.count("task")
        return number + 1

    handle = await app.start(app.process(task), 4)
    if world.shared:
        await app.stop()
        app = await world.app()
        app.process(task)
    assert [each.process_id for each in await app.storage.processes.runnable()] == [handle.process_id]
    assert await app.drain() == 1
    assert await app.drain() == 0
    if world.shared:
        assert await (await world.app()).drain() == 0, "what a peer ended is none of one's own runs"
    assert await outcome_of(app.handle(handle.process_id)) == Success(value=5)
    assert world.calls["task"] == 1


async def test_a_blank_id_is_refused(world: World) -> None:
    """A process without an id is refused and not registered under another."""
    app = await world.app()

    @app.process
    async def task(ctx: Context) -> None: ...

    for process_id in ("", "  "):
        with pytest.raises(InvalidInput, match="blank"):
            await app.starting(process_id=process_id).start(task)
    assert (await app.storage.processes.list()).processes == ()


async def test_two_workers_never_run_one_process_at_once(world: World) -> None:
    """Each process is run by one of two workers at a time."""
    if not world.shared:
        pytest.skip("a database in memory has one application")
    inside: set[str] = set()
    overlaps: list[str] = []

    def declare(app: App) -> Any:  # noqa: ANN401 (a definition)
        async def work(process_id: str) -> None:
            if process_id in inside:
                overlaps.append(process_id)
            inside.add(process_id)
            await asyncio.sleep(0.005)
            inside.discard(process_id)
            world.count(process_id)

        async def task(ctx: Context) -> None:
            await ctx.step(work, ctx.process_id)
            await ctx.sleep(0.05)
            await ctx.step(work, ctx.process_id)

        return app.process(task)

    one = await world.app(worker=True, real_time=True)
    other = await world.app(worker=True, real_time=True)
    process = declare(one)
    declare(other)
    handles = [await one.start(process) for _ in range(12)]
    await asyncio.gather(*(handle.result(timeout_s=30) for handle in handles))
    assert overlaps == []
    assert [world.calls[handle.process_id] for handle in handles] == [2] * 12


async def test_children(world: World) -> None:
    """A child is started once over all runs; the parent sees its result or failure in every run."""
    app = await world.app()
    seen: list[str] = []

    @app.process(retry=NO_RETRY)
    async def child(ctx: Context, number: int) -> int:
        world.count("child")
        if number == 3:
            raise ValueError("three is too many")
        await ctx.sleep(number)
        return number * 10

    @app.process
    async def parent(ctx: Context) -> list[int]:
        children = [await ctx.start(child, number) for number in (1, 2, 3)]
        results = await ctx.gather(*(each.result() for each in children[:2]))
        try:
            await children[2].result()
        except ProcessFailed as error:
            seen.append(str(error))
        await ctx.sleep(100)
        return [*results, await children[0].result()]

    handle = await app.start(parent)
    await app.drain()
    assert len((await app.storage.processes.list()).processes) == 4
    for seconds in (1, 1, 100):
        await world.seconds(seconds)
        await app.drain()
    assert await handle.result(timeout_s=5) == [10, 20, 10]
    assert len(seen) == 2
    assert len(set(seen)) == 1
    assert "three is too many" in seen[0]
    assert world.calls["child"] == 5, "two of them slept once, the third failed at once"


async def test_a_child_that_was_pruned_does_not_trouble_its_parent(world: World) -> None:
    """The parent's record of its child's result outlives the pruned child."""
    app = await world.app()

    @app.process
    async def child(ctx: Context) -> str:
        return "kept"

    @app.process
    async def parent(ctx: Context) -> str:
        result = await (await ctx.start(child)).result()
        await ctx.sleep(1_000)
        return result

    handle = await app.start(parent)
    await app.drain()
    await world.seconds(1_000)
    pruned = await app.storage.processes.prune(ended_before_ms=world.clock.now_ms(), through_cursor=None)
    assert len(pruned.pruned_process_ids) == 1
    await app.drain()
    assert await handle.result(timeout_s=5) == "kept"


async def test_a_parent_at_the_limit_does_not_starve_its_children(world: World) -> None:
    """One worker that runs one process at a time runs parents, children and grandchildren to their end."""
    app = await world.app(worker=True, real_time=True, options=WorkerOptions(processes=1))

    @app.process
    async def family(ctx: Context, depth: int) -> int:
        if depth == 0:
            return 1
        children = [await ctx.start(family, depth - 1) for _ in range(2)]
        return sum(await ctx.gather(*(child.result() for child in children)))

    handle = await app.start(family, 3)
    assert await handle.result(timeout_s=30) == 8


async def test_a_child_that_ends_before_its_parent_parks(world: World) -> None:
    """A child that ends between the parent's check and its parking is not missed."""
    app = await world.app()
    park = app.storage.process_leases.park

    @app.process
    async def child(ctx: Context) -> int:
        return 5

    @app.process
    async def parent(ctx: Context) -> int:
        return await (await ctx.start(child)).result()

    async def late(fence: Any, **options: Any) -> bool:  # noqa: ANN401 (those of the store)
        if world.count("park") == 1:
            assert await Worker(app._require()).drain() == 1, "the child is run while its parent has not parked yet"
        return await park(fence, **options)

    app.storage.process_leases.park = late  # type: ignore[method-assign]
    handle = await app.start(parent)
    await app.drain()
    assert await handle.result(timeout_s=5) == 5


async def test_a_process_that_never_began_is_cancelled_without_running(world: World) -> None:
    """Its function is not called, and waiters get the reason."""
    app = await world.app()

    @app.process
    async def task(ctx: Context) -> None:
        world.count("task")

    handle = await app.start(task)
    await handle.cancel("changed my mind")
    await app.drain()
    assert await outcome_of(handle) == Cancellation(message="changed my mind")
    assert world.calls["task"] == 0


async def test_a_parked_process_is_cancelled_at_once(world: World) -> None:
    """The request wakes it, the resumed run sees it at its wait and ends; its child continues."""
    app = await world.app()
    seen: list[str] = []

    @app.process
    async def child(ctx: Context) -> str:
        await ctx.wait_signal("go")
        return "alone"

    @app.process
    async def parent(ctx: Context) -> None:
        started = await ctx.start(child)
        try:
            await started.result()
        except asyncio.CancelledError:
            seen.append(started.process_id)
            raise

    handle = await app.start(parent)
    await app.drain()
    await handle.cancel("enough")
    await app.drain()
    assert await outcome_of(handle) == Cancellation(message="enough")
    await app.signal(seen[0], "go")
    await app.drain()
    assert await app.handle(seen[0]).result(timeout_s=5) == "alone"


async def test_a_function_may_answer_its_cancellation(world: World) -> None:
    """It is raised once in every run, at the same place; steps and pauses of its handler are recorded."""
    app = await world.app()
    seen: list[str] = []

    async def undo() -> str:
        world.count("undo")
        return "undone"

    @app.process
    async def careful(ctx: Context) -> str:
        try:
            await ctx.wait_signal("never")
        except asyncio.CancelledError:
            seen.append("cancelled")
            text = await ctx.step(undo)
            await ctx.sleep(60)
            return f"{text} after a pause"
        return "not cancelled"

    handle = await app.start(careful)
    await app.drain()
    await handle.cancel("stop")
    await handle.signal("never")
    await app.drain()
    assert await handle.status() is ProcessStatus.RUNNING
    assert (await handle.record()).projection.wait is None, "it no longer waits for the signal"
    await world.seconds(60)
    await app.drain()
    assert await handle.result(timeout_s=5) == "undone after a pause"
    assert world.calls["undo"] == 1
    assert seen == ["cancelled", "cancelled"]


async def test_a_running_process_is_cancelled(world: World) -> None:
    """Its worker sees the request and cancels the current await; the reason is kept."""
    app = await world.app(worker=True, real_time=True)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def for_ever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @app.process
    async def busy(ctx: Context) -> None:
        await ctx.step(for_ever)

    handle = await app.start(busy)
    await asyncio.wait_for(begun.wait(), 10)
    await handle.cancel("too expensive")
    with pytest.raises(ProcessFailed, match="too expensive"):
        await handle.result(timeout_s=10)
    assert ended.is_set()
    assert await outcome_of(handle) == Cancellation(message="too expensive")


async def test_a_cancellation_that_comes_while_the_records_are_read(world: World) -> None:
    """A request that arrives before the function runs is raised at its first step."""
    app = await world.app()
    core, storage = app._require(), app.storage
    read = storage.effects.list

    async def work() -> None:
        world.count("work")

    @app.process
    async def task(ctx: Context) -> None:
        await ctx.step(work)

    handle = await app.start(task)
    await storage.process_leases.claim(handle.process_id, core.owner, ttl_ms=30_000)
    # The first claim reports that there are no records; a later run has to read them.
    claimed = await storage.process_leases.claim(handle.process_id, core.owner, ttl_ms=30_000)
    assert isinstance(claimed, ProcessAcquired)
    run = ProcessRun(core, claimed, lambda: None)

    async def told(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the store)
        run.cancel_once("early")
        return await read(*args, **kwargs)

    storage.effects.list = told  # type: ignore[method-assign]
    assert await run.run() is RunEnd.ENDED
    assert await outcome_of(handle) == Cancellation(message="early")
    assert world.calls["work"] == 0


async def test_a_durable_storage_needs_durable_attachments(world: World) -> None:
    """An application with a durable storage refuses attachments in memory, before anything runs."""
    app = App(world.url, worker=False, attachment_bytes=ScriptedBytes())
    if not world.shared:
        await app.open()
        await app.stop()
        return
    with pytest.raises(ConfigError, match="attachments are not"):
        await app.open()
