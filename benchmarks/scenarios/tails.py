"""Tails: the last 20 messages of a long session over one indexed range scan by the bare driver."""

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
from benchmarks.kit.text import prose
from benchmarks.kit.workspace import Workspace
from lash.postgres.engine.options import PostgresOptions
from tests.factories.session import commit, node

_NODES = 100_000
_AT_ONCE = 5_000
_LAST = 20
_CALLS = 500
_SCAN = (
    "SELECT node_id, parent_node_id, body FROM {table} "
    "WHERE session_key = {key} AND segment = {segment} AND depth > {after} AND depth <= {last} ORDER BY depth"
)
Call = Callable[[], Awaitable[int]]
"""Reads once, and returns how many nodes it read."""


async def _fill(storage: lash.Storage, nodes: int) -> None:
    await storage.sessions.create("s")
    for revision, first in enumerate(range(0, nodes, _AT_ONCE)):
        numbers = range(first, min(nodes, first + _AT_ONCE))
        new = [node(f"n{each}", None if each == 0 else f"n{each - 1}", prose(each, 400)) for each in numbers]
        await storage.session("s").commit(commit(revision, *new))


async def _ours(storage: lash.Storage) -> int:
    return len(await storage.session("s").raw_path(last=_LAST))


async def _timed(call: Call, calls: int) -> float:
    """Return the median time of a call in microseconds."""
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        read = await call()
        times.append(time.perf_counter() - began)
        assert read == _LAST, f"read {read} nodes, expected {_LAST}"
    return statistics.median(times) * 1e6


async def _measure(storage: lash.Storage, bare: Call, workspace: Workspace) -> tuple[Samples, Samples]:
    calls = workspace.count(_CALLS)
    sides = (functools.partial(_ours, storage), bare)
    # The first round warms up.
    rounds = [[await _timed(side, calls) for side in sides] for _ in range(workspace.rounds + 1)][1:]
    ours, other = (Samples(tuple(values)) for values in zip(*rounds, strict=True))
    return ours, other


async def _on_sqlite(url: str, workspace: Workspace) -> tuple[Samples, Samples]:
    nodes = workspace.count(_NODES, least=_LAST)
    connection = apsw.Connection(urlsplit(url).path.removeprefix("/"))
    text = _SCAN.format(table="lash_nodes", key="?", segment="?", after="?", last="?")

    async def bare() -> int:
        return len(connection.execute(text, (1, 1, nodes - _LAST - 1, nodes - 1)).fetchall())

    async with await lash.open(url) as storage:
        await _fill(storage, nodes)
        found = await _measure(storage, bare, workspace)
    connection.close()
    return found


async def _on_postgres(url: str, workspace: Workspace) -> tuple[Samples, Samples]:
    nodes = workspace.count(_NODES, least=_LAST)
    options = PostgresOptions.from_url(url)
    text = _SCAN.format(table=f'"{options.schema}".lash_nodes', key="$1", segment="$2", after="$3", last="$4")
    connection = await asyncpg.connect(options.dsn)

    async def bare() -> int:
        return len(await connection.fetch(text, 1, 1, nodes - _LAST - 1, nodes - 1))

    async with await lash.open(url) as storage:
        await _fill(storage, nodes)
        await connection.execute(f'VACUUM ANALYZE "{options.schema}".lash_nodes')
        found = await _measure(storage, bare, workspace)
    await connection.close()
    return found


def run(workspace: Workspace) -> Report:
    """Measure both databases; the worse one is the headline."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    for backend, measure in {"sqlite": _on_sqlite, "postgres": _on_postgres}.items():
        with fresh(workspace, backend) as url:
            ours, other = asyncio.run(measure(url, workspace))
        of = functools.partial(Row, case=backend, unit="us")
        pair = (of(contender="lash", samples=ours), of(contender="driver", samples=other))
        rows += pair
        ratios.append(Ratio.of(*pair))
    ratios.sort(key=lambda ratio: -ratio.value)
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


register(
    Scenario(
        name="tail-20",
        group="flatness",
        what=f"the last {_LAST} of {_NODES:,} messages, not decoded: time over that of one range scan by the driver",
        run=run,
        better=Better.LESS,
        target="at most 1.5",
    )
)
