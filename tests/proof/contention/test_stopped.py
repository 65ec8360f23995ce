"""A process that was stopped, and wakes up after others took its leases and claims, changes no row."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import lash
from lash.model.process.process import Success
from tests.proof.contention.rows import all_rows
from tests.proof.contention.sleeper import FAR, Rights
from tests.raw import raw
from tests.runtime.stopping import stop
from tests.runtime.worker_app import moody
from tests.runtime.worker_kit import PATIENCE_S, ROOT, crew, until

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(240),
]

LOST: Final = {
    "record": "LeaseLost",
    "process record": "LeaseLost",
    "claim": "LeaseLost",
    "claim batches": "LeaseLost",
    "claim command": "LeaseLost",
    "fenced commit": "LeaseLost",
    "commit": "ClaimLost",
    "commit and release": "ClaimLost",
    "renew": "LeaseLost",
    "release": "False",
    "renew claim": "ClaimLost",
    "abandon": "0",
    "bury": "ClaimLost",
    "renew effect": "EffectLeaseLost",
    "finish": "EffectLeaseLost",
    "fail": "EffectLeaseLost",
    "release effect": "False",
    "renew process": "LeaseLost",
    "park": "LeaseLost",
    "complete": "LeaseLost",
    "release process": "False",
}
"""The result of each attempt once another process holds the leases and claims."""
DONE: Final = LOST | {
    "commit": "RevisionConflict",
    "commit and release": "RevisionConflict",
    "complete": "EventConflict",
}
"""The same once that process has used them: there is a newer head, and the process ended differently."""
_FREE: Final = (
    "SELECT 1 FROM lash_session_leases AS s, lash_process_leases AS p, lash_effects AS e"
    " WHERE {now} > s.expires_at_ms AND {now} > p.expires_at_ms AND {now} > e.expires_at_ms"
)
_NOW: Final = {
    "sqlite": "unixepoch('subsec') * 1000",
    "postgres": "extract(epoch FROM clock_timestamp()) * 1000",
}


@contextmanager
def _sleeper(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.proof.contention.sleeper", url]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("used", [False, True], ids=["held", "used"])
async def test_a_stopped_holder_changes_no_row(backend_url: str, backend_name: str, *, used: bool) -> None:
    """Each of 21 ways to use a lost lease or claim is refused, and every row of every table is as before."""
    with _sleeper(backend_url) as child:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "holds\n"
        await stop(child, backend_url)
        async with await lash.open(backend_url) as storage:
            free = _FREE.format(now=_NOW[backend_name])
            await until(lambda: _is_so(backend_url, free))
            heir = Rights(storage, "heir", FAR)
            await heir.take()
            if used:
                await storage.session("s").commit(heir.commit("heir"))
                await storage.effects.finish(heir.effect, "heir")
                await storage.process_leases.complete(heir.process_fence, Success(value="heir"))
            before = await all_rows(backend_url)
            child.send_signal(signal.SIGCONT)
            said, _ = await asyncio.to_thread(child.communicate, "go\n", PATIENCE_S)
            after = await all_rows(backend_url)
        answers = dict(line.split(": ", 1) for line in said.splitlines())
        assert answers == (DONE if used else LOST)
        assert after == before
        assert len(before["lash_batches"]) == (0 if used else 1)


async def _is_so(url: str, query: str) -> bool:
    return bool(await raw(url, query))


async def test_a_stopped_worker_changes_no_row(backend_url: str, tmp_path: Path) -> None:
    """A worker that slept through its lease during a turn writes nothing when it wakes up."""
    with crew(backend_url, tmp_path) as workers:
        async with lash.App(backend_url, worker=False) as sender:
            sleeper = workers.hire(ttl=2, poll=0.2)
            await sender.session("s").send("hold a", key="1")
            await workers.began("a")
            await stop(sleeper, backend_url)
            other = workers.hire(ttl=600, poll=0.2)
            await workers.began("a", times=2)
            workers.open_gate("a")
            assert await sender.session("s").ask("hold a", key="1", timeout_s=PATIENCE_S) == "did a"
            other.send_signal(signal.SIGTERM)
            assert await workers.ended(other) == 0, workers.log(other)

            before = await all_rows(backend_url)
            sleeper.send_signal(signal.SIGCONT)
            await until(lambda: "lease.lost" in workers.log(sleeper))
            sleeper.send_signal(signal.SIGTERM)
            assert await workers.ended(sleeper) == 0, workers.log(sleeper)
            assert await all_rows(backend_url) == before
            assert len(before["lash_nodes"]) == 2


@pytest.mark.parametrize("mood", ["raise", "return"])
async def test_a_stopped_run_of_a_process_changes_no_row(backend_url: str, tmp_path: Path, mood: str) -> None:
    """A run that wakes up after another has ended its process changes nothing, however it ends itself."""
    with crew(backend_url, tmp_path) as workers:
        async with lash.App(backend_url, worker=False) as sender:
            sleeper = workers.hire(ttl=2, poll=0.2)
            started = await sender.start(sender.process(moody.function), "a", mood)
            await workers.began("a")
            await stop(sleeper, backend_url)
            other = workers.hire(ttl=600, poll=0.2)
            await workers.began("a", times=2)
            workers.open_gate("a")
            assert await started.result(timeout_s=PATIENCE_S) == str(other.pid)
            other.send_signal(signal.SIGTERM)
            assert await workers.ended(other) == 0, workers.log(other)

            before = await all_rows(backend_url)
            sleeper.send_signal(signal.SIGCONT)
            sleeper.send_signal(signal.SIGTERM)
            assert await workers.ended(sleeper) == 0, workers.log(sleeper)
            assert await all_rows(backend_url) == before
            assert "worker.trouble" not in workers.log(sleeper)
