"""What runs keep open between them: opened once, in one task, and closed with the app."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator

import pytest

import lash
from lash.errors import ConfigError
from lash.runtime.resources import Resources

OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="no run")


class Door:
    """Counts how often it is opened and closed, and by which tasks."""

    def __init__(self, *, fails: int = 0) -> None:
        self.events: list[str] = []
        self.tasks: list[asyncio.Task[object] | None] = []
        self.may_open = asyncio.Event()
        self.may_open.set()
        self._fails = fails

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[object]:
        self.tasks.append(asyncio.current_task())
        await self.may_open.wait()
        if self._fails:
            self._fails -= 1
            self.events.append("failed")
            raise BaseExceptionGroup("errors of a task group", [OSError("it is locked")])
        self.events.append(f"opened by {OWNER.get()}")
        yield object()
        self.tasks.append(asyncio.current_task())
        self.events.append("closed")


async def test_it_is_opened_once_in_a_task_and_a_context_of_its_own() -> None:
    """Callers at the same time share it, a cancelled one does not disturb the others, and one task opens and closes."""
    resources, door = Resources(), Door()
    door.may_open.clear()
    OWNER.set("a run")
    callers = [asyncio.create_task(resources.get("door", door.open)) for _ in range(3)]
    await asyncio.sleep(0)
    callers[0].cancel()
    door.may_open.set()
    _, second, third = await asyncio.gather(*callers, return_exceptions=True)
    assert second is third
    assert await resources.get("door", door.open) is second
    await resources.close()
    assert door.events == ["opened by no run", "closed"]
    opened_in, closed_in = door.tasks
    assert opened_in is closed_in
    assert opened_in not in callers


async def test_an_opening_that_fails_is_tried_again() -> None:
    """The error of a task group comes as the error that it is about, and the next caller opens it."""
    resources, door = Resources(), Door(fails=1)
    with pytest.raises(OSError, match="it is locked"):
        await resources.get("door", door.open)
    await resources.get("door", door.open)
    await resources.close()
    assert door.events == ["failed", "opened by no run", "closed"]


async def test_a_discarded_one_is_replaced() -> None:
    """The next caller gets a new one; discarding the old one again does not touch it."""
    resources, door = Resources(), Door()
    first = await resources.get("door", door.open)
    resources.discard("door", first)
    second = await resources.get("door", door.open)
    resources.discard("door", first)
    assert first is not second
    assert await resources.get("door", door.open) is second
    await resources.close()
    assert sorted(door.events) == ["closed", "closed", "opened by no run", "opened by no run"]


async def test_closing_an_app_closes_what_its_turns_opened() -> None:
    """Two turns share a resource; it is closed before the storage, and a closed app opens none."""
    app, door = lash.App("sqlite://", worker=False), Door()
    seen: list[object] = []
    kept: list[Resources] = []

    @app.agent
    async def opens(turn: lash.Turn) -> str:
        kept.append(turn.resources)
        seen.append(await turn.resources.get("door", door.open))
        return "done"

    async with app:
        for number in range(2):
            await app.session(f"s{number}", agent=opens).send("go")
        await app.drain()
        assert door.events == ["opened by no run"]
    assert seen[0] is seen[1]
    assert door.events == ["opened by no run", "closed"]
    with pytest.raises(ConfigError):
        await kept[0].get("door", door.open)
