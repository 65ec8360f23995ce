"""Chains of forks: what the deepest of many forks of forks costs over the first one."""

from __future__ import annotations

import asyncio
import functools
import statistics
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import apsw
import asyncpg

import lash
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from lash.postgres.engine.options import PostgresOptions
from tests.factories.session import node

_FORKS = 500
_CALLS = 50
_ROWS = "SELECT (SELECT count(*) FROM lash_runs) + (SELECT count(*) FROM lash_inherited)"
Call = Callable[[str], Awaitable[object]]
"""Does something with one session; the text is new for each call."""


async def _fill(storage: lash.Storage, forks: int) -> None:
    """Fork a session, then the fork, and so on, each with a node of its own."""
    await storage.sessions.create("fork-0")
    await storage.session("fork-0").append([node("node-0")])
    for number in range(1, forks + 1):
        await storage.sessions.fork(f"fork-{number - 1}", f"fork-{number}")
        await storage.session(f"fork-{number}").append([node(f"node-{number}")])


def _calls(storage: lash.Storage, number: int) -> dict[str, Call]:
    session = storage.session(f"fork-{number}")
    return {
        "append": lambda text: session.append([node(text)]),
        "own node": lambda _: session.node(f"node-{number}"),
        "node of the root": lambda _: session.node("node-0"),
        "last 20 nodes": lambda _: session.raw_path(last=20),
    }


async def _took_us(call: Call, calls: int, name: str) -> float:
    taken = []
    for number in range(calls):
        began = time.perf_counter()
        await call(f"{name}-{number}")
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


async def _measure(url: str, forks: int, calls: int, rounds: int) -> dict[str, tuple[Samples, Samples]]:
    """Measure the deepest fork and the first one in turn; the first round warms up."""
    async with await lash.open(url) as storage:
        await _fill(storage, forks)
        sides = [_calls(storage, number) for number in (forks, 1)]
        found: dict[str, tuple[list[float], list[float]]] = {case: ([], []) for case in sides[0]}
        for each in range(rounds + 1):
            for case, figures in found.items():
                for side, values in zip(sides, figures, strict=True):
                    values.append(await _took_us(side[case], calls, f"{case}-{each}"))
    return {case: (Samples(tuple(deep[1:])), Samples(tuple(first[1:]))) for case, (deep, first) in found.items()}


async def _rows(url: str) -> int:
    if url.startswith("sqlite"):
        connection = apsw.Connection(urlsplit(url).path.removeprefix("/"))
        count = int(connection.execute(_ROWS).get)
        connection.close()
        return count
    options = PostgresOptions.from_url(url)
    server = await asyncpg.connect(options.dsn, server_settings={"search_path": f'"{options.schema}"'})
    try:
        return int(await server.fetchval(_ROWS))
    finally:
        await server.close()


def run(workspace: Workspace) -> Report:
    """Measure both databases; the append that suffers most is the headline."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    notes: list[str] = []
    forks, calls = workspace.count(_FORKS, least=3), workspace.count(_CALLS, least=3)
    for backend in ("sqlite", "postgres"):
        with fresh(workspace, backend) as url:
            found = asyncio.run(_measure(url, forks, calls, workspace.rounds))
            notes.append(f"{backend}: {asyncio.run(_rows(url)):,} rows say what {forks} forks of forks inherit")
        for case, (deep, first) in found.items():
            row = functools.partial(Row, contender="lash", unit="us")
            pair = [
                row(case=f"{backend}, {case}, fork {forks}", samples=deep),
                row(case=f"{backend}, {case}, fork 1", samples=first),
            ]
            rows += pair
            ratios.append(Ratio.of(*pair))
    ratios.sort(key=lambda ratio: ("append" not in ratio.case, -ratio.value))
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace), notes=tuple(notes))


register(
    Scenario(
        name="fork-chain",
        group="flatness",
        what=f"a chain of {_FORKS} forks of forks: an append, a node and the last 20 nodes of the deepest fork over "
        "those of the first",
        run=run,
        better=Better.LESS,
    )
)
