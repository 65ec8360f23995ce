"""How long a waiter waits beyond the acknowledgement of what it waits for, on each backend.

Run with ``python -m benchmarks.waiting [--json] [--events N] [--waiters N]``. The time runs from the moment the append
returned to its caller until the wait returned to its own; across processes both read the machine's monotonic clock.
A crowd of waiters for other processes stands beside the one that is measured in the second figure of each kind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import lash
from lash.model.event import EventDraft, EventType
from lash.model.process import ExternalInput, Recovery, Registration
from lash.testing.postgres_server import PostgresServer

_TICK = EventDraft(event_type="tick")
_SETTLE_S = 0.03

Append = Callable[[], Awaitable[int]]
"""Appends a tick to process ``p`` and returns when that was acknowledged, in nanoseconds."""


def _registration(process_id: str) -> Registration:
    types = (EventType(name="tick"),)
    return Registration(process_id=process_id, input=ExternalInput(), recovery=Recovery.EXTERNAL, event_types=types)


async def delays(storage: lash.Storage, append: Append, events: int) -> list[float]:
    """Return how many milliseconds after each append the waiter had its event."""
    taken: list[float] = []
    for _ in range(events):
        begin = (await storage.events.last_sequences(["p"]))["p"]

        async def wait(behind: int = begin) -> int:
            await storage.waiter.wait_event_after("p", "tick", behind)
            return time.monotonic_ns()

        waiting = asyncio.create_task(wait())
        # Long enough for the waiter to be parked; what it costs to get there is not measured.
        await asyncio.sleep(_SETTLE_S)
        acknowledged = await append()
        taken.append(max(0, await waiting - acknowledged) / 1e6)
    return taken


@contextlib.asynccontextmanager
async def crowd(storage: lash.Storage, size: int) -> AsyncIterator[None]:
    """Let many wait for processes to which nothing happens."""
    ids = [f"idle{number}" for number in range(size)]
    await asyncio.gather(*(storage.processes.register(_registration(each)) for each in ids))
    waiting = [asyncio.create_task(storage.waiter.await_outcome(each)) for each in ids]
    await asyncio.sleep(1)
    yield
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


@contextlib.asynccontextmanager
async def other_process(url: str) -> AsyncIterator[Append]:
    """Append from a process of its own."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.waiting", "--append-to", url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    told, answers = child.stdin, child.stdout
    await answers.readline()

    async def append() -> int:
        told.write(b"\n")
        return int(await answers.readline())

    try:
        yield append
    finally:
        told.close()
        await child.wait()


async def append_as_told(url: str) -> None:
    """Append a tick for each line of the input and print when it was acknowledged."""
    async with await lash.open(url) as storage:
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            await storage.events.append("p", _TICK)
            print(time.monotonic_ns(), flush=True)


async def measure(url: str, events: int, waiters: int) -> dict[str, float]:
    """Measure one backend, in milliseconds."""
    results: dict[str, float] = {}
    async with await lash.open(url) as storage, other_process(url) as append_there:
        await storage.processes.register(_registration("p"))

        async def append_here() -> int:
            await storage.events.append("p", _TICK)
            return time.monotonic_ns()

        for place, append in (("in process", append_here), ("across processes", append_there)):
            _note(results, place, await delays(storage, append, events))
            async with crowd(storage, waiters):
                _note(results, f"{place}, beside {waiters} waiters", await delays(storage, append, events))
    return results


def _note(results: dict[str, float], what: str, taken: list[float]) -> None:
    results[f"{what}: median ms"] = round(statistics.median(taken), 2)
    results[f"{what}: worst of {len(taken)} ms"] = round(max(taken), 2)


def main() -> None:
    """Measure both backends and print what came out."""
    parser = argparse.ArgumentParser(description="Delays of waiters, measured in one run.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--events", type=int, default=100, help="how many events a figure is made of")
    parser.add_argument("--waiters", type=int, default=1_000, help="how many others wait in the crowd")
    parser.add_argument("--append-to", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.append_to:
        asyncio.run(append_as_told(options.append_to))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lash.db"
        results = {"sqlite": asyncio.run(measure(f"sqlite:///{path}", options.events, options.waiters))}
    with PostgresServer(durable=True) as server:
        results["postgres"] = asyncio.run(measure(server.url, options.events, options.waiters))
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for backend, figures in results.items():
        print(backend)
        for what, figure in figures.items():
            print(f"  {what:<65} {figure:>8}")


if __name__ == "__main__":
    main()
