"""SQLite: lash against the driver alone, and against C, doing the same statements with the same durability."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import lash
from benchmarks.kit.machine import lash_versions
from benchmarks.kit.measure import by_turns
from benchmarks.kit.native import build
from benchmarks.kit.registry import Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.sqlite_trace import Transactions, bare_rate, native_rate, recording, write_trace
from benchmarks.kit.works import (
    AppendWork,
    CommitWork,
    StepWork,
    Work,
    check_all,
    in_sequence,
    rate,
    rate_in_sequence,
)
from benchmarks.kit.workspace import Workspace

_UNIT = "calls/s"
_LANES = 16
Do = Callable[..., Coroutine[None, None, float]]


@dataclasses.dataclass(kw_only=True)
class Duel:
    """One kind of work on both sides: the template, the statements, and a rate for each."""

    workspace: Workspace
    work: Work
    calls: int
    template: Path
    transactions: Transactions
    trace: Path
    native: Path | None
    native_version: str = ""

    @property
    def warm(self) -> int:
        return _LANES * self.workspace.warm

    def ours(self, do: Do, _number: int) -> float:
        """Do the work with lash on a fresh copy, and look whether it was done."""
        with self.workspace.file(self.template) as path:
            return asyncio.run(self._ours(path, do))

    async def _ours(self, path: Path, do: Do) -> float:
        async with await lash.open(f"sqlite:///{path}") as storage:
            figure = await do(storage, self.work, lanes=_LANES, calls=self.calls, warm=self.workspace.warm)
            await check_all(storage, self.work, lanes=_LANES, calls=self.calls)
            return figure

    def bare(self, group: int, _number: int) -> float:
        """Run the statements with the driver alone; lash then reads what it should have written itself."""
        with self.workspace.file(self.template) as path:
            figure = bare_rate(path, self.transactions, warm=self.warm, group=group)
            self._check(path)
            return figure

    def c(self, group: int, _number: int) -> float:
        """Run the statements in C."""
        assert self.native is not None
        with self.workspace.file(self.template) as path:
            figure, self.native_version = native_rate(self.native, path, self.trace, warm=self.warm, group=group)
            self._check(path)
            return figure

    def _check(self, path: Path) -> None:
        async def check() -> None:
            async with await lash.open(f"sqlite:///{path}") as storage:
                await check_all(storage, self.work, lanes=_LANES, calls=self.calls)

        asyncio.run(check())

    def versions(self) -> dict[str, str]:
        extra = {"sqlite (C)": self.native_version} if self.native_version else {}
        return lash_versions("apsw", "sqlite") | extra


@contextlib.contextmanager
def duel(workspace: Workspace, work: Work, calls: int) -> Iterator[Duel]:
    """Prepare the template and record the statements of all calls, done one after the other."""
    calls = workspace.warm + workspace.count(calls)
    with workspace.file() as template, workspace.file() as recorded:
        asyncio.run(_prepare(template, work, calls))
        recorded.write_bytes(template.read_bytes())
        transactions = asyncio.run(_record(recorded, work, calls))
        trace = workspace.new_path(".trace")
        write_trace(trace, transactions)
        yield Duel(
            workspace=workspace,
            work=work,
            calls=calls,
            template=template,
            transactions=transactions,
            trace=trace,
            native=build("replay_sqlite", workspace.directory, "-lsqlite3"),
        )


async def _prepare(path: Path, work: Work, calls: int) -> None:
    async with await lash.open(f"sqlite:///{path}") as storage:
        await work.prepare(storage, _LANES, calls)


async def _record(path: Path, work: Work, calls: int) -> Transactions:
    with recording() as transactions:
        async with await lash.open(f"sqlite:///{path}") as storage:
            opened = len(transactions)
            await in_sequence(storage, work, _LANES, range(calls))
            return transactions[opened : opened + _LANES * calls]


def sequential(make: Callable[[], Work], calls: int, workspace: Workspace) -> Report:
    """One caller, against the driver and C, one transaction for each call."""
    with duel(workspace, make(), calls) as both:
        sides = [functools.partial(both.ours, rate_in_sequence), functools.partial(both.bare, 1)]
        names = ["lash", "apsw"]
        if both.native is not None:
            sides.append(functools.partial(both.c, 1))
            names.append("C")
        samples = by_turns(sides, workspace.rounds)
        rows = [
            Row(contender=name, case="1 caller", unit=_UNIT, samples=each)
            for name, each in zip(names, samples, strict=True)
        ]
        ratios = tuple(Ratio.of(rows[0], other) for other in rows[1:])
        return Report(ratios=ratios, rows=tuple(rows), versions=both.versions())


def together(make: Callable[[], Work], calls: int, workspace: Workspace) -> Report:
    """Sixteen callers, against what the driver does one after the other, and sixteen at a time."""
    with duel(workspace, make(), calls) as both:
        sides = [
            ("lash", f"{_LANES} callers", functools.partial(both.ours, rate)),
            ("apsw", "one after the other", functools.partial(both.bare, 1)),
            ("apsw", f"{_LANES} in a transaction", functools.partial(both.bare, _LANES)),
        ]
        if both.native is not None:
            sides.append(("C", f"{_LANES} in a transaction", functools.partial(both.c, _LANES)))
        samples = by_turns([side for _, _, side in sides], workspace.rounds)
        rows = [
            Row(contender=name, case=case, unit=_UNIT, samples=each)
            for (name, case, _), each in zip(sides, samples, strict=True)
        ]
        ratios = tuple(Ratio.of(rows[0], other) for other in rows[1:])
        return Report(ratios=ratios, rows=tuple(rows), versions=both.versions())


register(
    Scenario(
        name="sqlite-commit",
        group="bare driver",
        what="turns committed one after the other, full durability",
        run=functools.partial(sequential, CommitWork, 60),
        target="at least 0.65 (goal 0.8)",
    )
)
register(
    Scenario(
        name="sqlite-commit-16",
        group="bare driver",
        what="turns of 16 sessions at once, against the driver's sequential rate",
        run=functools.partial(together, CommitWork, 60),
        target="at least 2 (goal 3)",
    )
)
register(
    Scenario(
        name="sqlite-append",
        group="bare driver",
        what="events appended one after the other",
        run=functools.partial(sequential, AppendWork, 100),
    )
)
register(
    Scenario(
        name="sqlite-steps",
        group="bare driver",
        what="outcomes of steps recorded one after the other",
        run=functools.partial(sequential, StepWork, 100),
    )
)
