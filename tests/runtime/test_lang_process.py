"""Processes written in lashlang: effects happen once, and a run ends as its program says."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from lash.code.source import read_source, source_ref
from lash.errors import InvalidInput, InvalidProgram
from lash.lang.machine.limits import Limits
from lash.lang.process.engine import Lashlang
from lash.lang.process.program import LashlangProcess
from lash.model.process.event import CONTINUED
from lash.model.process.process import Cancellation, Failure, FailureClass, Success
from lash.model.value import JSON
from lash.model.wait import Resolved
from lash.runtime.app import App
from lash.runtime.hooks import Hook
from lash.runtime.processes.handle import ProcessHandle
from tests.runtime.lang_kit import lang_app
from tests.runtime.process_bench import World, kinds_of, outcome_of, records_of

WHOLE = """
type Verdict = { approved: bool, note: str? }
process page(web: Web, url: str) { finish (await web.get({url: url})?).size }
process report(web: Web, urls: list[str]) signals { verdict: Verdict } {
  runs = [start page(web: web, url: url) for url in urls]
  both = await { good: web.get({url: "abc", times: 2})?, bad: web.get({url: "bad"}) }
  yield both.good
  wake { kind: "ready", size: both.good.size }
  verdict = wait_signal("verdict")
  sleep for "1h"
  sizes = [each.value for each in await runs]
  if not verdict.approved { fail { reason: verdict.note } }
  finish { sizes: sizes, bad: both.bad.error, same: inputs.urls == urls }
}
"""


async def _failure(handle: ProcessHandle[Any]) -> Failure:
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure), outcome
    return outcome


async def _run(app: App, engine: Lashlang, source: str, **arguments: Any) -> ProcessHandle[Any]:  # noqa: ANN401
    handle = await app.start(engine.process(source), **arguments)
    await app.drain()
    return handle


async def test_a_program_runs_over_several_runs_and_does_everything_once(world: World) -> None:
    """Operations, children, signals, pauses and events are recorded; the program goes on where it was."""
    app, engine = await lang_app(world)
    handle = await app.start(engine.process(WHOLE, "report"), urls=["a", "bcd"])
    await app.drain()
    await handle.signal("verdict", {"approved": True}, key="1")
    await app.drain()
    await world.seconds(3_601)
    await app.drain()
    assert await outcome_of(handle) == Success(value={"sizes": [1, 3], "bad": "ValueError: no such page", "same": True})
    assert world.calls == {"get a": 1, "get bcd": 1, "get abc": 1, "get bad": 1}
    kinds = await kinds_of(handle)
    assert kinds == [
        "process.started",
        "yield",
        "wake",
        "process.waiting",
        "signal.verdict",
        "process.resumed",
        "process.completed",
    ]
    (shown,) = [each.payload for each in await handle.events() if each.event_type == "wake"]
    assert shown == {"value": {"kind": "ready", "size": 6}, "text": '{"kind":"ready","size":6}'}


async def test_a_program_fails_by_its_own_statement(world: World) -> None:
    """`fail` keeps the value, and is not tried again."""
    app, engine = await lang_app(world)
    handle = await app.start(engine.process(WHOLE, "report"), urls=[])
    await app.drain()
    with pytest.raises(InvalidInput, match="approved"):
        await handle.signal("verdict", {"note": "x"}, key="wrong shape")
    await handle.signal("verdict", {"approved": False, "note": "late"}, key="1")
    await app.drain()
    await world.seconds(3_601)
    await app.drain()
    assert await _failure(handle) == Failure(
        failure_class=FailureClass.EXECUTION,
        code="process_failed",
        message='{"reason":"late"}',
        raw={"reason": "late"},
    )


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("finish await web.get({url: 'bad'})?", "ValueError: no such page"),
        ("for i in 5 { }", "`for` needs a list, got number"),
        ("sleep for 'soon'", 'sleep needs a duration, got "soon"'),
        ("sleep until 'tomorrow'", 'sleep until needs a moment, got "tomorrow"'),
        ("h = {__handle__: 'process', id: 'other'} finish await h?", "was not started by this process"),
        ("h = {__handle__: 'process', id: 'other'} cancel h", "belongs neither to this process nor to its session"),
        ("h = {__handle__: 'process', id: 'other'} signal_run(h, 'x', 1)", "belongs neither to this process"),
        ("x = 'ab' while true { x = x + x }", "a string has at most 1,000,000 characters"),
    ],
)
async def test_a_program_that_breaks_ends_the_process(world: World, body: str, message: str) -> None:
    """The error is that of the program; the attempt is not repeated, and the worker goes on."""
    app, engine = await lang_app(world)
    handle = await _run(app, engine, f"process p(web: Web) {{ {body} }}")
    failure = await _failure(handle)
    assert failure.code == "process_runtime_error"
    assert message in failure.message
    after = await _run(app, engine, "process p() { finish 1 }")
    assert await outcome_of(after) == Success(value=1)


async def test_signals_in_a_burst_are_received_in_order(world: World) -> None:
    """The k-th wait for a name gets the k-th signal of the name, also if all came before the first wait."""
    app, engine = await lang_app(world, limits=Limits(checkpoint_every=2))
    source = """process p() signals { a: int, b: int } {
      got = []
      for i in range(3) { got = push(got, wait_signal("a")) got = push(got, wait_signal("b")) }
      finish got
    }"""
    handle = await app.start(engine.process(source))
    for number in range(3):
        await handle.signal("b", 10 + number, key=f"b{number}")
        await handle.signal("a", number, key=f"a{number}")
        if number == 1:
            await app.drain()
    await app.drain()
    assert await outcome_of(handle) == Success(value=[0, 10, 1, 11, 2, 12])
    with pytest.raises(InvalidInput, match=r"signal\.c"):
        await handle.signal("c", 1, key="undeclared")


async def test_processes_of_a_family_signal_and_cancel_each_other(world: World) -> None:
    """A parent cancels its child; a child sends a signal to its sibling, by the handle that it was given."""
    app, engine = await lang_app(world)
    source = """
    process sleeper() { sleep for "9h" }
    process waiter() signals { go: int } { finish wait_signal("go") + 1 }
    process sender(target: dict) { signal_run(target, "go", 41) finish true }
    process p() {
      s = start sleeper()
      w = start waiter()
      t = start sender(target: w)
      cancel s
      finish { done: await [t, w], s: (await s).ok, error: (await s).error }
    }"""
    handle = await app.start(engine.process(source, "p"))
    await app.drain()
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Success), outcome
    value: Any = outcome.value
    assert value["done"] == [{"ok": True, "value": True}, {"ok": True, "value": 42}]
    assert not value["s"]
    assert "was cancelled" in value["error"]


async def test_a_call_that_needs_an_approval_waits_for_a_person(world: World) -> None:
    """The process is parked; a denial is a result that the program can look at."""
    app, engine = await lang_app(world)
    source = "process p(web: Web) { a = await web.pay({cents: 5}) b = await web.pay({cents: 6}) finish [a, b] }"
    handle = await _run(app, engine, source)
    for decision in (True, {"approved": False, "text": "too much"}):
        (wait,) = await app.storage.waits.pending()
        assert wait.ask is not None
        assert wait.ask.text == "Run the tool pay?"
        await app.storage.waits.resolve_id(wait.key_id, Resolved(value=decision))
        await app.drain()
    assert await outcome_of(handle) == Success(
        value=[
            {"ok": True, "value": "paid 5"},
            {"ok": False, "error": "The call was denied. too much"},
        ]
    )
    assert world.calls["pay"] == 1


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_a_start_is_checked_before_anything_is_registered(world: World) -> None:
    """Arguments, authorities and requirements are checked; the only module of a type is the default."""
    app, engine = await lang_app(world)
    program = engine.process("process p(web: Web, n: int) { finish n }")
    for arguments, message in (
        ({}, "needs argument 'n'"),
        ({"n": 1, "m": 2}, "takes no argument 'm'"),
        ({"n": object()}, "argument 'n'"),
        ({"n": 1, "web": "mail"}, "expected a Web, got module 'mail'"),
        ({"n": 1, "web": "triggers"}, "expected a Web, got Triggers module 'triggers'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            await app.start(program, **arguments)
    stranger = Lashlang({})
    with pytest.raises(InvalidProgram, match="resource type Web"):
        await app.start(stranger.program(program.module, "p"), n=1, web="web")
    assert (await app.storage.processes.list()).processes == ()
    handle = await app.start(program, "web", n=2)
    await app.drain()
    assert await outcome_of(handle) == Success(value=2)


async def test_a_host_that_lost_a_tool_says_what_is_missing(world: World) -> None:
    """The process fails before its first statement, and nothing is adapted silently."""
    if not world.shared:
        pytest.skip("a database in memory has one application")
    app, engine = await lang_app(world)
    handle = await app.start(engine.process("process p(web: Web) { finish await web.get({url: 'a'}) }"))
    other = await world.app()
    other.engine(Lashlang({"web": []}))
    await other.drain()
    failure = await _failure(handle)
    assert failure.code == "process_host_environment_incompatible"
    assert "get" in failure.message
    assert not world.calls


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"module_ref": "lashlang:v1:sha256:" + "0" * 64}, "process_module_artifact_missing"),
        ({"module_ref": None}, "process_payload_invalid"),
        ({"process_ref": "0:0"}, "process_ref_mismatch"),
        ({"process_name": "q"}, "process_ref_mismatch"),
        ({"host_requirements_ref": "x"}, "process_host_requirements_mismatch"),
    ],
)
async def test_a_definition_that_does_not_fit_is_refused(world: World, change: dict[str, Any], code: str) -> None:
    """All four refs of a process must belong to one stored module."""
    app, engine = await lang_app(world)
    program = engine.process("process p() { finish 1 }")
    await program.store(app.storage)

    class Changed(LashlangProcess):
        def reference(self) -> dict[str, JSON]:
            return {**super().reference(), **change}

    handle = await app.start(Changed(engine, program.module, "p", stored_in=app.storage))
    await app.drain()
    assert (await _failure(handle)).code == code


async def test_an_endless_loop_is_cancelled_and_blocks_no_other(world: World) -> None:
    """While it runs, another process of the same worker runs to its end; a cancel request ends it."""
    app, engine = await lang_app(world, worker=True, real_time=True)
    endless = await app.start(engine.process("process p() { while true { } }"))
    await asyncio.sleep(0)
    other = await app.start(engine.process("process q() { sleep for 1 finish 2 }"))
    assert await other.result(timeout_s=30) == 2
    assert await outcome_of(endless) is None, "it still runs"
    await endless.cancel("enough")
    assert isinstance(await app.storage.waiter.await_outcome(endless.process_id, timeout_s=30), Cancellation)


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_an_endless_loop_ends_at_its_limit(world: World) -> None:
    """Without a cancellation the steps between two effects run out."""
    app, engine = await lang_app(world, limits=Limits(steps=20_000))
    handle = await _run(app, engine, "process p() { while true { } }")
    assert "ran 20,000 steps without an effect" in (await _failure(handle)).message


LOOP = """process p(web: Web, n: int) signals { stop: any } {
  total = 0
  for i in range(n) { total = total + (await web.get({url: "ab"})?).size yield total }
  wait_signal("stop")
  finish total
}"""


class Statements(Hook):
    """Counts statements by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def statement(self, name: str) -> None:
        self.counts[name] += 1


async def _continued(world: World, app: App, statements: Statements, rounds: int) -> Counter[str]:
    """Run the loop to its wait; return the statements of the run that continues behind it."""
    engine = app.find_engine("lashlang")
    assert isinstance(engine, Lashlang)
    before = world.calls["get ab"]
    handle = await app.start(engine.process(LOOP), n=rounds)
    await app.drain()
    assert len(await records_of(app, handle)) <= 11, "the records since the last checkpoint, and the wait"
    assert (await kinds_of(handle)).count(CONTINUED) == (2 * rounds) // 10
    await handle.signal("stop", None, key="1")
    statements.counts.clear()
    await app.drain()
    counts = Counter(statements.counts)
    assert await outcome_of(handle) == Success(value=2 * rounds)
    assert world.calls["get ab"] - before == rounds
    return counts


async def test_recovery_does_not_read_more_after_more_effects(world: World) -> None:
    """A checkpoint drops the records before it: a run after 120 effects takes the statements of one after 20."""
    statements = Statements()
    app, _ = await lang_app(world, limits=Limits(checkpoint_every=10), hooks=(statements,))
    few, many = [await _continued(world, app, statements, rounds) for rounds in (10, 60)]
    assert few == many
    assert sum(few.values()) > 0


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
@pytest.mark.parametrize("text", ["x" * 1_000_001, "x" * 60_000])
async def test_arguments_beyond_a_limit_end_the_process_at_once(world: World, text: str) -> None:
    """A string that is too long, or variables that have too many bytes, are not tried again."""
    app, engine = await lang_app(world, limits=Limits(memory_bytes=100_000))
    handle = await _run(app, engine, "process p(text: str) { finish len(text) }", text=text)
    failure = await _failure(handle)
    assert failure.code == "process_payload_invalid"
    assert "the arguments are too large" in failure.message


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_a_damaged_module_is_refused(world: World) -> None:
    """A worker that finds other bytes than those of the ref runs nothing."""
    app, engine = await lang_app(world)
    program = engine.process("process p() { finish 1 }")
    await program.store(app.storage)
    handle = await app.start(engine.program(program.module, "p", stored_in=app.storage))
    ref = program.module.artifact.module_ref
    (stored,) = (await app.storage.artifacts.list(ref)).artifacts
    content = await app.storage.artifacts.get(ref, stored.ref)
    await app.storage.artifacts.delete(ref, stored.ref)
    await app.storage.artifacts.put(ref, content.replace(b'"Number":1', b'"Number":2'))
    await app.drain()
    failure = await _failure(handle)
    assert failure.code == "process_module_artifact_load_failed"


async def test_the_source_of_a_process_is_printed_from_its_module(world: World) -> None:
    """The command and the console show the module in its canonical layout."""
    app, engine = await lang_app(world)
    handle = await _run(app, engine, "process p(web: Web)   { finish   1+2 # sum\n }")
    record = await handle.record()
    assert await read_source(app.storage, record) == "process p(web: Web) {\n  finish 1 + 2\n}\n"
    assert str(source_ref(record)).startswith("lashlang:v1:sha256:")
