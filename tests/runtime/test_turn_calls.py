"""What a turn costs in this process, as counts: calls of functions above the databases, and tasks.

Coroutines and generators are not counted: how often one is resumed depends on how fast the database is.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Coroutine, Generator
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
TASKS = 2
"""The run of the turn, and its agent."""
_TURNS = 12
_HOME = Path(lash.__file__).parent
_LAYERS = tuple(str(_HOME / layer) for layer in ("backend", "base", "model", "plan", "runtime", "stores"))
_RESUMED = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


async def test_a_turn_takes_few_calls_and_tasks(backend_name: str, backend_url: str) -> None:
    """A message and its turn stay below the bounds; the least of some turns counts, since others may be disturbed."""
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

    app = lash.App(backend_url, worker=False)

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
                await session.send("hello", key=str(number))
                await app.drain()
            finally:
                sys.setprofile(None)
            counted.append((calls, tasks))
        loop.set_task_factory(None)
    least_calls, least_tasks = (min(column) for column in zip(*counted, strict=True))
    assert least_calls <= CALLS[backend_name], counted
    assert least_tasks <= TASKS, counted
