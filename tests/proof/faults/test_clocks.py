"""Clocks that jump, and clients with a wrong clock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import lash
from tests.proof.faults.chats import Troubles, expected, make_app, said, talk
from tests.proof.faults.disk import EFFORT
from tests.raw import raw
from tests.runtime.turn_bench import Bench
from tests.runtime.worker_kit import until

YEARS_S = 10 * 365 * 24 * 3600
HOUR_S = 3600
COUNT = 12 * EFFORT
ENDED = "SELECT count(*) FROM lash_processes WHERE status = 'completed'"


@pytest_asyncio.fixture
async def bench(backend_name: str, backend_url: str) -> AsyncIterator[Bench]:
    opened = Bench(backend_name, backend_url)
    yield opened
    await opened.close()


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_clock_that_jumps(bench: Bench) -> None:
    """While the storage's clock jumps hours ahead and back, two workers handle each message once and in order."""
    options = lash.WorkerOptions(poll_s=0.1)
    apps = [await bench.app(worker=True, options=options) for _ in range(2)]

    async def echo(turn: lash.Turn) -> str:
        await turn.step("slow", asyncio.sleep, 0.01)
        return f"re: {turn.text}"

    for app in apps:
        app.agent(echo)
    chance = random.Random(5)
    done = asyncio.Event()

    async def leap() -> None:
        while not done.is_set():
            await bench.seconds(chance.uniform(-HOUR_S, 1.2 * HOUR_S))
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        group.create_task(leap())
        for name in ("a", "b"):
            group.create_task(talk(apps[0], name, COUNT, []))
        for name in ("a", "b"):
            assert await said(apps[1], name, COUNT) == expected(name, COUNT)
        done.set()
    assert await apps[0].storage.queue.dead() == ()


@pytest.mark.parametrize("years", [-1, 1])
async def test_a_worker_that_believes_in_another_year(
    postgres_storage_url: str, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    """On PostgreSQL a client's clock decides nothing: its messages, sleeps and leases are timed by the server."""
    real, real_ns = time.time, time.time_ns
    async with lash.App(postgres_storage_url, worker=False) as punctual:
        with monkeypatch.context() as odd:
            odd.setattr(time, "time", lambda: real() + years * YEARS_S)
            odd.setattr(time, "time_ns", lambda: real_ns() + years * YEARS_S * 10**9)
            async with make_app(postgres_storage_url, Troubles()) as app:
                for number in range(4):
                    # Ids contain the clock of their maker, and must not decide the order.
                    sender = app if number % 2 else punctual
                    text = f"a {number}"
                    await sender.session("a").send(text, key=text)
                assert await said(app, "a", 4) == expected("a", 4)

                async def ended() -> bool:
                    return await raw(postgres_storage_url, ENDED) == [(4,)]

                await until(ended)
    moments = "SELECT min(created_at_ms), max(ended_at_ms) FROM lash_processes"
    ((first, last),) = await raw(postgres_storage_url, moments)
    assert abs(first / 1000 - real()) < HOUR_S
    assert abs(last / 1000 - real()) < HOUR_S
