"""PostgreSQL: lash against the driver alone, and against pgbench, doing the same statements, as durably."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lash
from benchmarks.kit.machine import postgres_versions
from benchmarks.kit.measure import Samples, by_turns
from benchmarks.kit.postgres_trace import (
    Lane,
    RecordingConnection,
    bare_rate,
    find_pgbench,
    pgbench_rate,
    recording_pool,
)
from benchmarks.kit.registry import Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.works import AppendWork, ClaimWork, CommitWork, StepWork, Work, check_all, rate
from benchmarks.kit.workspace import Workspace

_UNIT = "calls/s"
CALLERS = (1, 8, 32)
_LIMIT_CALLERS = 8
"""Beyond so many clients pgbench gains nothing on few cores; more callers of lash are held against this rate."""


@dataclasses.dataclass(kw_only=True)
class Duel:
    """One kind of work on all sides: the template, the statements of each lane, and a rate for each side."""

    workspace: Workspace
    work: Work
    calls: int
    template: str
    lanes: list[Lane]
    pgbench: Path | None

    def ours(self, callers: int, _number: int) -> float:
        """Do the work with lash on a fresh copy, and look whether it was done."""
        with self.workspace.database(self.template) as url:
            return asyncio.run(self._ours(url, callers))

    async def _ours(self, url: str, callers: int) -> float:
        async with await lash.open(url) as storage:
            figure = await rate(storage, self.work, lanes=callers, calls=self.calls, warm=self.workspace.warm)
            await check_all(storage, self.work, lanes=callers, calls=self.calls)
            return figure

    def bare(self, callers: int, _number: int) -> float:
        """Run the statements with the driver alone; lash then reads what it should have written itself."""
        with self.workspace.database(self.template) as url:
            figure = asyncio.run(bare_rate(url, self.lanes[:callers], warm=self.workspace.warm))
            self._check(url, callers)
            return figure

    def limit(self, callers: int, _number: int) -> float:
        """Run the statements with pgbench."""
        assert self.pgbench is not None
        with self.workspace.database(self.template) as url:
            figure = pgbench_rate(self.pgbench, self.workspace, url, self.lanes[:callers], warm=self.workspace.warm)
            self._check(url, callers)
            return figure

    def _check(self, url: str, callers: int) -> None:
        async def check() -> None:
            async with await lash.open(url) as storage:
                await check_all(storage, self.work, lanes=callers, calls=self.calls)

        asyncio.run(check())


@contextlib.contextmanager
def duel(workspace: Workspace, work: Work, calls: int, lanes: int) -> Iterator[Duel]:
    """Prepare the template and record the statements of every lane."""
    calls = workspace.warm + workspace.count(calls)
    with workspace.database() as template:
        asyncio.run(_prepare(template, work, lanes, calls))
        with workspace.database(template) as copy:
            recorded = asyncio.run(_record(copy, work, lanes, calls))
        yield Duel(
            workspace=workspace, work=work, calls=calls, template=template, lanes=recorded, pgbench=find_pgbench()
        )


async def _prepare(url: str, work: Work, lanes: int, calls: int) -> None:
    async with await lash.open(url) as storage:
        await work.prepare(storage, lanes, calls)


async def _record(url: str, work: Work, lanes: int, calls: int) -> list[Lane]:
    pool = await recording_pool(url)
    recorded: list[Lane] = []
    async with pool, await lash.open(url, pool=pool) as storage:
        for lane in range(lanes):
            recorded.append([])
            for number in range(calls):
                RecordingConnection.heard.clear()
                await work.call(storage, lane, number)
                recorded[-1].append(list(RecordingConnection.heard))
    return recorded


def compare(make: Callable[[], Work], calls: int, callers: Sequence[int], workspace: Workspace) -> Report:
    """Measure each number of callers; the first ratio is that of the first number against pgbench."""
    with duel(workspace, make(), calls, max(*callers, _LIMIT_CALLERS)) as all_sides:
        rows: list[Row] = []
        ratios: list[Ratio] = []
        for number in callers:
            measured = _measure(all_sides, number)
            rows += measured
            ratios += [Ratio.of(measured[0], other) for other in reversed(measured[1:])]
        return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


def _measure(all_sides: Duel, callers: int) -> list[Row]:
    sides = [
        ("lash", callers, functools.partial(all_sides.ours, callers)),
        ("asyncpg", callers, functools.partial(all_sides.bare, callers)),
    ]
    if all_sides.pgbench is not None:
        clients = min(callers, _LIMIT_CALLERS)
        sides.append(("pgbench", clients, functools.partial(all_sides.limit, clients)))
    samples: list[Samples] = by_turns([side for _, _, side in sides], all_sides.workspace.rounds)
    return [
        Row(contender=name, case=f"{count} caller{'s' * (count > 1)}", unit=_UNIT, samples=each)
        for (name, count, _), each in zip(sides, samples, strict=True)
    ]


def _register(name: str, what: str, make: Callable[[], Work], calls: int, targets: Sequence[str]) -> None:
    for callers, target in zip((CALLERS, *((number,) for number in CALLERS[1:])), targets, strict=True):
        alone = len(callers) == 1
        register(
            Scenario(
                name=f"{name}-{callers[0]}" if alone else name,
                group="bare driver",
                what=f"{what}, {callers[0]} callers" if alone else f"{what}; 1, 8 and 32 callers",
                run=functools.partial(compare, make, calls, callers),
                target=target,
                part_of=name if alone else None,
            )
        )


_register(
    "postgres-commit",
    "turns committed",
    CommitWork,
    200,
    ("1 caller: at least 0.55 (goal 0.75) of pgbench", "", "at least 1.0 (goal 1.5) of pgbench with 8 clients"),
)
_register("postgres-append", "events appended", AppendWork, 200, ("", "", ""))
_register("postgres-claim", "queued batches claimed", ClaimWork, 100, ("", "", ""))
_register("postgres-steps", "outcomes of steps recorded", StepWork, 200, ("", "", ""))
