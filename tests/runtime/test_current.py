"""`lash.current()`: the run that code belongs to, in tasks and threads that other code creates."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import assert_type

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import pytest_asyncio

import lash
from lash.model.wait import Resolved
from tests.runtime.process_bench import World
from tests.runtime.turn_bench import Bench

PATIENCE_S = 20.0


@pytest_asyncio.fixture
async def app() -> AsyncIterator[lash.App]:
    """An application in memory, for what does not depend on the backend."""
    async with lash.App("sqlite://", worker=False) as opened:
        yield opened


def id_here() -> str | None:
    """Return the turn or process that code deep inside a framework finds."""
    run = lash.current(None)
    assert_type(run, lash.Turn | lash.Context | None)
    if run is None:
        return None
    return run.turn_id if isinstance(run, lash.Turn) else run.process_id


async def async_id_here() -> str | None:
    await asyncio.sleep(0)
    return id_here()


async def in_task_group() -> str | None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(async_id_here())
    return task.result()


async def in_anyio_task_group() -> str | None:
    found: list[str | None] = []

    async def work() -> None:
        found.append(await async_id_here())

    async with anyio.create_task_group() as group:
        group.start_soon(work)
    return found[0]


async def in_executor_with_context() -> str | None:
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, lambda: context.run(id_here))


async def from_an_anyio_thread() -> str | None:
    return await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(async_id_here))


async def in_callback() -> str | None:
    found: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: found.set_result(id_here()))
    return await found


FOREIGN: list[Callable[[], Awaitable[str | None]]] = [
    async_id_here,
    lambda: asyncio.create_task(async_id_here()),
    lambda: asyncio.wait_for(async_id_here(), PATIENCE_S),
    lambda: asyncio.to_thread(id_here),
    lambda: anyio.to_thread.run_sync(id_here),
    lambda: asyncio.to_thread(asyncio.run, async_id_here()),
    in_task_group,
    in_anyio_task_group,
    in_executor_with_context,
    from_an_anyio_thread,
    in_callback,
]


async def test_tasks_and_threads_of_a_framework_find_the_run(app: lash.App) -> None:
    """Whatever copies the context variables finds the turn or the process, also inside a step."""

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        assert lash.current() is turn
        found = [await each() for each in FOREIGN]
        found += [await turn.step("async step", async_id_here), await turn.step("plain step", id_here)]
        return str(found == [turn.turn_id] * (len(FOREIGN) + 2))

    @app.process
    async def process(ctx: lash.Context) -> bool:
        assert lash.current() is ctx
        found = [await each() for each in FOREIGN] + [await ctx.step("plain step", id_here)]
        found += await ctx.gather(async_id_here(), async_id_here())
        return found == [ctx.process_id] * (len(FOREIGN) + 3)

    await app.session("c").send("hi")
    started = await app.start(process)
    await app.drain()
    assert lash.text_of((await app.session("c").messages())[-1]) == "True"
    assert await started.result()


async def test_runs_at_the_same_time_find_themselves(app: lash.App) -> None:
    """Each of two turns that run side by side finds itself; the code around them finds none."""
    meeting = asyncio.Barrier(2)

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        await meeting.wait()
        mine = await asyncio.create_task(async_id_here()) == turn.turn_id
        await meeting.wait()
        return str(mine and id_here() == turn.turn_id)

    for name in "ab":
        await app.session(name).send("hi")
    await app.drain()
    assert [lash.text_of((await app.session(name).messages())[-1]) for name in "ab"] == ["True", "True"]
    assert id_here() is None


async def test_outside_of_a_run_the_error_names_the_remedy(app: lash.App) -> None:
    """Without a run, and in a thread that does not copy the context, there is an error or the default."""
    seen: list[object] = []

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        thread = threading.Thread(target=lambda: seen.append(lash.current("none")))
        thread.start()
        thread.join()
        seen.append(await asyncio.get_running_loop().run_in_executor(None, lash.current, "none"))
        return "done"

    await app.session("c").send("hi")
    await app.drain()
    assert seen == ["none", "none"]
    assert lash.current("none") == "none"
    with pytest.raises(lash.ConfigError, match=r"asyncio\.to_thread do, and run_in_executor with contextvars"):
        lash.current()


async def test_a_task_that_outlives_its_run_is_refused(app: lash.App) -> None:
    """After the run there is an error, also with a default; the task does not keep the turn in memory."""
    go = asyncio.Event()
    left: list[asyncio.Task[object]] = []
    turns: list[weakref.ref[lash.Turn]] = []

    async def late() -> object:
        await go.wait()
        return lash.current(None)

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        left.append(asyncio.create_task(late()))
        turns.append(weakref.ref(turn))
        return "done"

    await app.session("c").send("hi")
    await app.drain()
    gc.collect()
    assert turns[0]() is None
    go.set()
    with pytest.raises(lash.ConfigError, match="has ended; await the task"):
        await left[0]


async def test_tools_of_a_framework_run_once(bench: Bench) -> None:
    """Tools that a framework starts in its own tasks have the keys of their calls: a later attempt repeats none."""
    app = await bench.app()
    ran: list[str] = []

    async def use(tool: str) -> str:
        ran.append(tool)
        return tool.upper()

    async def durable(tool: str) -> str:
        return await lash.current().options(key=f"tool:{tool}").step("tool", use, tool)

    async def framework(tools: list[str]) -> list[str]:
        """Run all tools at the same time, in tasks of its own, in an order of its own."""
        async with asyncio.TaskGroup() as group:
            made = {tool: group.create_task(durable(tool)) for tool in reversed(tools)}
        return [made[tool].result() for tool in tools]

    @app.agent(retry=lash.Retry(max_attempts=2, first_pause_s=1))
    async def agent(turn: lash.Turn) -> str:
        results = await framework(["a", "b", "c"])
        if turn.attempt == 1:
            raise RuntimeError("crash after the tools")
        return " ".join(results)

    await app.session("c").send("hi")
    await app.drain()
    await bench.seconds(2)
    await app.drain()
    assert lash.text_of((await app.session("c").messages())[-1]) == "A B C"
    assert sorted(ran) == ["a", "b", "c"]


async def test_steps_in_a_thread_of_a_framework(world: World) -> None:
    """A thread passes a coroutine to the loop of the run; a step without a key, or in another loop, does not run."""
    app = await world.app()

    async def work() -> str:
        return f"ran {world.count('work')} times"

    async def keyed_step() -> str:
        return await lash.current().options(key="call 1").step(work)

    def tool(loop: asyncio.AbstractEventLoop) -> str:
        result = asyncio.run_coroutine_threadsafe(keyed_step(), loop).result(PATIENCE_S)
        with pytest.raises(lash.ConfigError, match=r"another event loop than its run; .*run_coroutine_threadsafe"):
            asyncio.run(keyed_step())
        with pytest.raises(lash.ConfigError, match=r"in a task or thread of their own.*options\(key=\.\.\.\)"):
            lash.current().step(work)
        return result

    @app.process(retry=lash.Retry(max_attempts=1))
    async def process(ctx: lash.Context) -> str:
        return await asyncio.to_thread(tool, asyncio.get_running_loop())

    started = await app.start(process)
    await app.drain()
    assert await started.result() == "ran 1 times"
    assert world.calls["work"] == 1


async def test_waits_in_tasks_of_a_framework_park_the_turn(bench: Bench) -> None:
    """Branches under a key wait in a framework's tasks: all of them are asked for before the turn is parked."""
    app = await bench.app()
    ran: list[str] = []
    keys: dict[str, str] = {}

    async def use(tool: str) -> str:
        ran.append(tool)
        return tool.upper()

    async def decision(turn: lash.Turn, tool: str) -> str:
        keys[tool] = await turn.wait_key(tool)
        return str(await turn.wait(tool))

    async def framework(turn: lash.Turn) -> list[str]:
        await turn.options(key="before").step("use", use, "before")
        return await turn.options(key="asked").gather(decision(turn, "a"), decision(turn, "b"))

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(framework(turn))
        return " ".join(asked.result())

    session = app.session("c")
    await session.send("hi")
    await app.drain()
    waiting = await app.storage.waits.pending()
    assert len(waiting) == 2, "both branches wait, and the turn is parked"
    await app.resolve(keys["b"], "yes")
    await app.drain()
    assert await session.messages() == [], "one of them still waits"
    await app.resolve(keys["a"], "no")
    await app.drain()
    assert lash.text_of((await session.messages())[-1]) == "no yes"
    assert ran == ["before"]


async def test_two_groups_wait_beside_a_step_of_a_framework(bench: Bench) -> None:
    """A running step keeps the turn in memory; when it has ended, the turn is parked for the tasks that wait."""
    app = await bench.app()
    ran: list[str] = []

    async def slow() -> str:
        while len(await app.storage.waits.pending()) < 2:  # noqa: ASYNC110 (no event says so)
            await asyncio.sleep(0.001)
        ran.append("slow")
        return "slow"

    async def wait(turn: lash.Turn, name: str) -> str:
        return str(await turn.wait(name))

    async def guest(turn: lash.Turn, name: str) -> str:
        (answer,) = await turn.options(key=name).gather(wait(turn, name))
        return str(answer)

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        step = turn.options(key="slow").step("slow", slow)
        return " ".join(await asyncio.gather(guest(turn, "a"), guest(turn, "b"), asyncio.ensure_future(step)))

    session = app.session("c")
    await session.send("hi")
    await app.drain()
    for wait_record in await app.storage.waits.pending():
        await app.storage.waits.resolve_id(wait_record.key_id, Resolved(value="done"))
        await app.drain()
    assert lash.text_of((await session.messages())[-1]) == "done done slow"
    assert ran == ["slow"]
