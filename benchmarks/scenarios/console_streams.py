"""The streams of the console: what twenty open pages cost the throughput of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from benchmarks.kit.contest import fresh
from benchmarks.kit.fleet import crowd
from benchmarks.kit.machine import lash_versions, postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.registry import Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.streams import ConsoleProcess, console_process
from benchmarks.kit.workspace import Workspace
from benchmarks.peers.lash.fleet import Fleet, fleet_of

_SLOTS: Final = 8
_CALLERS: Final = 16
_SECONDS: Final = 6.0
_PAGES: Final = (
    *("", "sessions", "sessions?state=running", "queue", "queue?show=dead", "workers", "processes", "inbox"),
    *("tokens", "session?id=s0", "session?id=s1", "session?id=s2"),
)
_STREAMS: Final = (*_PAGES, "", "", "sessions", "sessions", "session?id=s0", "session?id=s0", "queue", "workers")
"""Twenty pages that people leave open, twelve of them different."""


async def _rates(url: str, console: ConsoleProcess, rounds: int, seconds: float) -> dict[int, list[float]]:
    """Return the turns a second that one worker does, without streams and with twenty, in turn."""
    fleet = fleet_of(url, worker=False)
    rates: dict[int, list[float]] = {0: [], len(_STREAMS): []}
    async with fleet.app:
        load = _Load(fleet)
        # Statements are planned, and the sessions exist.
        await load.rate(seconds)
        for number in range(rounds):
            for streams in rates if number % 2 else reversed(rates):
                async with console.open(_STREAMS) if streams else contextlib.nullcontext():
                    rates[streams].append(await load.rate(seconds))
        await load.end()
    return rates


class _Load:
    """Callers that ask again as soon as they are answered."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._done = 0
        self._ended = False
        self._callers = [asyncio.create_task(self._converse(number)) for number in range(_CALLERS)]

    async def rate(self, seconds: float) -> float:
        before, began = self._done, time.monotonic()
        await asyncio.sleep(seconds)
        return (self._done - before) / (time.monotonic() - began)

    async def end(self) -> None:
        self._ended = True
        await asyncio.gather(*self._callers)

    async def _converse(self, number: int) -> None:
        session = self._fleet.app.session(f"s{number}", self._fleet.echo)
        while not self._ended:
            await session.ask("go")
            self._done += 1


def streams(workspace: Workspace) -> Report:
    """Measure one worker on each database, with its callers in this process and the console in another."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    for backend in ("sqlite", "postgres"):
        with (
            fresh(workspace, backend) as url,
            crowd(workspace.new_path(), "lash", 1, url, sessions=_SLOTS),
            console_process(url) as console,
        ):
            seconds = max(0.3, _SECONDS * workspace.scale)
            found = asyncio.run(_rates(url, console, workspace.rounds, seconds))
        none, many = (
            Row(contender="lash", case=f"{backend}, {count} streams", unit="turns/s", samples=Samples(tuple(values)))
            for count, values in found.items()
        )
        rows += [many, none]
        ratios.append(Ratio.of(many, none))
    return Report(
        ratios=tuple(ratios),
        rows=tuple(rows),
        versions=postgres_versions(workspace) | lash_versions("apsw", "sqlite", "starlette", "uvicorn"),
        notes=(
            "one worker, its callers, the console, the twenty readers of its streams and the database share two cores",
        ),
    )


register(
    Scenario(
        name="console-streams",
        group="console",
        what="turns of one worker with twenty open pages of the console in another process, over none",
        run=streams,
        target="above 0.9",
    )
)
