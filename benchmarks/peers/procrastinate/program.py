"""procrastinate: a queue drained by one worker that runs ten jobs at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import procrastinate

from benchmarks.peers.protocol import Answer, Crew, Question, Watch, serve


async def queue(question: Question) -> Answer:
    """Queue jobs that do nothing, then let one worker do them all."""
    done: list[int] = []
    watch = Watch()
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=question["url"]))

    @app.task(name="nothing")
    async def nothing(number: int) -> None:
        done.append(number)
        if len(done) == question["jobs"]:
            watch.stop()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        begin = time.monotonic()
        for number in range(question["jobs"]):
            await nothing.defer_async(number=number)
        queued_s = time.monotonic() - begin
        watch.start()
        await app.run_worker_async(wait=False, concurrency=10, install_signal_handlers=False)
    return watch.answer(queued_s=queued_s, done=sorted(done))


def _fleet_app(url: str, crew: Crew | None) -> tuple[procrastinate.App, Any]:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

    @app.task(name="job")
    async def job(number: int) -> None:
        assert crew is not None
        crew.done(number)

    return app, job


async def fleet_prepare(question: Question) -> Answer:
    """Create the tables."""
    app, _ = _fleet_app(question["url"], None)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
    return {}


async def fleet_worker(question: Question) -> Answer:
    """Work on up to ten jobs at once until the runner ends the fleet."""
    crew = Crew(question)
    app, _ = _fleet_app(question["url"], crew)
    async with app.open_async():
        running = asyncio.create_task(app.run_worker_async(concurrency=10, install_signal_handlers=False))
        crew.begin()
        while not crew.must_end():
            await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.wait({running})
    return {}


async def fleet_send(question: Question) -> Answer:
    """Queue jobs at a steady rate."""
    crew = Crew(question)
    app, job = _fleet_app(question["url"], None)
    async with app.open_async():
        await job.defer_async(number=-1)
        crew.begin()
        while not crew.may_go():
            await asyncio.sleep(0.01)
        for number in range(question["jobs"]):
            await job.defer_async(number=number)
            await asyncio.sleep(question["every_s"])
    return {}


_FLEET = {"fleet_prepare": fleet_prepare, "fleet_worker": fleet_worker, "fleet_send": fleet_send}
serve(("procrastinate",), {"queue": queue, **_FLEET})
