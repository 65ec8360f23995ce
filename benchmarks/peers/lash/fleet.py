"""Workers of a fleet, and the application that they and their callers share."""

from __future__ import annotations

import asyncio
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import lash
from benchmarks.peers.protocol import Answer, Crew, Question

_LOOK_S = 0.5
_STEP_S = 0.05
_NUMBER = struct.Struct("<Q")


class StatementCount(lash.Hook):
    """Counts the statements of this process in a file, in which another process can read the count at any time."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_NUMBER.size))
        with path.open("r+b") as file:
            self._cell = mmap.mmap(file.fileno(), _NUMBER.size)
        self._count = 0

    def statement(self, _name: str) -> None:
        self._count += 1
        _NUMBER.pack_into(self._cell, 0, self._count)


def counted_statements(path: Path) -> int:
    """Return the count that another process keeps in the file."""
    number: int = _NUMBER.unpack(path.read_bytes())[0]
    return number


class Fleet(NamedTuple):
    """The application of workers and callers."""

    app: lash.App
    echo: Any
    slow: Any
    job: Any


def fleet_of(url: str, crew: Crew | None = None, **options: Any) -> Fleet:  # noqa: ANN401 (what App takes)
    """Return an application with an agent that answers at once, one that waits 50 ms in a step, and a short job."""
    app = lash.App(url, **options)

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        return "reply to " + turn.text

    @app.agent
    async def slow(turn: lash.Turn) -> str:
        await turn.step("wait", asyncio.sleep, _STEP_S)
        return "reply to " + turn.text

    @app.process
    async def job(ctx: lash.Context, number: int) -> None:  # noqa: ARG001 (it does nothing with it)
        assert crew is not None
        crew.done(number)

    return Fleet(app, echo, slow, job)


async def worker(question: Question) -> Answer:
    """Work until the runner ends the fleet."""
    crew = Crew(question)
    hooks = [StatementCount(Path(question["count"]))] if question["count"] else []
    options = lash.WorkerOptions(**question["options"])
    async with fleet_of(question["url"], crew, hooks=hooks, options=options).app:
        crew.begin()
        while not crew.must_end():
            await asyncio.sleep(_LOOK_S)
    return {}


async def prepare(question: Question) -> Answer:
    """Create the tables."""
    async with await lash.open(question["url"]):
        return {}


async def send(question: Question) -> Answer:
    """Start jobs at a steady rate."""
    crew = Crew(question)
    fleet = fleet_of(question["url"], worker=False)
    async with fleet.app as app:
        await app.start(fleet.job, -1)
        crew.begin()
        while not crew.may_go():
            await asyncio.sleep(0.01)
        for number in range(question["jobs"]):
            await app.start(fleet.job, number)
            await asyncio.sleep(question["every_s"])
    return {}


FLEET = {"fleet_worker": worker, "fleet_prepare": prepare, "fleet_send": send}
