"""The price of a shared storage: a call from another event loop, or from a plain thread, over one of an own storage."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable

import lash
import lash.sync
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import lash_versions, postgres_versions
from benchmarks.kit.measure import by_turns
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace

_CALLS = 2_000
_SIDES = ("lash.open", "lash.shared", "lash.sync.shared")


async def _awaited(calls: int, call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        await call()
    return (time.perf_counter() - began) / calls * 1e6


async def _in_a_loop(side: str, url: str, calls: int) -> float:
    """Return the microseconds of one read from an event loop of its own."""
    storage = await lash.open(url) if side == "lash.open" else lash.shared(url)
    await storage.sessions.create("s")
    read = storage.session("s").revision
    await _awaited(calls // 10 + 1, read)
    try:
        return await _awaited(calls, read)
    finally:
        await storage.close()


def _in_a_thread(url: str, calls: int) -> float:
    storage = lash.sync.shared(url)
    storage.sessions.create("s")
    read = storage.session("s").revision
    for _ in range(calls // 10 + 1):
        read()
    began = time.perf_counter()
    for _ in range(calls):
        read()
    taken = (time.perf_counter() - began) / calls * 1e6
    storage.close()
    return taken


def call_us(workspace: Workspace, backend: str, side: str, _number: int) -> float:
    """Return the microseconds of a small read."""
    calls = workspace.count(_CALLS, least=5)
    with fresh(workspace, backend) as url:
        if side == "lash.sync.shared":
            return _in_a_thread(url, calls)
        return asyncio.run(_in_a_loop(side, url, calls))


def shared_call(workspace: Workspace) -> Report:
    """Measure the same read through an own storage and through the shared one, on both databases."""
    cases = [(backend, side) for backend in ("sqlite", "postgres") for side in _SIDES]
    samples = by_turns([functools.partial(call_us, workspace, *each) for each in cases], workspace.rounds)
    rows = [
        Row(contender=side, case=f"{backend}, one read", unit="µs", samples=each)
        for (backend, side), each in zip(cases, samples, strict=True)
    ]
    ratios = [Ratio.of(rows[first + number], rows[first]) for first in (0, 3) for number in (1, 2)]
    versions = lash_versions() | postgres_versions(workspace)
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=versions)


register(
    Scenario(
        name="shared-call",
        group="footprint",
        what="a small read through `lash.shared`, over one through `lash.open`",
        run=shared_call,
        better=Better.LESS,
    )
)
