"""Pauses and waits: values that are set once, and no lease held meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lash.errors import InvalidInput, WaitRejected
from lash.model.process.event import SIGNAL_PREFIX
from lash.model.process.process import Failure, ProcessStatus
from lash.model.wait import Resolved
from lash.runtime.errors import Suspended
from lash.runtime.policy import NO_RETRY
from lash.runtime.processes.context import Context
from lash.testing.clock import START_MS
from tests.runtime.process_bench import World, kinds_of, outcome_of, records_of


async def test_a_pause_holds_nothing_and_ends_when_it_was_due(world: World) -> None:
    """The due time is set once; until then there is no lease and no entry on the work list, even after reopening."""
    app = await world.app()

    async def sleeper(ctx: Context) -> str:
        world.count("runs")
        await ctx.sleep(minutes=30, hours=1)
        return "awake"

    handle = await app.start(app.process(sleeper))
    await app.drain()
    assert await app.storage.process_leases.holder(handle.process_id) is None
    for _ in range(2):
        await world.seconds(2_690)
        if world.shared:
            app = await world.app()
            app.process(sleeper)
        assert await app.drain() == 0
    assert (await records_of(app, handle))["sleep#1"].due_at_ms == START_MS + 5_400_000
    await world.seconds(20)
    assert await app.drain() == 1
    assert world.calls["runs"] == 2
    assert await app.handle(handle.process_id).result(timeout_s=5) == "awake"


async def test_a_pause_until_a_moment(world: World) -> None:
    """sleep_until ends at its moment; a past moment does not pause; one without a time zone is refused."""
    app = await world.app()
    moment = datetime.fromtimestamp(START_MS / 1_000, UTC) + timedelta(days=3)

    @app.process
    async def sleeper(ctx: Context) -> str:
        await ctx.sleep_until(moment - timedelta(days=30))
        await ctx.sleep_until(moment)
        with pytest.raises(InvalidInput, match="time zone"):
            ctx.sleep_until(moment.replace(tzinfo=None))
        with pytest.raises(InvalidInput, match="negative"):
            ctx.sleep(-1)
        return "awake"

    handle = await app.start(sleeper)
    await app.drain()
    await world.seconds(3 * 86_400 - 1)
    assert await app.drain() == 0
    await world.seconds(1)
    assert await app.drain() == 1
    assert await handle.result(timeout_s=5) == "awake"


async def test_a_crash_during_a_pause_does_not_move_it(world: World) -> None:
    """A run that crashes right after the record of a pause leaves its due time to the next run."""
    app = await world.app()

    async def boom() -> None:
        if world.count("boom") == 1:
            for _ in range(1_000):
                if "sleep#1" in await records_of(app, handle):
                    break
                await asyncio.sleep(0.005)
            raise OSError("no")

    @app.process
    async def sleeper(ctx: Context) -> int:
        await ctx.gather(ctx.sleep(100), ctx.step(boom))
        return round((await ctx.now()).timestamp() * 1_000)

    handle = await app.start(sleeper)
    await app.drain()
    await world.seconds(50)
    await app.drain()
    await world.seconds(50)
    await app.drain()
    assert await handle.result(timeout_s=5) == START_MS + 100_000


async def test_the_same_time_chance_and_ids_in_every_run(world: World) -> None:
    """now, random and uuid are the same in every run, different from call to call, and time is UTC."""
    app = await world.app()
    seen: list[list[object]] = []

    @app.process
    async def curious(ctx: Context) -> None:
        seen.append(
            [await ctx.now(), ctx.random(), ctx.random(), ctx.uuid(), ctx.uuid()]
            + await ctx.gather(ctx.now(), ctx.now())
        )
        await ctx.sleep(10)
        seen[-1].append(await ctx.now())

    for _ in range(2):
        await app.start(curious)
    await app.drain()
    await world.seconds(10)
    await app.drain()
    one, other, *again = seen
    assert sorted(map(repr, again)) == sorted(repr([*each, again[0][-1]]) for each in (one, other))
    assert one[0] == datetime.fromtimestamp(START_MS / 1_000, UTC)
    assert isinstance(one[0], datetime)
    assert one[0].tzinfo is UTC
    assert len({*one[1:5], *other[1:5]}) == 8, "two processes share no chance"
    assert again[0][-1] == one[0] + timedelta(seconds=10)


async def test_waits_are_resolved_from_anywhere(world: World) -> None:
    """Waits are resolved, rejected, cancelled, timed out, or resolved before they open; the first resolution stands."""
    app = await world.app()
    keys: dict[str, str] = {}

    @app.process
    async def asking(ctx: Context, name: str, timeout_s: float | None = None) -> object:
        keys[name] = await ctx.wait_key(name)
        if name == "early":
            await ctx.sleep(1)
        try:
            return await ctx.wait(name, timeout_s=timeout_s, of_type=dict)
        except WaitRejected as error:
            return ["rejected", error.code]
        except TimeoutError:
            return ["too late"]

    handles = {name: await app.start(asking, name) for name in ("value", "reject", "cancel", "early")}
    handles["timeout"] = await app.start(asking, "timeout", 30)
    await app.drain()
    assert all([await app.storage.process_leases.holder(each.process_id) is None for each in handles.values()])
    assert await app.resolve(keys["value"], {"n": 1})
    assert not await app.resolve(keys["value"], {"n": 2})
    assert await app.reject(keys["reject"], "declined", "no thanks")
    assert not await app.resolve(keys["reject"], {})
    await app.storage.waits.cancel(keys["cancel"])
    assert await app.resolve(keys["early"], {"early": True})
    await app.drain()
    await world.seconds(30)
    await app.drain()
    results = {name: await each.result(timeout_s=5) for name, each in handles.items()}
    assert results == {
        "value": {"n": 1},
        "reject": ["rejected", "declined"],
        "cancel": ["rejected", "cancelled"],
        "early": {"early": True},
        "timeout": ["too late"],
    }
    assert not await app.resolve(keys["timeout"], {}), "a wait that timed out is resolved"
    with pytest.raises(InvalidInput):
        await app.resolve(keys["value"][:-2] + "xx", 1)


async def test_a_wait_asks_a_person(world: World) -> None:
    """The question is stored with the wait, with the schema of the type; an operator answers it by its id."""
    app = await world.app()

    class Decision(msgspec.Struct):
        approved: bool

    @app.process
    async def asking(ctx: Context) -> list[object]:
        decision = await ctx.wait("typed", ask="Pay it?", of_type=Decision)
        own = await ctx.wait("own", ask={"text": "How much?", "schema": {"type": "integer"}, "details": [7]})
        return [decision.approved, own, await ctx.wait("free", ask="Why?")]

    handle = await app.start(asking)
    await app.drain()
    for text, wrong, answer in (("Pay it?", 1, {"approved": True}), ("How much?", "a", 5), ("Why?", None, "because")):
        (wait,) = await app.storage.waits.pending()
        assert wait.ask is not None
        assert wait.ask.text == text
        if wrong is not None:
            assert wait.ask.schema is not None
            with pytest.raises(InvalidInput, match="the answer to"):
                await app.storage.waits.resolve_id(wait.key_id, Resolved(value=wrong))
        await app.storage.waits.resolve_id(wait.key_id, Resolved(value=answer))
        await app.drain()
    assert await handle.result(timeout_s=5) == [True, 5, "because"]


@pytest.mark.parametrize("ask", [7, {"schema": {}}, {"text": 1}])
async def test_what_is_not_a_question_is_refused(world: World, ask: Any) -> None:  # noqa: ANN401 (wrong on purpose)
    """A question is a text, a Question or its fields; the error says so where the wait is written."""
    app = await world.app()

    @app.process
    async def asking(ctx: Context) -> None:
        with pytest.raises(InvalidInput, match="expected a text, or a Question"):
            ctx.wait("typed", ask=ask)

    handle = await app.start(asking)
    await app.drain()
    await handle.result(timeout_s=5)


async def test_what_a_wait_raised_is_the_same_in_every_run(world: World) -> None:
    """An uncaught rejection or timeout ends the process at once: another attempt would see the same."""
    app = await world.app()
    keys: list[str] = []

    @app.process
    async def rejected(ctx: Context) -> None:
        keys.append(await ctx.wait_key("w"))
        await ctx.wait("w")

    @app.process
    async def late(ctx: Context) -> None:
        await ctx.wait_signal("never", timeout_s=5)

    first, second = await app.start(rejected), await app.start(late)
    await app.drain()
    await app.reject(keys[0], "declined", "no")
    await world.seconds(5)
    await app.drain()
    one, other = await outcome_of(first), await outcome_of(second)
    assert isinstance(one, Failure)
    assert isinstance(other, Failure)
    assert (one.code, other.code) == ("WaitRejected", "TimeoutError")


async def test_finally_blocks_run_at_each_parking_and_do_nothing_durable(world: World) -> None:
    """Parking raises Suspended at the wait, neither an Exception nor a cancellation; the context is then closed."""
    app = await world.app()
    seen: list[str] = []

    async def clean_up() -> None:
        world.count("clean up")

    @app.process(retry=NO_RETRY)
    async def careful(ctx: Context) -> str:
        try:
            await ctx.wait_signal("go")
        except Exception:  # noqa: BLE001 (the point)
            seen.append("exception")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            try:
                await ctx.step(clean_up)
                seen.append("cleaned up")
            except Suspended:
                seen.append("suspended")
        return "done"

    handle = await app.start(careful)
    await app.drain()
    assert seen == ["suspended"]
    assert await handle.status() is ProcessStatus.RUNNING
    assert await records_of(app, handle) == {}
    await handle.signal("go")
    await app.drain()
    assert await handle.result(timeout_s=5) == "done"
    assert seen == ["suspended", "cleaned up"]
    assert world.calls["clean up"] == 1


async def test_wakes_and_emissions_happen_once_over_all_runs(world: World) -> None:
    """An emission starts its subscribers once and a wake is sent once, over all runs of the function."""
    app = await world.app()
    await app.storage.sessions.create("boss")
    reports: list[str] = []

    @app.process
    async def listener(ctx: Context, number: int) -> int:
        world.count("listener")
        return number

    app.on("counted", listener)

    @app.process
    async def speaker(ctx: Context) -> None:
        report = await ctx.emit("counted", 5)
        reports.append(report.occurrence_id)
        await ctx.wake("half way")
        await ctx.sleep(10)
        await ctx.emit("counted", 6)
        await ctx.wake("done")

    handle = await app.starting(wake="boss").start(speaker)
    await app.drain()
    await world.seconds(10)
    await app.drain()
    await handle.result(timeout_s=5)
    assert world.calls["listener"] == 2
    assert len(reports) == 2
    assert len(set(reports)) == 1
    wakes = [event.payload for event in await handle.events() if event.event_type == "wake"]
    assert wakes == [{"text": "half way"}, {"text": "done"}]
    assert SIGNAL_PREFIX + "go" not in await kinds_of(handle)
