"""More of lash's tasks: deleting, contending for one session, long sessions, and the work of a killed worker."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time

import lash
from benchmarks.peers.protocol import Answer, Hang, Question, count_whole


async def delete(question: Question) -> Answer:
    """Delete sessions."""
    async with await lash.open(question["url"]) as storage:
        begin = time.monotonic()
        for session in question["sessions"]:
            assert await storage.sessions.delete(f"session-{session}")
        return {"begin": begin, "end": time.monotonic()}


async def contend(question: Question) -> Answer:
    """Send several messages to one session at once, and see whether every turn is there, whole and in order."""
    app = lash.App(question["url"])

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        await asyncio.sleep(0.01)
        return f"answer to {turn.text}"

    kept = 0
    async with app:
        for number in range(question["rounds"]):
            session = app.session(f"session-{number}")
            messages = [f"message {caller}" for caller in range(question["callers"])]
            await asyncio.gather(*map(session.ask, messages))
            said = [part.content for message in await session.messages() for part in message.parts]
            kept += count_whole(said, messages)
    return {"whole": kept}


async def recover(question: Question) -> Answer:
    """Run a job of two steps, or stand by until the worker that runs it is gone."""
    app, hang = lash.App(question["url"]), Hang(question)

    @app.process
    async def job(ctx: lash.Context) -> str:
        await ctx.step("first", _first)
        return await ctx.step("second", _second)

    async def _first() -> str:
        return hang.first()

    async def _second() -> str:
        return await asyncio.to_thread(hang.second)

    async with app:
        # The second caller only gets a handle to the existing job.
        handle = await app.starting(process_id="job").start(job)
        return {"entered": float(await handle.result())}


async def long_turns(question: Question) -> Answer:
    """Run turns of one session, each of which asks for the last five messages; this program is new."""
    app = lash.App(question["url"])

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return f"I see {len(turn.messages(last=5))} messages"

    taken: list[float] = []
    async with app:
        for session in ("warm", *[question["session"]] * (question["turns"] + 1)):
            begin = time.perf_counter()
            await app.session(session).ask("hello")
            taken.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"first": taken[1], "later": statistics.median(taken[2:]), "peak": peak}


MORE = {"delete": delete, "contend": contend, "recover": recover, "long_turns": long_turns}
