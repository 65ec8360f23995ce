"""Tails: the last 20 messages of a long session over one indexed range scan by the bare driver."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import urlsplit

import apsw
import asyncpg
import msgspec

import lash
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import lash_versions, postgres_versions
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
_DRIVER = "driver"
_SET_UP = "driver, set up like lash"
"""With SQLite's guarantee of stable plans: without it, SQLite compiles the scan again for each call."""
_decode = msgspec.json.Decoder().decode
Call = Callable[[], Awaitable[Sequence[object]]]
"""Reads once, and returns what it read of each node."""
Scan = Callable[[], Awaitable[Sequence[str | bytes]]]
"""Reads once, and returns the bodies that it read."""
Side = tuple[str, str]
"""A contender, and whether it decodes."""


async def _fill(storage: lash.Storage, nodes: int) -> None:
    await storage.sessions.create("s")
    for revision, first in enumerate(range(0, nodes, _AT_ONCE)):
        numbers = range(first, min(nodes, first + _AT_ONCE))
        new = [node(f"n{each}", None if each == 0 else f"n{each - 1}", prose(each, 400)) for each in numbers]
        await storage.session("s").commit(commit(revision, *new))


async def _timed(call: Call, calls: int) -> float:
    """Return the median time of a call in microseconds."""
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        read = await call()
        times.append(time.perf_counter() - began)
        assert len(read) == _LAST, f"read {len(read)} nodes, expected {_LAST}"
    return statistics.median(times) * 1e6


def _decoding(call: Scan) -> Call:
    """Return a call that decodes the JSON of every body too, with the same decoder for all contenders."""

    async def decoded() -> Sequence[object]:
        return [_decode(body) for body in await call()]

    return decoded


async def _measure(storage: lash.Storage, drivers: Mapping[str, Scan], workspace: Workspace) -> dict[Side, Samples]:
    """Measure all contenders in turn, and return their figures; the first round warms up."""
    session = storage.session("s")

    async def ours() -> Sequence[bytes]:
        return [node.body for node in await session.raw_path(last=_LAST)]

    sides: dict[Side, Call] = {}
    for contender, call in {"lash": ours, **drivers}.items():
        sides |= {(contender, "decoded"): _decoding(call), (contender, "not decoded"): call}
    calls = workspace.count(_CALLS)
    rounds = [[await _timed(side, calls) for side in sides.values()] for _ in range(workspace.rounds + 1)][1:]
    return {side: Samples(values) for side, values in zip(sides, zip(*rounds, strict=True), strict=True)}


def _apsw(path: str, nodes: int, *, stable_plans: bool) -> tuple[apsw.Connection, Scan]:
    connection = apsw.Connection(path)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, int(stable_plans))
    text = _SCAN.format(table="lash_nodes", key="?", segment="?", after="?", last="?")

    async def scan() -> Sequence[str]:
        rows = connection.execute(text, (1, 1, nodes - _LAST - 1, nodes - 1)).fetchall()
        return [str(body) for _node_id, _parent_node_id, body in rows]

    return connection, scan


async def _on_sqlite(url: str, workspace: Workspace) -> dict[Side, Samples]:
    nodes = workspace.count(_NODES, least=_LAST)
    path = urlsplit(url).path.removeprefix("/")
    async with await lash.open(url) as storage:
        await _fill(storage, nodes)
        plain, scan = _apsw(path, nodes, stable_plans=False)
        set_up, scan_set_up = _apsw(path, nodes, stable_plans=True)
        found = await _measure(storage, {_DRIVER: scan, _SET_UP: scan_set_up}, workspace)
    plain.close()
    set_up.close()
    return found


async def _on_postgres(url: str, workspace: Workspace) -> dict[Side, Samples]:
    nodes = workspace.count(_NODES, least=_LAST)
    options = PostgresOptions.from_url(url)
    text = _SCAN.format(table=f'"{options.schema}".lash_nodes', key="$1", segment="$2", after="$3", last="$4")
    connection = await asyncpg.connect(options.dsn)

    async def scan() -> Sequence[str]:
        rows = await connection.fetch(text, 1, 1, nodes - _LAST - 1, nodes - 1)
        return [row["body"] for row in rows]

    async with await lash.open(url) as storage:
        await _fill(storage, nodes)
        await connection.execute(f'VACUUM ANALYZE "{options.schema}".lash_nodes')
        found = await _measure(storage, {_DRIVER: scan}, workspace)
    await connection.close()
    return found


def run(workspace: Workspace) -> Report:
    """Measure both databases; the worse of the decoded ones, over the driver as it comes, is the headline."""
    rows: list[Row] = []
    ratios: dict[str, list[Ratio]] = {"decoded": [], "not decoded": [], _SET_UP: []}
    for backend, measure in {"sqlite": _on_sqlite, "postgres": _on_postgres}.items():
        with fresh(workspace, backend) as url:
            found = asyncio.run(measure(url, workspace))
        figures = {
            (contender, how): Row(contender=contender, case=f"{backend}, {how}", unit="us", samples=samples)
            for (contender, how), samples in found.items()
        }
        rows += figures.values()
        for (contender, how), row in figures.items():
            if contender != "lash":
                ratios[how if contender == _DRIVER else contender].append(Ratio.of(figures["lash", how], row))
    ordered = [each for some in ratios.values() for each in sorted(some, key=lambda ratio: -ratio.value)]
    return Report(ratios=tuple(ordered), rows=tuple(rows), versions=lash_versions() | postgres_versions(workspace))


register(
    Scenario(
        name="tail-20",
        group="flatness",
        what=f"the last {_LAST} of {_NODES:,} messages: time over that of one range scan by the driver, both with the "
        "JSON of the bodies decoded",
        run=run,
        better=Better.LESS,
        target="at most 1.5",
    )
)
