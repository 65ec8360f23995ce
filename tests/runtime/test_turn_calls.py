"""What a turn costs in this process, as counts: calls of functions above the databases, and tasks.

Coroutines and generators are not counted: how often one is resumed depends on how fast the database is.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

import lash

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

T = TypeVar("T")
CALLS = {"sqlite": 545, "postgres": 530}
"""How many calls a turn takes at most: about one in fifty more than it takes with Python 3.11.

On SQLite it takes 535. Calls in the writer's thread are not counted: a turn whose writes go there seems to take fewer.
"""
CALLS_OF_ASK = {"sqlite": 412, "postgres": 405}
"""The same for a question to the application's own worker, whose message begins the turn."""
TASKS = 2
"""The run of the turn, and its agent."""
_TURNS = 12
_HOME = Path(lash.__file__).parent
_LAYERS = tuple(str(_HOME / layer) for layer in ("backend", "base", "model", "plan", "runtime", "stores"))
_RESUMED = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


async def test_a_turn_takes_few_calls_and_tasks(backend_name: str, backend_url: str) -> None:
    """A message and its turn stay below the bounds."""
    app = lash.App(backend_url, worker=False)

    async def turn(session: lash.SessionHandle, number: int) -> None:
        await session.send("hello", key=str(number))
        await app.drain()

    calls, tasks = await _least(app, turn)
    assert calls <= CALLS[backend_name]
    assert tasks <= TASKS


async def test_a_question_to_the_own_worker_takes_fewer_calls(backend_name: str, backend_url: str) -> None:
    """A question whose message begins its turn stays below lower bounds: nothing polls, listens or looks."""
    # A poll by the clock does not come during the test.
    app = lash.App(backend_url, options=lash.WorkerOptions(poll_s=600))

    async def turn(session: lash.SessionHandle, number: int) -> None:
        await session.ask("hello", key=str(number), timeout_s=60)

    calls, tasks = await _least(app, turn)
    assert calls <= CALLS_OF_ASK[backend_name]
    assert tasks <= TASKS


async def _least(app: lash.App, turn: Callable[[lash.SessionHandle, int], Awaitable[None]]) -> tuple[int, int]:
    """Return the calls and tasks of the turn that took the fewest: others may be disturbed."""
    calls, tasks = 0, 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        code = frame.f_code
        calls += event == "call" and not code.co_flags & _RESUMED and code.co_filename.startswith(_LAYERS)

    def create(
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T] | Generator[Any, None, T],
        /,
        **options: Any,  # noqa: ANN401 (what this version of Python passes)
    ) -> asyncio.Future[T]:
        nonlocal tasks
        # The engines have tasks of their own, now and then.
        tasks += inspect.iscoroutine(work) and work.cr_code.co_filename.startswith(_LAYERS)
        return asyncio.Task(work, loop=loop, **options)

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return turn.text

    counted: list[tuple[int, int]] = []
    async with app:
        session = app.session("s", agent)
        loop = asyncio.get_running_loop()
        loop.set_task_factory(create)
        for number in range(_TURNS):
            calls = tasks = 0
            sys.setprofile(count)
            try:
                await turn(session, number)
            finally:
                sys.setprofile(None)
            counted.append((calls, tasks))
        loop.set_task_factory(None)
    return min(calls for calls, _ in counted), min(tasks for _, tasks in counted)
