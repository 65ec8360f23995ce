"""Applications: declared in any order, started once, used while they run, stopped completely."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import lash
from lash.model.process.process import HOST
from lash.runtime.hooks import Attributes
from tests.runtime.worker_kit import until

FAST = lash.WorkerOptions(poll_s=0.2, grace_s=30)


class Notes(lash.Hook):
    """Keeps the events that it receives."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.attributes: dict[str, Attributes] = {}

    def note(self, kind: str, attributes: Attributes) -> None:
        self.kinds.append(kind)
        self.attributes[kind] = attributes


async def hello(turn: lash.Turn) -> str:
    return f"hello {turn.text}"


async def double(ctx: lash.Context, number: int) -> int:
    return 2 * number


async def report(ctx: lash.Context) -> None: ...


_USES: list[Callable[[lash.App], object]] = [
    lambda app: app.session("s"),
    lambda app: app.handle("p"),
    lambda app: app.storage,
    lambda app: app.start(app.process(double), 1),
    lambda app: app.emit("x", key="k"),
    lambda app: app.signal("p", "go"),
    lambda app: app.resolve("key"),
    lambda app: app.reject("key", "no"),
    lambda app: app.drain(),
    lambda app: app.unwatch("key"),
]


@pytest.mark.parametrize("use", _USES)
async def test_use_before_the_start_and_after_the_stop_says_what_is_missing(
    backend_url: str, use: Callable[[lash.App], object]
) -> None:
    """Each use of an app that is not open names the remedy, and leaves no coroutine un-awaited."""
    app = lash.App(backend_url, worker=False)
    for _ in range(2):
        with pytest.raises(lash.ConfigError, match="async with app"):
            await _used(use, app)
        async with app:
            pass


async def _used(use: Callable[[lash.App], object], app: lash.App) -> None:
    answer = use(app)
    if asyncio.iscoroutine(answer):
        await answer


async def test_opening_and_stopping_are_idempotent(backend_url: str) -> None:
    """Concurrent calls of `open` open one storage; the app can be stopped twice and opened again."""
    app = lash.App(backend_url, options=FAST)
    app.agent(hello)
    await asyncio.gather(app.open(), app.open())
    storage = app.storage
    await app.open()
    assert app.storage is storage
    assert await app.session("s").ask("you", timeout_s=30) == "hello you"
    with pytest.raises(lash.ConfigError, match="app is open"):
        app.configure(worker=False)
    await asyncio.gather(app.stop(), app.stop())
    await app.stop()
    await app.open()
    async with app:
        assert await app.session("t").ask("again", timeout_s=30) == "hello again"


async def test_declarations_need_no_order(backend_url: str) -> None:
    """Agents and processes declared while the app runs are used at once; a process may name a later one."""
    app = lash.App(backend_url, options=FAST)
    async with app:

        @app.process
        async def outer(ctx: lash.Context, number: int) -> int:
            child = await ctx.start(inner, number)
            return 1 + await child.result()

        inner = app.process(double)
        app.agent(hello)
        handle = await app.start(outer, 20)
        assert await handle.result(timeout_s=30) == 41
        assert await app.session("s").ask("late", timeout_s=30) == "hello late"


async def test_one_name_is_one_definition(backend_url: str) -> None:
    """Two functions under one name are refused; declaring one function twice is idempotent."""
    app = lash.App(backend_url, worker=False)
    app.agent(hello)
    app.agent(hello)
    app.process(double)
    app.process(double)

    async def other(ctx: lash.Context, number: int) -> int:
        return number

    with pytest.raises(lash.ConfigError, match="another name or version"):
        app.process(name="double")(other)
    app.process(name="double", version="2")(other)


def _cell(source: str, **names: object) -> None:
    """Execute a notebook cell: module-level code of ``__main__``, each statement compiled as IPython does."""
    space = {"__name__": "__main__", "lash": lash, **names}
    for statement in ast.parse(source).body:
        exec(compile(ast.Module([statement], []), f"<cell {hash(source)}>", "exec"), space)


async def test_a_cell_that_is_run_again_replaces_its_definitions(backend_url: str) -> None:
    """A function of the same module and name takes the place of the earlier one, also while the app runs."""
    app = lash.App(backend_url, options=FAST)
    source = """
@app.agent
async def greeter(turn):
    return "WORD " + turn.text

@app.process
async def count(ctx):
    return "WORD"
"""
    async with app:
        for word in ("hello", "welcome"):
            _cell(source.replace("WORD", word), app=app)
            assert await app.session(word, agent="greeter").ask("you", timeout_s=30) == f"{word} you"


async def test_a_cell_that_is_run_again_replaces_its_triggers(backend_url: str) -> None:
    """A changed cron line, and a changed subscription, take the place of the earlier ones, also while the app runs."""
    app = lash.App(backend_url, worker=False)
    app.process(double)
    cell = 'app.cron("LINE", double, inputs={"number": 1})\napp.on("asked", double, inputs={"number": lash.EVENT})'
    _cell(cell.replace("LINE", "0 5 * * *"), app=app, double=app.find_process("double"))
    _cell(cell.replace("LINE", "0 6 * * *"), app=app, double=app.find_process("double"))
    async with app:
        changed = cell.replace("LINE", "0 7 * * *").replace("lash.EVENT", "7")
        for _ in range(2):
            _cell(changed, app=app, double=app.find_process("double"))
        report = await app.emit("asked", 1, key="k")
        schedule = await app.storage.schedules.get(HOST, "cron:double")
        assert schedule is not None
        assert schedule.definition.cron == "0 7 * * *"
        trigger = await app.storage.triggers.get(HOST, "asked:double")
        assert trigger is not None
        assert trigger.definition.input_template == {"number": lash.model.FixedInput(value=7)}
        assert len(report.deliveries) == 1


def test_a_second_trigger_under_a_key_is_refused() -> None:
    """Two lines of one cell, a loop, a function that is called twice, and another module declare something twice."""
    app, router = lash.App("sqlite://"), lash.Router()
    digest = app.process(report)
    names = {"app": app, "digest": digest, "router": router}
    for key, source in enumerate(
        (
            'app.cron("0 7 * * *", digest, key="KEY")\napp.cron("0 8 * * *", digest, key="KEY")',
            'for hour in (7, 8):\n    app.cron(f"0 {hour} * * *", digest, key="KEY")',
            'def f(hour):\n    app.cron(f"0 {hour} * * *", digest, key="KEY")\nf(7)\nf(8)',
        )
    ):
        with pytest.raises(lash.ConfigError, match="is declared twice; give one of them another key"):
            _cell(source.replace("KEY", str(key)), **names)
    _cell('app.cron("0 7 * * *", digest)', **names)
    with pytest.raises(lash.ConfigError, match="is declared twice"):
        app.cron("0 8 * * *", digest)
    # A router carries the place of its declarations.
    for hour in (8, 9):
        _cell(f'router.cron("0 {hour} * * *", digest)\napp.include(router)', **names)


def test_functions_that_only_share_their_name_are_refused() -> None:
    """Functions of another module, or made by a call, do not replace each other: one of them would never run."""
    app = lash.App("sqlite://")
    app.agent(hello)
    with pytest.raises(lash.ConfigError, match="agent 'hello' is declared twice"):
        _cell("@app.agent\nasync def hello(turn): ...", app=app)

    def made(word: str) -> Callable[[lash.Turn], Awaitable[str]]:
        async def reply(turn: lash.Turn) -> str:
            return word

        return reply

    app.agent(made("a"))
    with pytest.raises(lash.ConfigError, match="agent 'reply' is declared twice"):
        app.agent(made("b"))


async def test_a_definition_is_called_like_its_function() -> None:
    """Agents and processes can be tested as plain functions, and an agent can pass its turn on to another one."""
    app = lash.App("sqlite://", worker=False)
    doubled = app.process(double)

    @app.agent
    async def shout(turn: lash.Turn) -> str:
        return str(await expert(turn)).upper()

    expert = app.agent(hello)
    assert await doubled(None, 21) == 42
    assert await doubled(None, number=4) == 8
    async with app:
        await app.session("s", agent=shout).send("you")
        await app.drain()
        assert [lash.text_of(each) for each in await app.session("s").messages()] == ["you", "HELLO YOU"]


async def test_a_stop_reports_what_it_waits_for(backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment of silence, the log names the sessions and processes that still run, and the grace time."""
    monkeypatch.setattr("lash.runtime.worker.worker._SILENT_S", 0.01)
    notes = Notes()
    app = lash.App(backend_url, options=FAST, hooks=[notes])
    running, go = asyncio.Event(), asyncio.Event()

    @app.agent
    async def busy(turn: lash.Turn) -> str:
        running.set()
        await go.wait()
        return "done"

    async with app:
        await app.session("chat", agent=busy).send("go")
        await running.wait()
        stopping = asyncio.create_task(app.stop())
        await until(lambda: "worker.stopping" in notes.kinds)
        go.set()
        await stopping
    assert notes.attributes["worker.stopping"] == {"sessions": "chat", "processes": "", "grace_s": 30}


async def test_what_finishes_may_use_the_app_until_it_has(backend_url: str) -> None:
    """A turn that runs while the app stops can still send, start and emit."""
    app = lash.App(backend_url, options=FAST)
    running, go = asyncio.Event(), asyncio.Event()

    @app.agent
    async def busy(turn: lash.Turn) -> str:
        if turn.session_id != "s":
            return "other"
        running.set()
        await go.wait()
        await app.session("next").send("from the last turn", key="1")
        return "done"

    double_ = app.process(double)
    await app.open()
    await app.session("s").send("go", key="1")
    await running.wait()
    stopping = asyncio.create_task(app.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    go.set()
    await stopping
    if backend_url == "sqlite://":
        return
    async with lash.App(backend_url, worker=False) as reader:
        reader.process(double_.function)
        assert [lash.text_of(each) for each in await reader.session("s").messages()] == ["go", "done"]
        assert len(await reader.session("next").pending()) == 1


async def test_a_worker_that_fails_is_told_of(backend_url: str) -> None:
    """A worker that ends with an error is reported at once, and the stop raises its error."""
    notes = Notes()
    app = lash.App(backend_url, options=FAST, hooks=[notes])
    await app.open()
    await app.storage.close()
    await until(lambda: "worker.failed" in notes.kinds)
    with pytest.raises(lash.StorageClosed):
        await app.run()
    with pytest.raises(lash.StorageClosed):
        await app.stop()


async def test_an_app_with_a_worker_is_not_drained(backend_url: str) -> None:
    """Draining beside a worker is refused: two workers with one identity would share leases."""
    async with lash.App(backend_url, options=FAST) as app:
        with pytest.raises(lash.ConfigError, match="worker=False"):
            await app.drain()


async def test_drains_at_once_run_nothing_twice(backend_url: str) -> None:
    """Concurrent drains share the work: each turn runs once."""
    ran: list[str] = []
    app = lash.App(backend_url, worker=False)

    @app.agent
    async def counting(turn: lash.Turn) -> None:
        ran.append(turn.session_id)
        await asyncio.sleep(0)

    async with app:
        for number in range(5):
            await app.session(f"s{number}").send("x", key="1")
        runs = await asyncio.gather(*(app.drain() for _ in range(3)))
    assert sorted(ran) == [f"s{number}" for number in range(5)]
    assert sum(runs) == 5


async def test_drain_takes_what_a_run_made_ready_during_a_poll(
    backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll is answered after the last run has ended, and does not name the message that this run has sent."""
    app, go = lash.App(backend_url, worker=False), asyncio.Event()
    app.agent(hello)

    @app.process
    async def quick(ctx: lash.Context) -> None:
        return None

    @app.process
    async def sending(ctx: lash.Context) -> None:
        await go.wait()
        await app.session("s").send("you", key="1")

    async with app:
        await app.start(quick)
        sent = await app.start(sending)
        poll = app.storage.work.poll

        async def late(**options: Any) -> lash.model.WorkList:  # noqa: ANN401 (what poll takes)
            work = await poll(**options)
            if sent.process_id in options["running_processes"] and not go.is_set():
                go.set()
                await sent.result(timeout_s=60)
                # The task of the run ends, and is forgotten by the worker.
                while any("ProcessRunner._run" in repr(task.get_coro()) for task in asyncio.all_tasks()):  # noqa: ASYNC110 (nothing signals it)
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
            return work

        monkeypatch.setattr(app.storage.work, "poll", late)
        await app.drain()
        assert [lash.text_of(each) for each in await app.session("s").messages()] == ["you", "hello you"]


@pytest.mark.parametrize(
    "wrong",
    [{"sessions": -1}, {"processes": -1}, {"poll_s": 0}, {"lease_ttl_s": 0}, {"grace_s": -1}, {"maintenance_s": 0}],
)
def test_impossible_options_are_refused(wrong: dict[str, float]) -> None:
    """Negative limits and zero durations are refused."""
    with pytest.raises(lash.ConfigError, match="a worker needs"):
        lash.WorkerOptions(**wrong)  # type: ignore[arg-type]
