"""Programs that try to harm their worker: they end with a clear error, and the worker goes on."""

from __future__ import annotations

import asyncio

import pytest

from lash.lang.diagnostic import ProgramError
from lash.lang.machine.limits import Limits
from lash.lang.process.engine import Lashlang
from lash.model.process.process import Failure
from lash.runtime.policy import WorkerOptions
from lash.runtime.turns.turn import Turn
from tests.runtime.lang_kit import lang_app
from tests.runtime.process_bench import World

_NESTED = " ".join(f"for i{n} in range(99999) {{" for n in range(12)) + " }" * 12
HOSTILE = {
    "endless loop": ("while true { }", "steps without an effect"),
    "doubled string": ("s = 'x' while true { s = s + s }", "a string has at most"),
    "doubled list": ("x = [1] while true { x = x + x }", "bytes together"),
    "list of itself": ("x = [1] while true { x = [x, x] }", "bytes together"),
    "huge range": ("x = range(1000000000000)", "range makes at most"),
    "many ranges": ("x = {} i = 0 while true { i = i + 1 x[to_string(i)] = range(999) }", "bytes together"),
    "nested ranges": (_NESTED, "too many large values"),
    "large comparisons": ("x = range(20000) y = range(20000) while x == y { }", "steps without an effect"),
    "long separator": ("s = 'x' for i in range(19) { s = s + s } t = join(range(9), s)", "a string has at most"),
    "many effects": ("while true { yield 1 }", "used its 100 effects"),
}


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_hostile_programs_end_and_the_worker_keeps_its_work(world: World) -> None:
    """All of them at once: each ends with its own error, no lease is lost, and turns and processes run meanwhile."""
    limits = Limits(steps=100_000, memory_bytes=1_000_000, effects=100)
    app, engine = await lang_app(
        world, limits=limits, worker=True, real_time=True, options=WorkerOptions(lease_ttl_s=15)
    )

    @app.agent
    async def parrot(turn: Turn) -> str:
        return turn.text

    programs = {name: engine.process(f"process p() {{ {body} }}") for name, (body, _) in HOSTILE.items()}
    handles = {name: await app.start(program) for name, program in programs.items()}
    assert await app.session("s").ask("still here?", timeout_s=60) == "still here?"
    good = await app.start(engine.process("process q(web: Web) { finish (await web.get({url: 'abc'})?).size }"))
    assert await good.result(timeout_s=60) == 3
    wait = app.storage.waiter.await_outcome
    outcomes = await asyncio.gather(*(wait(each.process_id, timeout_s=120) for each in handles.values()))
    for name, outcome in zip(handles, outcomes, strict=True):
        assert isinstance(outcome, Failure), name
        assert outcome.code == "process_runtime_error", name
        assert HOSTILE[name][1] in outcome.message, name
    assert not world.heard.of("lease.lost")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("process p() { finish await os.system({cmd: 'ls'}) }", "host has no module `os`"),
        ("process p() { finish open('/etc/passwd') }", "unknown builtin `open`"),
        ("process p() { finish web.get({url: 'a'}) }", "host has no module `web`"),
        ("process p() { finish __import__ }", "`__import__` is not defined"),
        ("process p(x: any) { finish x.get({}) }", "needs a module authority on its left"),
        ("process p() { h = {__resource__: true, type: 'Web', alias: 'web'} finish h.get({}) }", "module authority"),
        ("process p() { finish " + "[" * 60 + "]" * 60 + " }", "nested more than 40 levels"),
        ("process p() { finish " + "-" * 200 + "1 }", "nested more than 40 levels"),
        ("x = 1 process p() { finish x }", "`x` is not defined"),
    ],
)
def test_names_that_were_not_granted_are_refused_before_anything_runs(source: str, message: str) -> None:
    """A program reaches only the modules of its host, its own names and the builtins."""
    with pytest.raises(ProgramError, match=message):
        Lashlang({}).process(source)
