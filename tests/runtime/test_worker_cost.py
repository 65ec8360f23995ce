"""The costs of workers while there is nothing to do, and while many processes are parked.

``LASH_PARKED=10000`` parks that many processes instead of some hundred.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

import lash
from tests.raw import raw
from tests.runtime.worker_app import parked
from tests.runtime.worker_kit import crew, until

PARKED = int(os.environ.get("LASH_PARKED", "200"))
_IDLE_S = 4

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(240 + PARKED // 5),
]


class Statements(lash.Hook):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def statement(self, name: str) -> None:
        self.counts[name] += 1


async def test_an_idle_worker_hardly_asks(backend_name: str, backend_url: str) -> None:
    """On PostgreSQL an idle worker sends fewer than one statement a second; on SQLite it polls no more often."""
    statements = Statements()
    app = lash.App(backend_url, hooks=[statements])

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return "ok"

    async with app:
        # Earlier work must not keep it awake.
        assert await app.session("s").ask("x", timeout_s=60) == "ok"
        await asyncio.sleep(1)
        statements.counts.clear()
        began = time.monotonic()
        await asyncio.sleep(_IDLE_S)
        counts = statements.counts.copy()
        # A busy machine sleeps longer.
        slept_s = time.monotonic() - began
    if backend_name == "postgres":
        assert 0 < counts.total() < slept_s, counts
    else:
        assert 0 < counts["work_marks"] < slept_s, counts


async def test_a_process_takes_few_statements(backend_name: str, backend_url: str) -> None:
    """A process started by its own application starts without a poll or a read, and ends at once."""
    statements = Statements()
    app = lash.App(backend_url, hooks=[statements])

    async def tool(number: int) -> int:
        return number

    @app.process
    async def process(ctx: lash.Context) -> int:
        return sum([await ctx.step("tool", tool, number) for number in range(10)])

    async with app:
        # The first process fills the caches that later ones use.
        assert await (await app.start(process)).result(timeout_s=60) == 45
        statements.counts.clear()
        assert await (await app.start(process)).result(timeout_s=60) == 45
        counts = statements.counts.copy()
    records = {"sqlite": "effect_record_in_process", "postgres": "effect_record_by_key"}[backend_name]
    assert (counts["effect_page"], counts[records]) == (0, 10)
    if backend_name == "sqlite":
        assert (counts["process_insert"], counts["process_lease_acquire"]) == (1, 1)
    else:
        assert (counts["process_register_and_claim"], counts["process_lease_complete"]) == (1, 1)
        # No other statements, except the ones sent every second.
        assert counts.total() <= 12 + 2, counts


async def test_a_backlog_is_done_though_nobody_gives_hints(backend_url: str) -> None:
    """A worker with few slots works until nothing is left, even if it gets no hints."""
    sender = lash.App(backend_url, worker=False)
    done: list[int] = []

    async def process(ctx: lash.Context, number: int) -> None:
        done.append(number)

    queued = sender.process(process)
    async with sender:
        for number in range(30):
            await sender.start(queued, number)
    worker = lash.App(backend_url, options=lash.WorkerOptions(processes=4, poll_s=30))
    worker.process(process)
    async with worker:
        await until(lambda: len(done) == 30)
    assert sorted(done) == list(range(30))


async def test_parked_processes_cost_a_worker_nothing(backend_url: str, tmp_path: Path) -> None:
    """Many processes sleep: no lease, little memory, and each continues when it is due."""
    sleep_s = max(12, PARKED / 20)
    async with lash.App(backend_url, worker=False) as app:
        process = app.process(parked.function)
        with crew(backend_url, tmp_path) as workers:
            worker = workers.hire(poll=1.5)
            await workers.ready(worker)
            before_mb = _resident_mb(worker.pid)
            handles = []
            for _ in range(0, PARKED, 50):
                handles += await asyncio.gather(*(app.start(process, sleep_s) for _ in range(50)))
            await until(lambda: _all_asleep(backend_url), patience_s=sleep_s)
            parked_mb = _resident_mb(worker.pid)
            assert await raw(backend_url, "SELECT count(*) FROM lash_process_leases WHERE token IS NOT NULL") == [(0,)]
            late_s = sorted([await handle.result(timeout_s=sleep_s + 60) for handle in handles])
            after_mb = _resident_mb(worker.pid)
    figures = f"{before_mb:.0f} MB before, {parked_mb:.0f} MB parked, {after_mb:.0f} MB after"
    lateness = f"median {late_s[len(late_s) // 2]:.3f} s late, worst {late_s[-1]:.3f} s"
    print(f"{len(handles)} processes: {figures}; {lateness}")  # noqa: T201 (figures to see)
    assert len(handles) >= PARKED
    assert max(parked_mb, after_mb) < 200
    assert late_s[0] >= 0
    assert late_s[-1] < 5


async def _all_asleep(url: str) -> bool:
    asleep = await raw(url, "SELECT count(*) FROM lash_effects WHERE replay_key LIKE 'sleep%'")
    held = await raw(url, "SELECT count(*) FROM lash_process_leases WHERE token IS NOT NULL")
    return asleep == [(PARKED,)] and held == [(0,)]


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1_024
