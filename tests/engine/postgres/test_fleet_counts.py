"""What a fleet costs, in transactions that the server counts, and in polls while it is idle."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

import lash
from lash.runtime.definition import ProcessDefinition
from tests.raw import raw
from tests.runtime.worker_kit import until

ROUNDS = 20
"""How many asks are counted; connections cost some transactions of their own when they are opened."""
SLACK = ROUNDS - 1
"""Waits of both runs for the worker, and connections that only one of them opened: less than one for each ask."""
WAKE_UPS = 2 if sys.platform == "linux" else 4
"""The server counts a transaction whenever a notification wakes a listening connection: two for each connection.

On Linux the worker listens for the caller too, and for any number of workers on the same machine.
"""
QUIET = lash.WorkerOptions(poll_s=60)
"""No poll without a hint happens while a test counts."""


def _app(url: str, *, worker: bool) -> lash.App:
    app = lash.App(url, worker=worker, options=QUIET)

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        return turn.text

    return app


async def one() -> int:
    return 1


async def _transactions(url: str) -> int:
    """Return how many transactions ended in the database so far; connections report theirs when they close."""
    statement = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    ((count,),) = await raw(url, statement)
    assert isinstance(count, int)
    return count


async def _asks(url: str, times: int) -> int:
    """Ask so often from a storage without a worker, and return the transactions of everything."""
    before = await _transactions(url)
    async with _app(url, worker=True), _app(url, worker=False) as caller:
        await _registered(caller)
        session = caller.session("s")
        for number in range(times):
            assert await session.ask(f"message {number}") == f"message {number}"
    return await _transactions(url) - before


async def _processes(url: str, times: int) -> int:
    """Start and await processes of ten steps from a storage without a worker, and return all transactions."""
    before = await _transactions(url)
    async with _app(url, worker=True) as worker, _app(url, worker=False) as caller:
        _declare(worker)
        ten = _declare(caller)
        await _registered(caller)
        for number in range(times):
            handle = await caller.start(ten, number)
            assert await handle.result() == number
    return await _transactions(url) - before


def _declare(app: lash.App) -> ProcessDefinition[[int], int]:
    @app.process
    async def ten(ctx: lash.Context, number: int) -> int:
        for step in range(10):
            await ctx.step(f"step {step}", one)
        return number

    return ten


async def _registered(caller: lash.App) -> None:
    """Wait until the worker listens."""

    async def is_reachable() -> bool:
        return any(worker.beat.channel is not None for worker in await caller.storage.workers.list())

    await until(is_reachable)


async def _fewest(count: Callable[[str, int], Awaitable[int]], url: str) -> int:
    """Return the transactions of all rounds, the fewest of three measurements."""
    return min([await count(url, 2 + ROUNDS) - await count(url, 2) for _ in range(3)])


async def test_an_ask_from_another_storage_takes_eight_transactions(postgres_storage_url: str) -> None:
    """Message, notification, facts, claim, commit, notification, poll and reply, counted by the server."""
    assert await _fewest(_asks, postgres_storage_url) <= (8 + WAKE_UPS) * ROUNDS + SLACK


async def test_a_process_of_ten_steps_takes_sixteen_transactions(
    postgres_storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registration, notification, claim, ten steps, end, notification and result, counted by the server."""
    # On a busy machine a process may take longer than a claim is held back, and then has a notification more.
    monkeypatch.setattr("lash.postgres.hints._SEND_LATER_S", 60.0)
    assert await _fewest(_processes, postgres_storage_url) <= (16 + WAKE_UPS) * ROUNDS + SLACK


async def test_idle_workers_poll_by_rank(postgres_storage_url: str) -> None:
    """Of six idle workers the first polls at the interval of its options, and each further one less often."""
    counts: Counter[str] = Counter()

    class Statements(lash.Hook):
        def statement(self, name: str) -> None:
            counts[name] += 1

    options = lash.WorkerOptions(poll_s=0.1)
    async with AsyncExitStack() as stack:
        apps = [lash.App(postgres_storage_url, options=options, hooks=[Statements()]) for _ in range(6)]
        for app in apps:
            await stack.enter_async_context(app)

        async def all_listen() -> bool:
            return sum(each.beat.channel is not None for each in await apps[0].storage.workers.list()) == len(apps)

        await until(all_listen)
        await asyncio.sleep(0.3)
        counts.clear()
        began = time.monotonic()
        await asyncio.sleep(1.5)
        # 15 polls of the first, and 15 / 3 / n of the others: 11 in all. Six equal workers would make 90.
        assert counts["work_poll"] + counts["work_beat"] <= 27 * (time.monotonic() - began), counts
