"""Triggers and schedules of an application: declared in any order, changed by a new version, once each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

import lash
from lash.model.process.process import HOST
from tests.runtime.stage_kit import Stage, staged
from tests.runtime.worker_kit import until

PATIENCE_S = 60
FAST = lash.WorkerOptions(poll_s=0.2)


@pytest_asyncio.fixture
async def stage(backend_name: str, backend_url: str) -> AsyncIterator[Stage]:
    async with staged(backend_name, backend_url) as opened:
        yield opened


async def greet(ctx: lash.Context, name: str) -> str:
    return f"hello {name}"


async def say(ctx: lash.Context, text: str = "tick") -> str:
    return text


async def results(app: lash.App) -> list[object]:
    """Return the results of all processes, the oldest first."""
    records = reversed((await app.storage.processes.list()).processes)
    outcomes = [record.projection.outcome for record in records]
    return [outcome.value if isinstance(outcome, lash.Success) else outcome for outcome in outcomes]


@asynccontextmanager
async def running(fleet: list[lash.App]) -> AsyncIterator[None]:
    """Start all apps concurrently, and stop them."""
    try:
        await asyncio.gather(*(app.open() for app in fleet))
        yield
    finally:
        await asyncio.gather(*(app.stop() for app in fleet))


async def test_events_start_processes_whenever_they_were_declared(stage: Stage) -> None:
    """A subscription takes effect at the first emit after its declaration, before the start or later."""
    app = stage.app()
    app.on("user.new", app.process(greet), inputs={"name": lash.pointer("/name")})
    async with app:
        await app.emit("user.new", {"name": "Ada"}, key="1")
        app.on("user.new", app.process(say), inputs={"text": "someone came"})
        await app.emit("user.new", {"name": "Bob"}, key="2")
        await app.emit("user.new", {"name": "Bob"}, key="2")
        await app.drain()
        assert sorted(map(str, await results(app))) == ["hello Ada", "hello Bob", "someone came"]


async def test_turns_and_processes_emit_once(stage: Stage) -> None:
    """Emissions of a turn or a process happen once, although the process runs again after its pause."""
    app = stage.app()
    app.on("said", app.process(say))

    @app.process
    async def pausing(ctx: lash.Context) -> str:
        await ctx.emit("said", "from a process")
        await ctx.sleep(10)
        return "over"

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        await turn.emit("said", "from a turn")
        await turn.start(pausing)
        return "ok"

    async with app:
        await app.session("s").send("go", key="1")
        await app.drain()
        await stage.clock.advance(10_000)
        await app.drain()
        await app.emit("said", "from outside", key="1")
        await app.drain()
        assert sorted(map(str, await results(app))) == ["from a process", "from a turn", "from outside", "over"]


async def test_a_schedule_declared_while_the_app_runs_ticks(stage: Stage) -> None:
    """A schedule of a running app starts without an emit or a restart."""
    app = stage.app(worker=True, options=FAST)
    async with app:
        app.cron("*/5 * * * *", app.process(say))

        async def is_there() -> bool:
            return await app.storage.schedules.get(HOST, "cron:say") is not None

        await until(is_there)
        await stage.clock.advance(5 * 60_000)

        async def has_ticked() -> bool:
            return await results(app) == ["tick"]

        await until(has_ticked)


async def test_a_new_version_changes_what_was_declared(stage: Stage) -> None:
    """A changed cron line, inputs and version replace the old ones under the same key."""
    old = stage.app()
    old.cron("0 * * * *", old.process(say), inputs={"text": "old"})
    old.on("said", old.process(say), key="said", inputs={"text": "old"})
    async with old:
        if stage.backend == "memory":
            pytest.skip("a storage in memory is gone with its app")
    new = stage.app()
    changed = new.process(version="2")(say)
    new.process(say)
    new.cron("30 * * * *", changed, inputs={"text": "new"})
    new.on("said", changed, key="said", inputs={"text": "new"})
    async with new:
        # The clock starts at 22:13:20; the old schedule would tick at 23:00, and at no other time in this hour.
        await stage.clock.advance(20 * 60_000)
        await new.drain()
        assert await results(new) == ["new"]
        await stage.clock.advance(40 * 60_000)
        await new.drain()
        assert await results(new) == ["new"]
        await new.emit("said", None, key="1")
        await new.drain()
        assert await results(new) == ["new", "new"]


async def test_apps_that_change_the_same_thing_at_once_all_start(stage: Stage) -> None:
    """Apps of one deployment that start concurrently all succeed, in any order."""
    if stage.backend == "memory":
        pytest.skip("a storage in memory has one app")
    first = stage.app()
    first.cron("0 * * * *", first.process(say))
    async with first:
        pass
    fleet = [stage.app() for _ in range(6)]
    for app in fleet:
        app.cron("30 * * * *", app.process(say))
    async with running(fleet):
        schedule = await fleet[0].storage.schedules.get(HOST, "cron:say")
    assert schedule is not None
    assert schedule.definition.cron == "30 * * * *"


async def test_a_tick_is_one_process_however_many_workers_there_are(stage: Stage) -> None:
    """Three workers see the same ticks; each tick starts one process."""
    if stage.backend == "memory":
        pytest.skip("a storage in memory has one app")
    fleet = [stage.app(worker=True, options=FAST) for _ in range(3)]
    for app in fleet:
        app.cron("* * * * *", app.process(say), catch_up="all")
    async with running(fleet):
        for ticks in range(1, 6):
            await stage.clock.advance(60_000)

            async def has_ticked(expected: int = ticks) -> bool:
                return await results(fleet[0]) == ["tick"] * expected

            await until(has_ticked)
        # Time for a wrong second process of a tick to appear.
        await asyncio.sleep(0.5)
        assert await results(fleet[0]) == ["tick"] * 5


async def test_unwatched_things_start_nothing_more(stage: Stage) -> None:
    """After ``unwatch`` neither events nor ticks start anything; a second ``unwatch`` returns False."""
    app = stage.app()
    app.on("said", app.process(say), key="said")
    app.cron("* * * * *", app.process(say))
    async with app:
        assert [await app.unwatch(key) for key in ("said", "cron:say", "said", "unknown")] == [
            True,
            True,
            False,
            False,
        ]
        await app.emit("said", "x", key="1")
        await stage.clock.advance(120_000)
        await app.drain()
        assert await results(app) == []


async def test_wrong_declarations_are_refused_at_once(stage: Stage) -> None:
    """Keys are unique, inputs must be arguments of the process, and policies must be known."""
    app = stage.app()
    process = app.process(say)
    app.cron("* * * * *", process)
    app.cron("* * * * *", process)
    with pytest.raises(lash.ConfigError, match="another key"):
        app.cron("*/2 * * * *", process)
    with pytest.raises(lash.ConfigError, match="takes no argument 'nothing'"):
        app.on("x", process, inputs={"nothing": 1})
    with pytest.raises(lash.ConfigError, match="catch_up is one of"):
        app.cron("* * * * *", process, key="other", catch_up="sometimes")
    with pytest.raises(lash.InvalidInput, match="cannot be stored"):
        app.on("x", process, inputs={"text": {1, 2}})


@pytest.mark.parametrize(
    ("line", "time_zone", "reason"),
    [
        ("61 * * * *", "UTC", "61"),
        ("bad line", "UTC", "bad line"),
        ("0 0 30 2 *", "UTC", "day-of-month"),
        ("* * * * *", "Mars/Base", "Mars/Base"),
    ],
)
def test_a_wrong_schedule_is_refused_where_it_is_declared(line: str, time_zone: str, reason: str) -> None:
    """A cron line that cannot be parsed or never ticks, and an unknown time zone, raise at the declaration."""
    app = lash.App("sqlite://")
    with pytest.raises(lash.ConfigError, match=reason):
        app.cron(line, app.process(say), time_zone=time_zone)


def test_a_process_gets_every_argument_that_it_needs() -> None:
    """A declaration without a required argument is refused: each tick would start a process that fails."""
    app = lash.App("sqlite://")
    process = app.process(greet)
    with pytest.raises(lash.ConfigError, match=r"process 'greet' needs argument 'name'; add it to inputs="):
        app.cron("* * * * *", process)
    with pytest.raises(lash.ConfigError, match="needs argument 'name'"):
        app.on("x", process, inputs={})
    app.cron("* * * * *", process, inputs={"name": "Ada"})
    app.on("x", process)
