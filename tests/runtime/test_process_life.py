"""The life of a process: children, cancellation, versions, changed code, attempts, and who may run it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from lash.errors import InvalidInput, ProcessFailed
from lash.model.process import (
    HOST,
    Cancellation,
    EngineInput,
    Failure,
    ProcessStatus,
    Provenance,
    Recovery,
    Success,
)
from lash.runtime.app import App
from lash.runtime.policy import NO_RETRY, Retry, WorkerOptions
from lash.runtime.process import Context
from tests.runtime.process_bench import World, kinds_of, outcome_of, records_of


async def test_a_registered_process_is_run_once_by_whoever_comes(world: World) -> None:
    """Laws 90, H58: it survives a reopening, is listed, a fresh worker ends it, and a second pass does nothing."""
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
    """Law 99: a process without an id is refused and not registered under another."""
    app = await world.app()

    @app.process
    async def task(ctx: Context) -> None: ...

    for process_id in ("", "  "):
        with pytest.raises(InvalidInput, match="blank"):
            await app.starting(process_id=process_id).start(task)
    assert (await app.storage.processes.list()).processes == ()


async def test_two_workers_never_run_one_process_at_once(world: World) -> None:
    """Law 96: of two workers on one storage each process is run by one at a time."""
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
    """A child is started once over all runs; its result and its failure are the parent's to see, in every run."""
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
    """What the parent saw of its child is recorded, so that it goes on when the child is no longer kept."""
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
    """H64: one worker that runs one process at a time runs parents, children and grandchildren to their end."""
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
    """The end of a child between the parent's look and its parking is not missed."""
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
            assert await app.drain() == 1, "the child is run while its parent has not parked yet"
        return await park(fence, **options)

    app.storage.process_leases.park = late  # type: ignore[method-assign]
    handle = await app.start(parent)
    await app.drain()
    assert await handle.result(timeout_s=5) == 5


async def test_a_process_that_never_began_is_cancelled_without_running(world: World) -> None:
    """Its function is not called, and whoever waits is told the reason."""
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
    """Law 95: the request wakes it, is seen by the recovering run where it waits, and ends it; its child goes on."""
    app = await world.app()
    seen: list[str] = []

    @app.process
    async def child(ctx: Context) -> str:
        await ctx.signal("go")
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
    """It is raised once in every run, at the same place; steps and pauses of its handler are recorded like others."""
    app = await world.app()
    seen: list[str] = []

    async def undo() -> str:
        world.count("undo")
        return "undone"

    @app.process
    async def careful(ctx: Context) -> str:
        try:
            await ctx.signal("never")
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
    """A worker that runs it sees the request, cancels what it awaits, and the reason is kept."""
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


async def test_old_runs_go_on_with_old_code(world: World) -> None:
    """A run keeps the version under which it began; a version that nobody has waits, and its log says for what."""
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
    """The mismatch names step, path and both values; it costs no attempt, and with the code mended the run goes on."""
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
    """Children, emissions, wakes and the types of results that differ from the record stop the run, not the process."""
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
    """Each failed attempt is an event; after the last the process is failed with what the last one said."""
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


async def test_the_time_limit_of_a_process(world: World) -> None:
    """A run that never ends is ended by the limit of its process, as a failed attempt."""
    app = await world.app()

    @app.process(timeout_s=0.02, retry=NO_RETRY)
    async def endless(ctx: Context) -> None:
        await asyncio.Event().wait()

    handle = await app.start(endless)
    await app.drain()
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert outcome.code == "TimeoutError"


async def test_a_process_bound_to_its_owner_is_left_by_others(world: World) -> None:
    """Once begun, nobody but its owner goes on with it."""
    if not world.shared:
        pytest.skip("a database in memory has one application")
    owner, other = await world.app(worker_id="owner"), await world.app(worker_id="other")

    async def bound(ctx: Context) -> str:
        world.count("runs")
        await ctx.sleep(10)
        return "mine"

    process = owner.process(bound)
    other.process(bound)
    registration = owner._require().registration(
        process, "bound", (), {}, provenance=Provenance(originator=HOST), wake_session_id=None
    )
    await owner.storage.processes.register(msgspec.structs.replace(registration, recovery=Recovery.OWNER_BOUND))
    assert await owner.drain() == 1
    await world.seconds(10)
    assert await other.drain() == 0
    assert await owner.drain() == 1
    assert await owner.handle("bound").result(timeout_s=5) == "mine"


async def test_a_process_with_a_strange_input_is_failed(world: World) -> None:
    """Law 98: arguments without names, from whoever registered them, end the process instead of a worker's run."""
    app = await world.app()

    @app.process
    async def task(ctx: Context, number: int) -> None: ...

    registration = app._require().registration(
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
    """A run whose lease somebody else took records nothing more, does no further step, and ends nothing."""
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
