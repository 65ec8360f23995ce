"""PgQueuer: a queue drained by one worker, in batches of ten as by default."""

from __future__ import annotations

import asyncio
import time

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from benchmarks.peers.protocol import Answer, Crew, Question, Watch, serve


async def queue(question: Question) -> Answer:
    """Queue jobs that do nothing, then let one worker do them all."""
    done: list[int] = []
    watch = Watch()
    connection = await asyncpg.connect(question["url"])
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    begin = time.monotonic()
    for number in range(question["jobs"]):
        await queries.enqueue("nothing", str(number).encode())
    queued_s = time.monotonic() - begin
    async with asyncpg.create_pool(question["url"], min_size=4, max_size=16) as pool:
        worker = PgQueuer(AsyncpgPoolDriver(pool) if question["variant"] == "pool" else AsyncpgDriver(connection))

        @worker.entrypoint("nothing")
        async def nothing(job: Job) -> None:
            done.append(int(job.payload or b""))

        watch.start()
        running = asyncio.create_task(worker.qm.run(mode=QueueExecutionMode.drain))
        while len(done) < question["jobs"] and not running.done():
            await asyncio.sleep(0.002)
        watch.stop()
        await running
    await connection.close()
    return watch.answer(queued_s=queued_s, done=sorted(done))


async def fleet_prepare(question: Question) -> Answer:
    """Create the tables."""
    connection = await asyncpg.connect(question["url"])
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()
    return {}


async def fleet_worker(question: Question) -> Answer:
    """Work, as `pgq run` does, until the runner ends the fleet."""
    crew = Crew(question)
    connection = await asyncpg.connect(question["url"])
    worker = PgQueuer(AsyncpgDriver(connection))

    @worker.entrypoint("job")
    async def job(job: Job) -> None:
        crew.done(int(job.payload or b""))

    running = asyncio.create_task(worker.run())
    crew.begin()
    while not crew.must_end():
        await asyncio.sleep(0.1)
    worker.shutdown.set()
    await running
    await connection.close()
    return {}


async def fleet_send(question: Question) -> Answer:
    """Queue jobs at a steady rate."""
    crew = Crew(question)
    connection = await asyncpg.connect(question["url"])
    queries = Queries(AsyncpgDriver(connection))
    await queries.enqueue("job", b"-1")
    crew.begin()
    while not crew.may_go():
        await asyncio.sleep(0.01)
    for number in range(question["jobs"]):
        await queries.enqueue("job", str(number).encode())
        await asyncio.sleep(question["every_s"])
    await connection.close()
    return {}


_FLEET = {"fleet_prepare": fleet_prepare, "fleet_worker": fleet_worker, "fleet_send": fleet_send}
serve(("pgqueuer", "asyncpg"), {"queue": queue, **_FLEET})
