"""Engines other than durable functions: any worker that has one runs its processes on the ordinary context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import lash
from lash.errors import ConfigError, InvalidInput, InvalidProgram, UnknownDefinition
from lash.model.process.event import ATTEMPT_FAILED, EventType
from lash.model.process.process import Cancellation, EngineInput, Failure, Success
from lash.model.value import JSON
from lash.runtime.app import App
from lash.runtime.declarations import Router
from lash.runtime.engine import ANY_SIGNAL, DeclaredEngine, Engine, Host, Loaded, Program
from lash.runtime.errors import ProgramFailed
from lash.runtime.policy import WorkerOptions
from lash.runtime.processes.context import Context
from lash.stores.storage import Storage
from tests.runtime.process_bench import World, kinds_of, outcome_of, records_of


class Tape(Program[..., int]):
    """A list of words; each is one operation on the context."""

    def __init__(self, world: World, words: list[str], name: str = "tape") -> None:
        super().__init__("tape", name, "1")
        self._world = world
        self._words = words

    @property
    def parameters(self) -> Mapping[str, bool]:
        return {"start": True}

    def reference(self) -> dict[str, JSON]:
        return {"words": list(self._words), "name": self.name}

    def event_types(self) -> tuple[EventType, ...]:
        return (EventType(name="tape.mark"), ANY_SIGNAL)

    async def check_start(
        self, storage: Storage, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> dict[str, JSON]:
        del storage
        (start,) = args or (kwargs.get("start"),)
        if not isinstance(start, int):
            raise InvalidInput("a tape starts at a number")
        return {"start": start}

    async def run(self, context: Context, arguments: Mapping[str, Any]) -> int:
        total: int = arguments["start"]
        for number, word in enumerate(self._words):
            total = await self._word(context, word, number, total)
        return total

    async def _word(self, context: Context, word: str, number: int, total: int) -> int:
        if word == "sleep":
            await context.sleep(60)
        elif word == "signal":
            total += await context.wait_signal("more")
        elif word == "mark":
            await context.event("tape.mark", {"total": total})
        elif word == "child":
            total += await (await context.start(Tape(self._world, ["add"]), 0)).result()
        elif word == "lost child":
            child = await context.start(Tape(self._world, ["signal"]), 0)
            await context.child(child.process_id).cancel("not needed")
            with pytest.raises(lash.ProcessFailed):
                await context.child(child.process_id).result()
        elif word == "rewind":
            if total < 100:
                await context.continue_as_new(total + 50)
        elif word == "fail":
            raise ProgramFailed("tape_torn", f"torn at word {number}", {"word": number})
        else:
            total = await context.step(word, self._add, total)
        return total

    async def _add(self, total: int) -> int:
        self._world.count("add")
        return total + 1


class TapeEngine(Engine):
    """Finds the words in the input of the process."""

    name = "tape"
    version = "7"

    def __init__(self, world: World) -> None:
        self._world = world
        self.closed = 0

    async def load(self, payload: Mapping[str, JSON], host: Host) -> Loaded:
        del host
        words, arguments = payload.get("words"), payload.get("args")
        if not isinstance(words, list) or not isinstance(arguments, dict):
            raise InvalidProgram("tape_blank", "the tape has no words")
        return Loaded(Tape(self._world, [str(word) for word in words], str(payload["name"])), arguments)

    async def close(self) -> None:
        self.closed += 1


async def _app(world: World, **options: Any) -> App:  # noqa: ANN401 (those of App)
    app = await world.app(**options)
    app.engine(TapeEngine(world))
    return app


async def test_an_engine_runs_on_the_ordinary_context(world: World) -> None:
    """Steps, pauses, signals, events and children of another engine are recorded, and happen once over several runs."""
    app = await _app(world)
    words = ["add", "mark", "sleep", "add", "signal", "child", "lost child", "add"]
    handle = await app.start(Tape(world, words), 1)
    await app.drain()
    await world.seconds(61)
    await app.drain()
    await handle.signal("more", 10, key="1")
    await app.drain()
    assert await outcome_of(handle) == Success(value=15)
    assert world.calls["add"] == 4, "three of the tape and one of its child"
    assert (await kinds_of(handle)).count("tape.mark") == 1
    record = (await handle.record()).registration
    assert record.identity is not None
    assert (record.identity.kind, record.identity.label) == ("tape", "tape")
    assert {"add#1", "sleep#1", "add#2", "event.tape.mark#1"} <= set(await records_of(app, handle))
    children = (await app.storage.processes.list()).processes
    ends = [type(each.projection.outcome) for each in children if each.process_id != handle.process_id]
    assert sorted(ends, key=str) == sorted([Success, Cancellation], key=str)


async def test_a_start_is_checked_by_the_engine(world: World) -> None:
    """What a program refuses is not registered."""
    app = await _app(world)
    with pytest.raises(InvalidInput, match="starts at a number"):
        await app.start(Tape(world, ["add"]), "one")
    assert (await app.storage.processes.list()).processes == ()


async def test_a_worker_without_the_engine_leaves_the_process_to_others(world: World) -> None:
    """The log says which engine is missing, and a worker that has it runs the process to its end."""
    if not world.shared:
        pytest.skip("a database in memory has one application")
    app, other = await _app(world), await world.app()
    handle = await app.start(Tape(world, ["add"]), 1)
    await other.drain()
    (noted,) = [each for each in await handle.events() if each.event_type == ATTEMPT_FAILED]
    assert isinstance(noted.payload, dict)
    assert noted.payload["message"] == "unknown engine 'tape'; registered: python"
    await app.drain()
    assert await outcome_of(handle) == Success(value=2)
    with pytest.raises(UnknownDefinition, match="engine 'tape'"):
        await other.start(Tape(world, ["add"]), 1)


async def test_workers_choose_programs_by_name(world: World) -> None:
    """The name of a program is what the option process_names means, whatever its engine."""
    if not world.shared:
        pytest.skip("a database in memory has one application")
    app = await _app(world)
    handle = await app.start(Tape(world, ["add"], "long"), 1)
    short = await _app(world, options=WorkerOptions(process_names=("short",)))
    assert await short.drain() == 0
    long = await _app(world, options=WorkerOptions(process_names=("long",)))
    assert await long.drain() == 1
    assert await outcome_of(handle) == Success(value=2)


async def test_the_end_of_a_program_has_its_own_code(world: World) -> None:
    """A program that fails, and one that cannot be loaded, end with codes of the engine, without another attempt."""
    app = await _app(world)
    torn = await app.start(Tape(world, ["add", "fail"]), 1)
    blank = lash.model.Registration(
        process_id="blank", input=EngineInput(kind="tape", payload={}), environment_ref="tape"
    )
    await app.storage.processes.register(blank)
    await app.drain()
    outcome = await outcome_of(torn)
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.message, outcome.raw) == ("tape_torn", "torn at word 1", {"word": 1})
    outcome = await outcome_of(app.handle("blank"))
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.message) == ("tape_blank", "the tape has no words")
    assert world.calls["add"] == 1


async def test_a_program_continues_as_new(world: World) -> None:
    """The engine loads the next run from the payload of the continuation."""
    app = await _app(world)
    handle = await app.start(Tape(world, ["add", "rewind"]), 1)
    await app.drain()
    assert await outcome_of(handle) == Success(value=104)
    assert (await handle.record()).projection.run == 3


async def test_an_occurrence_starts_a_program(world: World) -> None:
    """A subscription names a program of any engine."""
    app = await _app(world)
    app.on("tape.found", Tape(world, ["add"]), inputs={"start": lash.pointer("/at")})
    with pytest.raises(ConfigError, match="needs argument 'start'"):
        app.on("tape.lost", Tape(world, ["add"]), inputs={})
    report = await app.emit("tape.found", {"at": 4}, key="1")
    await app.drain()
    (started,) = report.deliveries
    assert started.process_id is not None
    assert await outcome_of(app.handle(started.process_id)) == Success(value=5)


async def test_engines_are_added_once_and_closed_with_the_app(world: World) -> None:
    """Two engines of one name are refused; a router brings its own; each is closed when the app stops."""
    app, engine = await world.app(), TapeEngine(world)
    router = Router()
    router.engine(engine)
    app.include(router)
    app.engine(engine)
    with pytest.raises(ConfigError, match="an engine 'tape' already"):
        app.engine(TapeEngine(world))
    with pytest.raises(UnknownDefinition, match="engine 'drum'"):
        app.declare(_Named("drum"))
    await app.stop()
    assert engine.closed == 1


async def test_declared_programs_of_any_engine_share_their_names(world: World) -> None:
    """A declared program is found by its name and version, on the engine that it names."""
    app = await world.app()
    app.engine(DeclaredEngine("named"))
    declared = app.declare(_Named("named"))
    assert app.find_process("greeting") is declared
    assert app.declare(declared) is declared
    with pytest.raises(ConfigError, match="a process 'greeting' of version '1' already"):
        app.declare(_Named("named"))
    handle = await app.start(declared, name="Ada")
    wrong = EngineInput(kind="named", payload={**declared.reference(), "args": {"title": "Countess"}})
    await app.storage.processes.register(lash.model.Registration(process_id="wrong", input=wrong, environment_ref="x"))
    other = EngineInput(kind="python", payload={**declared.reference(), "args": {}})
    await app.storage.processes.register(lash.model.Registration(process_id="other", input=other, environment_ref="x"))
    await app.drain()
    assert await outcome_of(handle) == Success(value="hello Ada")
    failure = await outcome_of(app.handle("wrong"))
    assert isinstance(failure, Failure)
    assert failure.message == "process 'greeting' takes no argument 'title'"
    (noted,) = [each for each in await app.handle("other").events() if each.event_type == ATTEMPT_FAILED]
    assert isinstance(noted.payload, dict)
    assert noted.payload["message"] == (
        "unknown process 'greeting version 1 on engine python'; registered: greeting on engine named"
    )
    assert await outcome_of(app.handle("other")) is None, "a worker with the former code may run it"


class _Named(Program[..., str]):
    def __init__(self, engine: str) -> None:
        super().__init__(engine, "greeting", "1")

    @property
    def parameters(self) -> Mapping[str, bool]:
        return {"name": True}

    async def check_start(
        self, storage: Storage, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> dict[str, JSON]:
        del storage, args
        return {name: self.argument(name, value) for name, value in kwargs.items()}

    async def run(self, context: Context, arguments: Mapping[str, Any]) -> str:
        del context
        return f"hello {arguments['name']}"
