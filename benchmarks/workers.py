"""How soon a worker begins work that another process has queued, and how soon the answer is back, on each backend.

Run with ``python -m benchmarks.workers [--json] [--events N] [--parked N]``. The first figures run from the moment the
send was acknowledged to its caller until the agent, or the process, was entered in the worker's process; both read the
machine's monotonic clock. Those of ``ask`` run from the call until the reply was in the caller's hands. In the second
figure of each kind some processes are parked beside it.
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
from lash.testing.postgres_server import PostgresServer

_SETTLE_S = 0.05

Tell = Callable[[str], Awaitable[int]]
"""Tells the other process what to do, and returns the number with which it answers."""


def application(url: str, *, worker: bool, entered: Callable[[str], None]) -> lash.App:
    """Return the application of both sides."""
    app = lash.App(url, worker=worker)

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        entered(turn.text)
        return "ok"

    @app.process
    async def process(ctx: lash.Context, name: str) -> None:  # noqa: ARG001 (it does nothing)
        entered(name)

    @app.process
    async def sleeper(ctx: lash.Context) -> None:
        await ctx.sleep(days=1)

    return app


class Arrivals:
    """When each piece of work was begun."""

    def __init__(self) -> None:
        self._moments: dict[str, asyncio.Future[int]] = {}

    def expect(self, name: str) -> asyncio.Future[int]:
        self._moments[name] = asyncio.get_running_loop().create_future()
        return self._moments[name]

    def enter(self, name: str) -> None:
        moment = self._moments.get(name)
        if moment is not None and not moment.done():
            moment.set_result(time.monotonic_ns())


async def delays(arrivals: Arrivals, tell: Tell, kind: str, events: int) -> list[float]:
    """Return how many milliseconds after each acknowledgement the work was begun."""
    taken: list[float] = []
    for number in range(events):
        name = f"{kind} {number}"
        entered = arrivals.expect(name)
        # Long enough for the worker to be idle again.
        await asyncio.sleep(_SETTLE_S)
        acknowledged = await tell(f"{kind} {name}")
        taken.append(max(0, await entered - acknowledged) / 1e6)
    return taken


async def answers(tell: Tell, events: int) -> list[float]:
    """Return how many milliseconds each question took in the other process."""
    taken: list[float] = []
    for _ in range(events):
        await asyncio.sleep(_SETTLE_S)
        taken.append(await tell("ask x") / 1e6)
    return taken


@contextlib.asynccontextmanager
async def other_process(url: str) -> AsyncIterator[Tell]:
    """Send from a process of its own."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.workers", "--send-to", url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    told, said = child.stdin, child.stdout
    await said.readline()

    async def tell(order: str) -> int:
        told.write(f"{order}\n".encode())
        return int(await said.readline())

    try:
        yield tell
    finally:
        told.close()
        await child.wait()


async def send_as_told(url: str) -> None:
    """Do what each line of the input says, and print when that was acknowledged or how long it took."""
    app = application(url, worker=False, entered=lambda _: None)
    process = next(each for (name, _), each in app._definitions.processes.items() if name == "process")  # noqa: SLF001
    async with app:
        session = app.session("bench")
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            kind, _, rest = line.strip().partition(" ")
            began = time.monotonic_ns()
            if kind == "ask":
                await session.ask(rest)
                print(time.monotonic_ns() - began, flush=True)
                continue
            if kind == "message":
                await session.send(rest)
            else:
                await app.start(process, rest)
            print(time.monotonic_ns(), flush=True)


async def measure(url: str, events: int, parked: int) -> dict[str, float]:
    """Measure one backend, in milliseconds."""
    results: dict[str, float] = {}
    arrivals = Arrivals()
    app = application(url, worker=True, entered=arrivals.enter)
    sleeper = next(each for (name, _), each in app._definitions.processes.items() if name == "sleeper")  # noqa: SLF001
    async with app, other_process(url) as tell:
        for place in ("", f", beside {parked} parked"):
            if place:
                await asyncio.gather(*(app.start(sleeper) for _ in range(parked)))
                await asyncio.sleep(parked / 100)
            for kind, what in (("message", "message to turn"), ("process", "start to process")):
                _note(results, f"{what}{place}", await delays(arrivals, tell, kind, events))
            _note(results, f"ask to reply{place}", await answers(tell, events))
    return results


def _note(results: dict[str, float], what: str, taken: list[float]) -> None:
    results[f"{what}: median ms"] = round(statistics.median(taken), 2)
    results[f"{what}: worst of {len(taken)} ms"] = round(max(taken), 2)


def main() -> None:
    """Measure both backends and print what came out."""
    parser = argparse.ArgumentParser(description="Reaction of workers, measured in one run.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--events", type=int, default=100, help="how many events a figure is made of")
    parser.add_argument("--parked", type=int, default=500, help="how many processes are parked beside it")
    parser.add_argument("--send-to", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send_to:
        asyncio.run(send_as_told(options.send_to))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lash.db"
        results = {"sqlite": asyncio.run(measure(f"sqlite:///{path}", options.events, options.parked))}
    with PostgresServer(durable=True) as server:
        results["postgres"] = asyncio.run(measure(server.url, options.events, options.parked))
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for backend, figures in results.items():
        print(backend)
        for what, figure in figures.items():
            print(f"  {what:<65} {figure:>8}")


if __name__ == "__main__":
    main()
