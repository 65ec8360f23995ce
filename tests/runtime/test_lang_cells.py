"""Cells: programs that a model writes inside a turn."""

from __future__ import annotations

from typing import Any

import pytest

from lash.agents import Agent, ScriptedModel, call, tool
from lash.errors import ConfigError, StoreUnavailable
from lash.lang import Lashlang
from lash.lang.machine.limits import Limits
from lash.model.process.process import Success
from lash.runtime.app import App
from lash.runtime.turns.cell import CellResult
from lash.runtime.turns.turn import Turn
from tests.runtime.lang_kit import lang_app
from tests.runtime.process_bench import World, outcome_of


class Cells:
    """An agent that runs each message as a cell, and fails once where the test says."""

    def __init__(self, app: App) -> None:
        self.results: list[CellResult] = []
        self.fails_after = 0
        self._app = app
        app.agent(self._agent())

    def _agent(self) -> Any:  # noqa: ANN401 (a function)
        async def cells(turn: Turn) -> str:
            result = await turn.run_cell(turn.text)
            if self.fails_after:
                self.fails_after -= 1
                raise RuntimeError("a crash behind the cell")
            self.results.append(result)
            return result.text or "done"

        return cells

    async def run(self, source: str, session_id: str = "s") -> CellResult:
        await self._app.session(session_id).send(source)
        await self._app.drain()
        return self.results[-1]


async def test_variables_are_kept_with_the_session(world: World) -> None:
    """A later cell of the session has them; another session does not. Fields keep their order."""
    app, _ = await lang_app(world)
    cells = Cells(app)
    first = await cells.run('x = {b: 1, a: [2]} y = await web.get({url: "abc"})? print y print x')
    assert first == CellResult(outcome="continued", printed=('{"size":3}', '{"a":[2],"b":1}'))
    second = await cells.run("submit {keys: keys(x), y: y.size}")
    assert second == CellResult(outcome="submitted", value={"keys": ["b", "a"], "y": 3})
    other = await cells.run("print x", "t")
    assert (other.outcome, other.error) == (
        "failed",
        "`x` has no value\n--> line 1, column 7\n1 | print x\n          ^",
    )


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_errors_go_back_as_text_and_assignments_stay(world: World) -> None:
    """A mistake in the source runs nothing; an error at run time keeps what was assigned and printed before."""
    app, _ = await lang_app(world)
    cells = Cells(app)
    wrong = await cells.run("x = 1 submit mail.send({})")
    assert wrong.outcome == "failed"
    assert "host has no module `mail`" in wrong.text
    broken = await cells.run('x = 2 print "before" z = await web.get({url: "bad"})? x = 3')
    assert broken.text.startswith("before\nerror: ValueError: no such page\n--> line 1")
    assert "hint: without `?`" in broken.text
    assert (await cells.run("submit x")).value == 2
    assert (await cells.run("x = 4")).text == "(nothing was printed)"


async def test_a_crash_behind_a_cell_repeats_no_recorded_operation(world: World) -> None:
    """The turn runs again: recorded operations, starts and signals are replayed, and the variables are the same."""
    app, _ = await lang_app(world)
    cells = Cells(app)
    cells.fails_after = 1
    source = """
    process p(n: int) signals { go: int } { finish n + wait_signal("go") }
    a = await [web.get({url: "a"})?, web.get({url: "b"})?]
    run = start p(n: 1)
    signal_run(run, "go", 5)
    done = await run?
    print [a[0].size, done]
    """
    first = app.session("s")
    await first.send(source)
    for _ in range(4):
        await app.drain()
        await world.seconds(120)
    assert world.calls == {"get a": 1, "get b": 1}
    assert cells.results == [CellResult(outcome="continued", printed=("[1,6]",))]
    (process,) = (await app.storage.processes.list()).processes
    assert process.projection.outcome == Success(value=6)
    again = await cells.run("cancel run submit [(await run).value, done]")
    assert again.value == [6, 6], "a handle of an earlier turn still works"


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_the_same_cell_twice_in_a_turn_is_two_cells(world: World) -> None:
    """Their operations are recorded apart."""
    app, _ = await lang_app(world)

    @app.agent
    async def twice(turn: Turn) -> str:
        source = 'n = await web.get({url: "a"})? print n.size'
        return "".join([(await turn.run_cell(source)).text for _ in range(2)])

    await app.session("s").send("go")
    await app.drain()
    assert world.calls["get a"] == 2


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_a_cell_has_limits_and_no_foreign_processes(world: World) -> None:
    """An endless loop ends at its limit; a process of another session can be neither awaited nor cancelled."""
    app, engine = await lang_app(world, limits=Limits(steps=20_000))
    cells = Cells(app)
    assert "ran 20,000 steps without an effect" in (await cells.run("while true { }")).text
    foreign = await app.start(engine.process("process p() { sleep for 1000 finish 1 }"))
    handle = f'h = {{__handle__: "process", id: "{foreign.process_id}"}}'
    assert "does not work for this session" in str((await cells.run(f"{handle} submit await h")).value)
    assert "does not work for this session" in (await cells.run(f"{handle} cancel h")).text
    assert await outcome_of(foreign) is None
    assert (await cells.run("print " + '"' + "x" * 30_000 + '"')).text.endswith("… (30,000 characters)")


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_an_engine_without_cells_says_so(world: World) -> None:
    """Durable functions have none."""
    app = await world.app()
    raised: list[Exception] = []

    @app.agent
    async def wrong(turn: Turn) -> str:
        with pytest.raises(ConfigError, match="engine 'python' runs processes only") as error:
            await turn.run_cell("submit 1", engine="python")
        raised.append(error.value)
        return "done"

    await app.session("s").send("go")
    await app.drain()
    assert len(raised) == 1


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_a_crash_in_the_middle_of_a_cell_repeats_only_the_call_that_was_cut_off(world: World) -> None:
    """The call before it is replayed, with the variable that it set; the one that was cut off runs again."""
    app = await world.app()

    @tool
    async def work(item: str) -> str:
        """Work."""
        if world.count(item) == 1 and item == "second":
            raise StoreUnavailable("the database was away in the middle")
        return f"{item} done"

    app.engine(Lashlang({"shop": [work]}))
    cells = Cells(app)
    source = "a = await shop.work({item: 'first'})? b = await shop.work({item: 'second'})? print [a, b]"
    await app.session("s").send(source)
    for _ in range(3):
        await app.drain()
        await world.seconds(120)
    assert world.calls == {"first": 1, "second": 2}
    assert [each.printed for each in cells.results] == [('["first done","second done"]',)]


async def test_a_model_runs_cells_with_a_tool() -> None:
    """It sees what was printed, the error with its place, and what was submitted."""
    engine = Lashlang({})
    sources = ("x = 2 print x", "submit y", "submit x * 21")
    model = ScriptedModel(*[[call("run_program", source=source)] for source in sources], "The answer is 42.")
    app = App("sqlite://", worker=False)
    app.engine(engine)
    agent = Agent("solver", model, tools=[engine.cell_tool()])
    agent.declare(app)
    async with app:
        await app.session("s", agent="solver").send("What is it?")
        await app.drain()
    seen = [request.messages[-1].parts[0].content for request in model.requests[1:]]
    assert seen[0] == "2"
    assert seen[1].startswith("error: `y` has no value\n--> line 1, column 8")
    assert seen[2] == "submitted: 42"
