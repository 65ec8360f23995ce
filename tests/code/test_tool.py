"""The tool run_code: a program that an agent writes runs in steps of its turn."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import lash
from lash.agents import Agent, ScriptedModel, call
from lash.code import CodeEngine, run_code
from lash.runtime.turns.end import TurnEnd
from tests.code.kit import sandboxes_of
from tests.runtime.turn_bench import Bench, run_turn


class Desk:
    """An agent that writes programs, and the calls that these made."""

    def __init__(self, *sources: str) -> None:
        self.calls: Counter[str] = Counter()
        self.model = ScriptedModel(*([call("run_code", code=source)] for source in sources), "done")

    def declare(self, app: lash.App) -> lash.AgentDefinition:
        async def stock(item: str) -> int:
            """How many there are."""
            self.calls[item] += 1
            return len(item)

        return Agent("desk", self.model, tools=[run_code([stock])]).declare(app)

    def results(self) -> list[str]:
        return [part.content for part in self.model.requests[-1].messages[-1].parts]


async def test_a_turn_waits_in_the_middle_of_a_program(bench: Bench) -> None:
    """The turn is parked at the question; the run after it repeats no call, and the model gets print and result."""
    source = """\
import asyncio
print("counting")
counts = await asyncio.gather(stock("ink"), stock("paper"))
{"total": sum(counts), "may": ask_human("Order more?")}
"""
    desk, app = Desk(source), await bench.app()
    await app.session("s", agent=desk.declare(app)).send("how many?")
    assert await run_turn(app, "s") is TurnEnd.PARKED
    (wait,) = await app.storage.waits.pending()
    assert wait.ask is not None
    assert wait.ask.text == "Order more?"
    await app.storage.waits.resolve_id(wait.key_id, lash.model.Resolved(value="yes"))
    await app.drain()
    assert desk.results() == ['counting\n{"total":8,"may":"yes"}']
    assert desk.calls == {"ink": 1, "paper": 1}


async def test_mistakes_are_answers_to_the_model(bench: Bench) -> None:
    """A type error is found before anything runs; an error while it runs comes with what was printed."""
    desk, app = Desk("print(1)\nawait stock(7)", "print('half')\n[][int(await stock('x'))]"), await bench.app()
    session = app.session("s", agent=desk.declare(app))
    await session.send("go")
    await app.drain()
    first, second = (next(part.content for part in request.messages[-1].parts) for request in desk.model.requests[1:])
    assert first.startswith("InvalidProgram: line 2: invalid-argument-type")
    assert second == "ProgramFailed: half\nIndexError: list index out of range (line 2)"
    assert desk.calls == {"x": 1}


async def test_the_model_is_shown_the_functions(bench: Bench) -> None:
    """The description of the tool has the signatures and docstrings of the functions."""
    desk, app = Desk(), await bench.app()
    await app.session("s", agent=desk.declare(app)).send("go")
    await app.drain()
    (spec,) = desk.model.requests[0].tools
    assert 'async def stock(item: str) -> int:\n    """How many there are."""' in spec.description


async def test_printed_text_is_activity_once(bench: Bench) -> None:
    """An observer of the session sees what a program prints; a run that replays it does not show it again."""
    source = "import asyncio\nprint('one')\nawait stock('a')\nprint('two')\nawait asyncio.sleep(60)\nprint('three')"
    desk, app = Desk(source), await bench.app()
    session = app.session("s", agent=desk.declare(app))
    stream = session.observe(await session.cursor())
    await session.send("go")
    await app.drain()
    await bench.seconds(61)
    await app.drain()
    shown: list[str] = []
    async with asyncio.timeout(60):
        while not isinstance(each := await anext(stream), lash.Committed):
            if isinstance(each, lash.TurnActivity) and isinstance(each.payload, dict) and "print" in each.payload:
                shown.append(str(each.payload["print"]))
    await stream.aclose()
    assert "".join(shown) == "one\ntwo\nthree\n"


async def test_the_sandboxes_end_with_the_application(bench: Bench) -> None:
    """An agent brings the engine of its tools, which is closed when the application stops."""
    app, engine = await bench.app(), CodeEngine()
    agent = Agent("desk", ScriptedModel([call("run_code", code="1")], "done"), tools=[run_code(engine=engine)])
    await app.session("s", agent=agent.declare(app)).send("go")
    await app.drain()
    assert sandboxes_of(os.getpid())
    await app.stop()
    assert sandboxes_of(os.getpid()) == []


async def test_the_model_gets_long_texts_shortened(bench: Bench) -> None:
    """A result of megabytes does not fill the context of the model."""
    desk, app = Desk("print('p' * 30_000)\n'r' * 30_000"), await bench.app()
    await app.session("s", agent=desk.declare(app)).send("go")
    await app.drain()
    (answer,) = desk.results()
    assert len(answer) < 41_000
    assert "[10,001 more characters]" in answer
