"""What one turn, one step and one event cost: statements, bytes of log, processor time. For docs/internals/scaling.md.

Run with ``python -m benchmarks.costs [--json] [--count N]``. Counts and bytes are the same on every machine; times are
of this one, and of one caller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import msgspec

import lash
from benchmarks.kit.disk import log_bytes
from benchmarks.kit.processor import server_pid, server_s
from benchmarks.kit.text import prose
from lash.model.process.event import EventDraft
from lash.testing.postgres_server import PostgresServer
from tests.factories.process import NOTE, external

_STEPS = 20
Job = Callable[[int], Awaitable[object]]


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of one operation."""

    operation: str
    backend: str
    statements: float
    log_bytes: int
    client_us: int
    server_us: int


class Meter:
    """Reads what was used so far: statements, bytes written to the log, time of this process and of the server."""

    def __init__(self, file: Path, connection: asyncpg.Connection[asyncpg.Record] | None, server: int | None) -> None:
        self.statements: Counter[str] = Counter()
        self._file = file
        self._connection = connection
        self._server = server

    def __call__(self, name: str) -> None:
        self.statements[name] += 1

    async def read(self) -> tuple[int, int, float, float]:
        return self.statements.total(), await self._log_bytes(), time.process_time(), self._server_s()

    async def _log_bytes(self) -> int:
        if self._connection is not None:
            place = await self._connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            return int(place)
        return log_bytes(self._file)

    def _server_s(self) -> float:
        return 0.0 if self._server is None else server_s(self._server)


async def measured(meter: Meter, operation: str, backend: str, job: Job, *, count: int, parts: int = 1) -> Cost:
    """Do a job so often, after some that are not counted, and return the mean of its parts."""
    for number in range(10):
        await job(-1 - number)
    before = await meter.read()
    for number in range(count):
        await job(number)
    after = await meter.read()
    statements, log_bytes, client_s, server_s = (b - a for a, b in zip(before, after, strict=True))
    each = count * parts
    return Cost(
        operation=operation,
        backend=backend,
        statements=round(statements / each, 2),
        log_bytes=round(log_bytes / each),
        client_us=round(client_s / each * 1e6),
        server_us=round(server_s / each * 1e6),
    )


@asynccontextmanager
async def application(url: str, meter: Meter) -> AsyncIterator[tuple[lash.App, Job]]:
    """Give an application with an agent that answers at once, and what runs a process of steps."""
    app = lash.App(url, worker=False, hooks=[_Statements(meter)])

    @app.agent
    async def answering(turn: lash.Turn) -> str:
        return prose(turn.text, 1_000)

    async def tool(number: int) -> str:
        return prose(number, 1_000)

    @app.process
    async def stepping(ctx: lash.Context) -> None:
        for number in range(_STEPS):
            await ctx.step("tool", tool, number)

    async def steps(_: int) -> None:
        await app.start(stepping)
        await app.drain()

    async with app:
        yield app, steps


class _Statements(lash.Hook):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def statement(self, name: str) -> None:
        self._meter(name)


async def costs(url: str, backend: str, server: int | None, count: int) -> list[Cost]:
    """Measure all operations on one backend."""
    connection = await asyncpg.connect(url) if backend == "postgres" else None
    meter = Meter(Path(url.partition("?")[0].removeprefix("sqlite:///")), connection, server)
    try:
        async with application(url, meter) as (app, steps):
            session = app.session("s")

            async def turn(number: int) -> None:
                await session.send(prose(number, 200), key=str(number))
                await app.drain()

            await app.storage.processes.register(external("log"))

            async def event(number: int) -> None:
                draft = EventDraft(event_type=NOTE.name, payload={"text": prose(number, 1_000)})
                await app.storage.events.append("log", draft)

            return [
                await measured(meter, "turn", backend, turn, count=count),
                await measured(meter, "step", backend, steps, count=max(2, count // _STEPS), parts=_STEPS),
                await measured(meter, "event", backend, event, count=count),
            ]
    finally:
        if connection is not None:
            await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--count", type=int, default=200, help="operations of each kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        found = asyncio.run(
            costs(f"sqlite:///{directory}/costs.db?checkpoint_pages=1000000", "sqlite", None, options.count)
        )
    with PostgresServer(durable=True) as server:
        found += asyncio.run(costs(server.url, "postgres", server_pid(server), options.count))
    if options.json:
        print(json.dumps(msgspec.to_builtins(found)))
        return
    print(f"{'':18}{'statements':>12}{'log bytes':>12}{'client µs':>12}{'server µs':>12}")
    for each in found:
        name = f"{each.backend} {each.operation}"
        print(f"{name:18}{each.statements:12}{each.log_bytes:12,}{each.client_us:12,}{each.server_us:12,}")


if __name__ == "__main__":
    main()
