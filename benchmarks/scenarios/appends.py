"""Appends: many callers that append to one session over one caller that does the same work."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Sequence

import lash
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from tests.factories.session import node

_APPENDS = 640
_CALLERS = 32
_STORAGES = 2


async def _caller(storage: lash.Storage, name: str, appends: int) -> None:
    session = storage.session("s")
    for number in range(appends):
        await session.append([node(f"{name}-{number}", text="x" * 200)])


async def _took(storages: Sequence[lash.Storage], name: str, appends: int, callers: int) -> float:
    """Return how many milliseconds so many callers on one session take for all appends together."""
    began = time.perf_counter()
    shares = (
        _caller(storages[number % len(storages)], f"{name}-{number}", appends // callers) for number in range(callers)
    )
    await asyncio.gather(*shares)
    return (time.perf_counter() - began) * 1_000


async def _measure(url: str, appends: int, rounds: int) -> dict[str, Samples]:
    """Measure one caller, many of one storage, and as many of two, in turn."""
    storages = [await lash.open(url) for _ in range(_STORAGES)]
    sides = {
        "1 caller": (storages[:1], 1),
        f"{_CALLERS} callers": (storages[:1], _CALLERS),
        f"{_CALLERS} callers of {_STORAGES} storages": (storages, _CALLERS),
    }
    try:
        await storages[0].sessions.create("s")
        found: dict[str, list[float]] = {case: [] for case in sides}
        for each in range(rounds + 1):
            for case, (used, callers) in sides.items():
                found[case].append(await _took(used, f"{each} {case}", appends, callers))
        # The first round warms up.
        return {case: Samples(tuple(values[1:])) for case, values in found.items()}
    finally:
        for storage in storages:
            await storage.close()


def run(workspace: Workspace) -> Report:
    """Measure both databases; the worse one is the headline."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    appends = max(1, workspace.count(_APPENDS) // _CALLERS) * _CALLERS
    for backend in ("sqlite", "postgres"):
        with fresh(workspace, backend) as url:
            found = asyncio.run(_measure(url, appends, workspace.rounds))
        of = functools.partial(Row, contender="lash", unit="ms")
        alone, *others = (of(case=f"{backend}, {case}", samples=samples) for case, samples in found.items())
        rows += [alone, *others]
        ratios += [Ratio.of(other, alone) for other in others]
    ratios.sort(key=lambda ratio: -ratio.value)
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


register(
    Scenario(
        name="append-32",
        group="flatness",
        what=f"{_APPENDS} appends to one session: time of {_CALLERS} callers over that of one",
        run=run,
        better=Better.LESS,
        target="at most 1.3",
    )
)
