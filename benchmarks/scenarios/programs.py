"""Programs in lashlang: how soon one continues after few effects, and after many."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from typing import Final

import lash
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from lash.lang import Lashlang, Limits

_FEW, _MANY = 10, 10_000
_CALLS: Final = 60
_SOURCE: Final = """process loop(effects: int) signals { go: int } {
  for number in range(effects) { yield number }
  while true { number = wait_signal("go") yield number }
}"""
_PROCESS: Final = "loop"
_ROUND_TRIP_S: Final = 60


class Loop:
    """A process that is parked after so many effects, and is woken by each signal."""

    def __init__(self, app: lash.App) -> None:
        self._app = app
        self._calls = 0

    async def cost_us(self, calls: int) -> float:
        """Return the median time from a signal to the event behind it; each needs the state of the program again."""
        taken: list[float] = []
        for number in range(self._calls, self._calls + calls):
            last = (await self._app.storage.events.last_sequences((_PROCESS,)))[_PROCESS]
            begin = time.perf_counter()
            await self._app.signal(_PROCESS, "go", number, key=str(number))
            await self._app.storage.waiter.wait_event_after(_PROCESS, "yield", last, timeout_s=_ROUND_TRIP_S)
            taken.append(time.perf_counter() - begin)
        self._calls += calls
        return statistics.median(taken) * 1e6


@contextlib.asynccontextmanager
async def looping(url: str, effects: int) -> AsyncIterator[Loop]:
    """Run a program until it waits behind its effects."""
    engine = Lashlang(limits=Limits(effects=10 * _MANY))
    app = lash.App(url)
    app.engine(engine)
    async with app:
        await app.starting(process_id=_PROCESS).start(engine.process(_SOURCE), effects=effects)
        await app.storage.waiter.wait_event_after(_PROCESS, "process.waiting", 0, timeout_s=1_000)
        yield Loop(app)


async def costs(urls: tuple[str, str], effects: tuple[int, int], rounds: int, calls: int) -> tuple[Samples, Samples]:
    """Measure few and many effects alternately."""
    small: list[float] = []
    large: list[float] = []
    async with looping(urls[0], effects[0]) as few, looping(urls[1], effects[1]) as many:
        for _ in range(rounds + 1):
            small.append(await few.cost_us(calls))
            large.append(await many.cost_us(calls))
    # The first round warms up.
    return Samples(tuple(small[1:])), Samples(tuple(large[1:]))


def recovery(workspace: Workspace) -> Report:
    """Measure both databases; the worse one is the headline."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    many, calls = workspace.count(_MANY, least=200), workspace.count(_CALLS, least=3)
    for backend in ("sqlite", "postgres"):
        with fresh(workspace, backend) as first, fresh(workspace, backend) as second:
            small, large = asyncio.run(costs((first, second), (_FEW, many), workspace.rounds, calls))
        pair = [
            Row(contender="lash", case=f"{backend}, {count} effects", unit="us", samples=samples)
            for count, samples in ((many, large), (_FEW, small))
        ]
        rows += pair
        ratios.append(Ratio.of(*pair))
    ratios.sort(key=lambda ratio: -ratio.value)
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


register(
    Scenario(
        name="flat-program",
        group="flatness",
        what=f"a lashlang program that continues: cost after {_MANY:,} effects over cost after {_FEW}",
        run=recovery,
        better=Better.LESS,
        target="at most 1.15",
    )
)
