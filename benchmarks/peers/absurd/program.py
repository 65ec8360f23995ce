"""absurd: tasks of ten steps, and a queue, with one asynchronous worker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.peers.protocol import Answer, Hang, Question, Watch, digest, serve

_POLL_S = 0.01
_BATCH = 50
_CLAIM_S = 5
"""Shorter claims are lost by workers that are merely busy."""


async def _client(url: str) -> AsyncAbsurd:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(BUNDLED_SCHEMA_SQL)
    client = AsyncAbsurd(url, queue_name="bench")
    await client.create_queue("bench")
    return client


async def _work(url: str, tasks: dict[str, Any]) -> tuple[AsyncAbsurd, asyncio.Task[None]]:
    worker = AsyncAbsurd(url, queue_name="bench")
    for name, task in tasks.items():
        worker.register_task(name)(task)
    working = asyncio.create_task(worker.start_worker(concurrency=_BATCH, batch_size=_BATCH, poll_interval=_POLL_S))
    return worker, working


async def _end(client: AsyncAbsurd, worker: AsyncAbsurd, working: asyncio.Task[None]) -> None:
    worker.stop_worker()
    await working
    await worker.close()
    await client.close()


async def steps(question: Question) -> Answer:
    """Run tasks of ten steps, some of them at once."""
    runs, watch = question["runs"], Watch()
    ended = {number: asyncio.get_running_loop().create_future() for number in range(len(runs))}

    async def ten_steps(params: dict[str, Any], context: Any) -> str:  # noqa: ANN401 (absurd's own)
        results = []
        for index, text in enumerate(params["texts"]):

            async def produce(text: str = text) -> str:
                return text

            results.append(await context.step(f"step-{index}", produce))
        result = digest([str(params["seed"]), *results])
        ended[params["seed"]].set_result(result)
        return result

    client = await _client(question["url"])
    worker, working = await _work(question["url"], {"ten_steps": ten_steps})
    numbers = iter(range(len(runs)))

    async def one_after_the_other() -> None:
        for number in numbers:
            began = time.monotonic()
            await client.spawn("ten_steps", {"seed": number, "texts": runs[number]}, queue="bench")
            await ended[number]
            watch.note(number, began)

    watch.start()
    await asyncio.gather(*(one_after_the_other() for _ in range(question["callers"])))
    watch.stop()
    await _end(client, worker, working)
    return watch.answer(results=[ended[number].result() for number in range(len(runs))])


async def queue(question: Question) -> Answer:
    """Queue jobs that do nothing, then let one worker do them all."""
    done: list[int] = []

    async def nothing(params: dict[str, Any], _context: Any) -> None:  # noqa: ANN401 (absurd's own)
        done.append(params["number"])

    jobs, watch = question["jobs"], Watch()
    client = await _client(question["url"])
    begin = time.monotonic()
    for number in range(jobs):
        await client.spawn("nothing", {"number": number}, queue="bench")
    queued_s = time.monotonic() - begin
    watch.start()
    worker, working = await _work(question["url"], {"nothing": nothing})
    while len(done) < jobs:
        await asyncio.sleep(0.002)
    watch.stop()
    await _end(client, worker, working)
    return watch.answer(queued_s=queued_s, done=sorted(done))


async def recover(question: Question) -> Answer:
    """Run a job of two steps, or stand by until the claim of the worker that runs it is over."""
    hang, ended = Hang(question), asyncio.get_running_loop().create_future()

    async def job(_params: dict[str, Any], context: Any) -> str:  # noqa: ANN401 (absurd's own)
        async def first() -> str:
            return hang.first()

        async def second() -> str:
            return await asyncio.to_thread(hang.second)

        await context.step("first", first)
        ended.set_result(await context.step("second", second))
        return "done"

    worker = AsyncAbsurd(question["url"], queue_name="bench")
    if not question["standby"]:
        client = await _client(question["url"])
        await client.spawn("job", {}, queue="bench", max_attempts=3, retry_strategy={"kind": "none"})
    worker.register_task("job")(job)
    working = asyncio.create_task(worker.start_worker(claim_timeout=_CLAIM_S, poll_interval=_POLL_S))
    entered = float(await ended)
    working.cancel()
    return {"entered": entered}


serve(("absurd-sdk",), {"steps": steps, "queue": queue, "recover": recover})
