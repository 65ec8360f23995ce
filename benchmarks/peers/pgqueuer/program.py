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

from benchmarks.peers.protocol import Answer, Question, Watch, serve


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


serve(("pgqueuer", "asyncpg"), {"queue": queue})
