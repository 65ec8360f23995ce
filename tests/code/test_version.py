"""A changed sandbox: a program replays strictly, or its log says which version its records need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lash.code.interpreter import Interpreter
from lash.model.process.event import ATTEMPT_FAILED
from lash.model.process.process import ProcessStatus, Success
from lash.model.value import JSON
from lash.runtime.app import App
from lash.runtime.processes.handle import ProcessHandle
from tests.runtime.process_bench import World, outcome_of, records_of

SOURCE = "import time\nfound = find('llamas')\ntime.sleep(60)\nfound"
NEWER = "9.0.0"
pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


def find(topic: str) -> str:
    """Return what there is."""
    return f"{topic}!"


async def _half_run(world: World) -> tuple[App, ProcessHandle[Any]]:
    """Return a process that sleeps behind its first call."""
    app = await world.app()
    handle = await app.start(app.code_process(tools=[find]), SOURCE)
    await app.drain()
    return app, handle


async def _go_on(world: World, handle: ProcessHandle[Any], *tools: Callable[..., Any]) -> list[str]:
    """Continue the process on another application, and return what its log notes about failed attempts."""
    app = await world.app()
    app.code_process(tools=tools)
    await world.seconds(61)
    await app.drain()
    noted = [each.payload for each in await handle.events() if each.event_type == ATTEMPT_FAILED]
    return [str(each["message"]) for each in noted if isinstance(each, dict)]


def _install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pydantic_monty.__version__", NEWER)


async def test_the_same_calls_replay_under_another_version(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of the first run stays recorded, and a run under another one that does the same goes on."""
    app, handle = await _half_run(world)
    (recorded,) = [each.outcome for key, each in (await records_of(app, handle)).items() if key == "sandbox#1"]
    _install(monkeypatch)
    assert await _go_on(world, handle, find) == []
    assert await outcome_of(handle) == Success(value="llamas!")
    assert recorded not in (None, NEWER)
    assert (await records_of(app, handle))["sandbox#1"].outcome == recorded


async def test_another_call_under_another_version_says_which_version_it_needs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process waits for a worker of the former version instead of failing; the log names both versions."""
    _app, handle = await _half_run(world)
    _install(monkeypatch)

    def other(subject: str) -> str:
        return subject

    other.__name__ = "find"
    (message,) = await _go_on(world, handle, other)
    assert "effect 'find#1'" in message
    assert f"and this worker has {NEWER}: run it on a worker that has the former" in message
    assert await handle.status() is ProcessStatus.RUNNING


async def test_an_error_under_another_version_does_not_end_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that fails before its records end may fail because of the version."""
    _app, handle = await _half_run(world)
    _install(monkeypatch)
    (message,) = await _go_on(world, handle)
    assert message.startswith("the program fails: NameError: name 'find' is not defined (line 2). The records were")
    assert await handle.status() is ProcessStatus.RUNNING


async def test_an_early_end_under_another_version_does_not_end_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that ends before its records do is not taken for complete."""
    _app, handle = await _half_run(world)
    _install(monkeypatch)

    async def ends_at_once(_self: Interpreter, _source: str, _inputs: object) -> JSON:
        return "early"

    monkeypatch.setattr(Interpreter, "_interpret", ends_at_once)
    (message,) = await _go_on(world, handle, find)
    assert message.startswith("the program ends before its records do. The records were made with pydantic-monty")
    assert await handle.status() is ProcessStatus.RUNNING
