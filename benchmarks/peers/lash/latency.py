"""How soon a worker in one process begins what another process has acknowledged.

A worker answers with the moments at which it was entered, a sender with those at which its calls returned; both read
the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import lash
from benchmarks.peers.protocol import Answer, Question
from tests.factories.process import NEWS, external, news

_PAUSE_S = 0.05
"""Long enough for the worker to be idle again."""
Send = Callable[[int], Awaitable[object]]


class Moments:
    """When each event arrived, and whether all of them have."""

    def __init__(self, expected: int) -> None:
        self.entered: dict[int, float] = {}
        self.all = asyncio.Event()
        self._expected = expected

    def enter(self, number: int) -> None:
        self.entered.setdefault(number, time.monotonic())
        if len(self.entered) == self._expected:
            self.all.set()


def _application(url: str, moments: Moments | None, **options: Any) -> tuple[lash.App, Any]:  # noqa: ANN401
    app = lash.App(url, **options)

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        for said in (turn.text, *(str(wake.input) for wake in turn.wakes)):
            if moments is not None and said:
                moments.enter(int(said))
        return "ok"

    @app.process
    async def waiter(ctx: lash.Context, events: int) -> None:
        for _ in range(events):
            number = await ctx.wait_signal("go")
            if moments is not None and isinstance(number, int):
                moments.enter(number)

    return app, waiter


async def worker(question: Question) -> Answer:
    """Work until every event has arrived."""
    events = question["events"]
    moments = Moments(events)
    app, waiter = _application(question["url"], moments)
    async with app:
        if question["kind"] == "signal":
            await app.starting(process_id="waiter").start(waiter, events)
        await asyncio.sleep(4 * _PAUSE_S)
        await asyncio.to_thread(Path(question["ready"]).touch)
        await moments.all.wait()
        # The last turn is committed before the worker stops.
        await asyncio.sleep(_PAUSE_S)
    return {"entered": [moments.entered[number] for number in range(events)]}


async def sender(question: Question) -> Answer:
    """Send events to the worker of the other process, one at a time."""
    app, _ = _application(question["url"], None, worker=False)
    async with app:
        send = await _sender(app, question["kind"])
        while not await asyncio.to_thread(Path(question["ready"]).exists):
            await asyncio.sleep(_PAUSE_S)
        acknowledged: list[float] = []
        for number in range(question["events"]):
            await asyncio.sleep(_PAUSE_S)
            await send(number)
            acknowledged.append(time.monotonic())
    return {"acknowledged": acknowledged}


async def _sender(app: lash.App, kind: str) -> Send:
    if kind == "enqueue":
        session = app.session("bench")
        return lambda number: session.send(str(number))
    if kind == "signal":
        return lambda number: app.signal("waiter", "go", number)
    await app.storage.sessions.create("bench")
    await app.storage.processes.register(external("source", NEWS, wake_session_id="bench"))
    return lambda number: app.storage.events.append("source", news(str(number), key=str(number)))


async def idle(question: Question) -> Answer:
    """Let a worker have nothing to do for a while, and count what it asks and burns."""
    statements: list[str] = []

    class Counter(lash.Hook):
        def statement(self, name: str) -> None:
            statements.append(name)

    app, _ = _application(question["url"], None, hooks=[Counter()])
    async with app:
        await asyncio.sleep(1)
        statements.clear()
        begin, used = time.monotonic(), time.process_time()
        await asyncio.sleep(question["seconds"])
        taken, burnt = time.monotonic() - begin, time.process_time() - used
        return {"queries_s": len(statements) / taken, "cpu": burnt / taken}


LATENCY = {"latency_worker": worker, "latency_sender": sender, "idle": idle}
