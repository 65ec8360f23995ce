"""Several real workers on one storage, killed and stopped at random: nothing is lost and nothing is said twice.

``LASH_SOAK_SECONDS`` makes it longer than usual.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

import lash
from tests.raw import raw
from tests.runtime.worker_app import chain
from tests.runtime.worker_kit import Crew, crew, until

SECONDS = float(os.environ.get("LASH_SOAK_SECONDS", "6"))
WORKERS = 3
SESSIONS = 5
LINKS = 6

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(SECONDS * 3 + 240),
]


async def test_workers_come_and_go(backend_url: str, tmp_path: Path) -> None:
    """Every message is answered once and in order, every process ends once with all its links, and no lease is left."""
    async with lash.App(backend_url, worker=False) as app:
        process = app.process(chain.function)
        with crew(backend_url, tmp_path) as workers:
            rampage = asyncio.create_task(_rampage(workers))
            handles: list[lash.ProcessHandle[list[str]]] = []
            sent = 0
            while not rampage.done():
                handles.append(await app.start(process, LINKS, 0.05))
                for number in range(SESSIONS):
                    await app.session(f"s{number}").send(f"say {sent}", key=f"k{sent}")
                sent += 1
                await asyncio.sleep(0.2)
            killed = await rampage
            for handle in handles:
                expected = [f"{handle.process_id}.{link}" for link in range(LINKS)]
                assert await handle.result(timeout_s=120) == expected
            await until(lambda: _is_quiet(app), patience_s=120)
            await _stop(workers)
            repeated = sum(
                len(workers.lines(f"{handle.process_id}.{link}")) - 1 for handle in handles for link in range(LINKS)
            )
        print(f"{killed} workers killed, {len(handles)} processes, {repeated} links repeated")  # noqa: T201
        # Only what was being run when a worker was killed may have run again.
        assert repeated <= killed * 32
        await _check_sessions(app, sent)
    for table in ("lash_session_leases", "lash_process_leases"):
        assert await raw(backend_url, f"SELECT count(*) FROM {table} WHERE token IS NOT NULL") == [(0,)]


async def _rampage(workers: Crew) -> int:
    """Kill a worker or tell it to stop, again and again, and always hire another; return how many were killed."""
    killed = 0
    for _ in range(WORKERS):
        workers.hire(poll=0.3, grace=0.2)
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    while loop.time() < end:
        await asyncio.sleep(random.uniform(0.3, 1.2))
        alive = [worker for worker in workers.workers if worker.poll() is None]
        number = random.choice((signal.SIGKILL, signal.SIGTERM))
        random.choice(alive).send_signal(number)
        killed += number is signal.SIGKILL
        workers.hire(poll=0.3, grace=0.2)
    return killed


async def _is_quiet(app: lash.App) -> bool:
    return not any([await app.session(f"s{number}").pending() for number in range(SESSIONS)])


async def _stop(workers: Crew) -> None:
    for worker in workers.workers:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
    for worker in workers.workers:
        assert await workers.ended(worker) in (0, -signal.SIGKILL, -signal.SIGTERM), workers.log(worker)


async def _check_sessions(app: lash.App, sent: int) -> None:
    for number in range(SESSIONS):
        session = app.session(f"s{number}")
        said = [lash.text_of(message) for message in await session.messages()]
        assert said == [text for each in range(sent) for text in (f"say {each}", str(each))]
        assert await session.dead_letters() == ()
