"""procrastinate: a queue drained by one worker that runs ten jobs at once."""

from __future__ import annotations

import time

import procrastinate

from benchmarks.peers.protocol import Answer, Question, Watch, serve


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


serve(("procrastinate",), {"queue": queue})
