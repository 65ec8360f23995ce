"""Programs in sandboxed Python as processes: their calls are steps, their pauses and questions park the process."""

from __future__ import annotations

import re
import sys

import pytest

import lash
from lash.agents import Tool, tool
from lash.code import CodeEngine, CodeLimits
from lash.code.source import NAMESPACE, read_source
from lash.errors import ConfigError, InvalidInput, InvalidProgram
from lash.model.process.event import ATTEMPT_FAILED
from lash.model.process.process import EngineInput, Success
from lash.model.wait import Question
from tests.code.kit import Functions, failure_of, resolve
from tests.runtime.process_bench import World, outcome_of, records_of

WHOLE = """\
import asyncio, random, time
async def read(url):
    try:
        return (await fetch(url))["words"]
    except RuntimeError as error:
        return str(error)
urls = search(topic)
sizes = await asyncio.gather(read(urls[0]), read("broken"), read(urls[1]))
time.sleep(3600)
await asyncio.sleep(3600)
answer = ask_human("Publish " + topic + "?", {"type": "boolean"})
{"sizes": sizes, "answer": answer, "luck": random.random()}
"""


async def test_a_program_runs_over_pauses_and_questions(world: World) -> None:
    """Each call happens once, the process is parked at pauses and questions, and random numbers stay the same."""
    app = await world.app()
    handle = await app.start(Functions(world).declare(app), WHOLE, inputs={"topic": "llamas"})
    for _ in range(2):
        await app.drain()
        await world.seconds(3601)
    await app.drain()
    (wait,) = await app.storage.waits.pending()
    assert wait.ask == Question(text="Publish llamas?", schema={"type": "boolean"})
    await resolve(app, handle, "ask_human-1", value=True)
    await app.drain()
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Success)
    assert isinstance(outcome.value, dict)
    assert outcome.value["sizes"] == [8, "Permanent: 404", 8]
    assert outcome.value["answer"] is True
    assert dict(world.calls) == {"search llamas": 1, "fetch llamas/1": 1, "fetch broken": 1, "fetch llamas/2": 1}
    records = await records_of(app, handle)
    assert {"search#1", "gather#1.0/fetch#1", "gather#1.2/fetch#1", "sleep#1", "wait.ask_human-1#1"} <= set(records)
    command = records["gather#1.0/fetch#1"].envelope.command
    assert getattr(command, "input", None) == {"kwargs": {"url": "llamas/1"}}


async def test_calls_side_by_side_keep_their_order(world: World) -> None:
    """The k-th call of a gather is its k-th branch, in the order in which the program made the calls."""
    app = await world.app()
    source = "import asyncio\nlen(await asyncio.gather(*[fetch(str(number)) for number in range(20)]))"
    handle = await app.start(Functions(world).declare(app), source)
    await app.drain()
    assert await outcome_of(handle) == Success(value=20)
    commands = {key: each.envelope.command for key, each in (await records_of(app, handle)).items()}
    for number in range(20):
        command = commands[f"gather#1.{number}/fetch#1"]
        assert getattr(command, "input", None) == {"kwargs": {"url": str(number)}}


async def test_the_source_is_an_artifact(world: World) -> None:
    """The source is stored once under its hash, and the process names the hash and not the text."""
    app = await world.app()
    program = Functions(world).declare(app)
    first, second = await app.start(program, "1 + 1"), await app.start(program, "1 + 1", inputs={"unused": 1})
    page = await app.storage.artifacts.list(NAMESPACE)
    assert len(page.artifacts) == 1
    record = await first.record()
    assert isinstance(record.registration.input, EngineInput)
    assert record.registration.input.payload == {
        "process": "analyst",
        "version": "1",
        "args": {"artifact": page.artifacts[0].ref, "inputs": {}},
    }
    assert await read_source(app.storage, record) == "1 + 1"
    await app.drain()
    assert await outcome_of(second) == Success(value=2)
    await app.storage.artifacts.delete(NAMESPACE, page.artifacts[0].ref)
    assert await read_source(app.storage, record) is None


async def test_a_program_without_its_source_fails_at_once(world: World) -> None:
    """A run on a storage that lacks the artifact ends the process with a code of its own."""
    app = await world.app()
    handle = await app.start(Functions(world).declare(app), "1 + 1")
    (artifact,) = (await app.storage.artifacts.list(NAMESPACE)).artifacts
    await app.storage.artifacts.delete(NAMESPACE, artifact.ref)
    if world.shared:
        await app.stop()
        app = await world.app()
        Functions(world).declare(app)
    await app.drain()
    assert (await failure_of(app.handle(handle.process_id))).code == "program_missing"


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("source", "code", "shown"),
    [
        ("x: int = search('a')", "program_type_error", "line 1: invalid-assignment"),
        ("\nfetch(3)", "program_type_error", "line 2: "),
        ("size = (await fetch('a'))['wrods']", "program_type_error", 'did you mean "words"'),
        ("open_door()", "program_type_error", "`open_door` used when not defined"),
        ("x = [\n1", "program_type_error", "line 2: "),
        ("(" * 3_000 + ")" * 3_000, "program_syntax_error", "too deeply nested"),
        ("x = 1\n" * 60_000, "program_too_long", "at most 262,144"),
    ],
)
async def test_a_mistake_is_reported_before_the_start(world: World, source: str, code: str, shown: str) -> None:
    """A program that does not fit the types of its functions is not registered; the error has line and mark."""
    app = await world.app()
    with pytest.raises(InvalidProgram) as caught:
        await app.start(Functions(world).declare(app), source)
    assert caught.value.code == code
    assert shown in str(caught.value)
    assert (await app.storage.processes.list()).processes == ()


async def test_a_type_error_has_the_line_and_a_mark(world: World) -> None:
    """The message shows the line of the source with a mark below the place."""
    app = await world.app()
    with pytest.raises(InvalidProgram) as caught:
        await app.start(Functions(world).declare(app), "a = 1\nb = search(topic=7)")
    assert str(caught.value).splitlines()[1:] == ["    b = search(topic=7)", "               ^"]


async def test_errors_of_functions_are_exceptions_of_the_program(world: World) -> None:
    """A program catches them by their usual names, others as RuntimeError, and gets the same in every run."""
    app = await world.app()
    source = """\
import time
caught = []
for kind in ["value", "key", "own"]:
    try:
        await fail(kind)
    except (ValueError, KeyError) as error:
        caught.append(type(error).__name__ + ": " + str(error))
    except RuntimeError as error:
        caught.append("RuntimeError: " + str(error))
    time.sleep(60)
caught
"""
    handle = await app.start(Functions(world).declare(app), source)
    for _ in range(4):
        await app.drain()
        await world.seconds(61)
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Success)
    assert outcome.value == ["ValueError: no value", "KeyError: 'no key'", "RuntimeError: _OwnError: no own"]
    assert set(world.calls.values()) == {1}


async def test_an_error_of_the_program_ends_it_with_its_line(world: World) -> None:
    """An uncaught error is final, whatever the retry policy: the same source raises it again."""
    app = await world.app()
    handle = await app.start(Functions(world).declare(app), "x = 1\ny = 0\nx / y")
    await app.drain()
    failure = await failure_of(handle)
    assert (failure.code, failure.message) == ("program_error", "ZeroDivisionError: division by zero (line 3)")
    assert isinstance(failure.raw, dict)
    assert failure.raw["line"] == 3
    assert ATTEMPT_FAILED not in [each.event_type for each in await handle.events()]


async def test_values_that_are_not_json_stay_inside(world: World) -> None:
    """An argument that JSON cannot carry is a TypeError of the program, a result a failure of the process."""
    app = await world.app()
    program = Functions(world).declare(app)
    inner = "try:\n    search({1})\nexcept TypeError as error:\n    said = str(error)\nsaid"
    handles = [
        await app.start(program, f"from typing import Any\nsearch: Any = search\n{inner}"),
        await app.start(program, "{1, 2}"),
        await app.start(program, "float('nan')"),
        await app.start(program, "import datetime\n(1, {'at': datetime.date(2026, 1, 2)})"),
    ]
    await app.drain()
    first = await outcome_of(handles[0])
    assert first == Success(value="argument 'topic' of search() is of type set; use text, numbers, lists and dicts")
    assert (await failure_of(handles[1])).code == "program_result_invalid"
    assert (await failure_of(handles[2])).message == "the result of the program is nan, which JSON cannot carry"
    assert await outcome_of(handles[3]) == Success(value=[1, {"at": "2026-01-02"}])


async def test_the_clock_is_that_of_the_process(world: World) -> None:
    """A program that sleeps sees the time pass, and sees the same times in every run."""
    app = await world.app()
    source = """\
import datetime, time
first, day = time.time(), datetime.date.today()
time.sleep(3 * 86400)
later = datetime.datetime.now(datetime.timezone.utc)
[later.timestamp() - first >= 3 * 86400, (later.date() - day).days]
"""
    handle = await app.start(Functions(world).declare(app), source)
    await app.drain()
    await world.seconds(3 * 86_400 + 1)
    await app.drain()
    assert await outcome_of(handle) == Success(value=[True, 3])


async def test_tools_keep_their_options(world: World) -> None:
    """A tool with an approval waits for a person; a denied call is a PermissionError of the program."""
    app = await world.app()

    @tool(needs_approval=True)
    async def pay(euros: int) -> str:
        world.count("pay")
        return f"paid {euros}"

    program = app.code_process(tools=[pay])
    source = "try:\n    said = await pay(7)\nexcept PermissionError as error:\n    said = str(error)\nsaid"
    yes, no = await app.start(program, source), await app.start(program, source)
    await app.drain()
    asked = [each.ask for each in await app.storage.waits.pending()]
    assert [each and each.details for each in asked] == [{"tool": "pay", "arguments": {"euros": 7}}] * 2
    await resolve(app, yes, "approve_pay-1", value=True)
    await resolve(app, no, "approve_pay-1", value=False)
    await app.drain()
    assert await outcome_of(yes) == Success(value="paid 7")
    assert await outcome_of(no) == Success(value="the call of pay was denied")
    assert world.calls["pay"] == 1


async def test_a_subscription_starts_a_program(world: World) -> None:
    """The source of a subscription is checked when its process runs, and a mistake ends the process."""
    app = await world.app()
    program = Functions(world).declare(app)
    inputs = {"source": "search(topic)", "inputs": lash.EVENT}
    app.on("topic.found", program, key="good", inputs=inputs)
    app.on("topic.found", program, key="bad", inputs={**inputs, "source": "search(7)"})
    report = await app.emit("topic.found", {"topic": "llamas"}, key="1")
    await app.drain()
    handles = [app.handle(each.process_id or "") for each in report.deliveries]
    outcomes = {type(await outcome_of(each)).__name__: await outcome_of(each) for each in handles}
    assert outcomes["Success"] == Success(value=["llamas/1", "llamas/2"])
    assert getattr(outcomes["Failure"], "code", "") == "program_type_error"


async def test_a_child_of_a_durable_function_is_a_program(world: World) -> None:
    """A durable function starts a program as any other process, and gets its result."""
    app = await world.app()
    program = Functions(world).declare(app)

    @app.process
    async def parent(ctx: lash.Context) -> list[str]:
        child = await ctx.start(program, "search('llamas', most=1)")
        found: list[str] = await child.result()
        return found

    handle = await app.start(parent)
    await app.drain()
    assert await outcome_of(handle) == Success(value=["llamas/1"])


async def _nothing() -> None: ...


def test_declarations_are_checked() -> None:
    """Tools that a program could not call, and limits without sense, are refused where they are declared."""
    app = lash.App("sqlite://")

    async def with_turn(turn: lash.Turn) -> str:
        return turn.session_id

    with pytest.raises(ConfigError, match="takes a turn"):
        app.code_process(tools=[with_turn])
    with pytest.raises(ConfigError, match="different names of Python functions, got 'ask_human'"):
        app.code_process(tools=[Tool(_nothing, name="ask_human")])
    with pytest.raises(ConfigError, match="limits above 0"):
        CodeLimits(calls=0)
    app.engine(CodeEngine(sandboxes=2))
    app.code_process()
    with pytest.raises(ConfigError, match="a process 'program' of version '1' already"):
        app.code_process(tools=[_nothing])


def test_a_cell_that_runs_again_declares_its_programs_again() -> None:
    """A notebook cell that is run again takes the place of its earlier declaration."""
    app = lash.App("sqlite://")
    names: dict[str, object] = {"app": app, "__name__": "__main__"}
    for number in (1, 2):
        exec(compile("program = app.code_process(tools=[])", f"<cell {number}>", "exec"), names)
    assert app.find_process("program") is names["program"]


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pydantic-monty the declaration says what to install."""
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'lash-runtime[code]'")):
        CodeEngine()


async def test_starts_are_checked(world: World) -> None:
    """Sources and inputs that are none are refused."""
    app = await world.app()
    program = app.code_process()
    for source, inputs, shown in (
        ("  ", {}, "the source of the program as text"),
        ("1", {"a b": 1}, "names of variables"),
        ("1", {"a": object()}, "input 'a' is of type object"),
    ):
        with pytest.raises(InvalidInput, match=shown):
            await app.start(program, source, inputs=inputs)
