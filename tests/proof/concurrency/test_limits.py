"""Real workers share a limit, and one is killed: no call exceeds the limit, and every message is answered."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Final

import pytest

import lash
from tests.proof.concurrency.limit_worker import AT_ONCE, PER_SECOND
from tests.runtime.worker_kit import until
from tests.warm_programs import start

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_WORKERS: Final = 4
_MESSAGES: Final = 24
_ROUNDED_S: Final = 0.02
"""Moments are milliseconds, and clocks of programs and of the server differ by less than this."""


@pytest.mark.timeout(180)
async def test_workers_never_get_ahead_of_a_limit(backend_url: str, tmp_path: Path) -> None:
    """Of the calls of four workers, of which one is killed, the n-th comes no earlier than n intervals after the first.

    A call that the killed worker began and did not record is repeated, under a moment of its own.
    """
    calls = tmp_path / "calls"
    calls.touch()
    async with lash.App(backend_url, worker=False) as app:
        workers = [start("tests.proof.concurrency.limit_worker", backend_url, str(calls)) for _ in range(_WORKERS)]
        try:
            began = time.time()
            chats = [app.session(f"s{number}") for number in range(_MESSAGES)]
            asked = asyncio.gather(*(chat.ask(chat.session_id, timeout_s=120) for chat in chats))
            await until(lambda: len(calls.read_text().splitlines()) >= _WORKERS)
            workers[0].kill()
            assert await asked == [chat.session_id for chat in chats]
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
    moments = sorted(float(line) for line in calls.read_text().splitlines())
    assert len(moments) >= _MESSAGES
    early = [n for n, moment in enumerate(moments) if moment < began + n / PER_SECOND - _ROUNDED_S]
    assert early == []


@pytest.mark.timeout(180)
async def test_a_killed_worker_leaves_its_place(backend_url: str, tmp_path: Path) -> None:
    """Of the calls of three workers no more run at once than permitted, and the place of a killed one is given on."""
    calls = tmp_path / "calls"
    calls.touch()
    async with lash.App(backend_url, worker=False) as app:
        workers = [start("tests.proof.concurrency.limit_worker", backend_url, str(calls)) for _ in range(3)]
        try:
            asked = [asyncio.create_task(app.session("s").ask("room:stay", timeout_s=120))]
            await until(lambda: "begin" in calls.read_text())
            texts = [f"room:{number}" for number in range(12)]
            asked += [asyncio.create_task(app.session(text).ask(text, timeout_s=120)) for text in texts]
            await until(lambda: calls.read_text().count("end") >= AT_ONCE)
            holder = int(calls.read_text().split()[1])
            worker = next(each for each in workers if each.pid == holder)
            # Stopped first: no call begins between the line and the death.
            worker.send_signal(signal.SIGSTOP)
            await until(lambda: "T (stopped)" in Path(f"/proc/{holder}/status").read_text())
            with calls.open("a") as file:
                file.write(f"killed {holder} -\n")
            worker.kill()
            assert await asyncio.gather(*asked) == ["room:stay", *texts]
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
    assert _most_at_once(calls.read_text().splitlines()) == AT_ONCE


def _most_at_once(lines: list[str]) -> int:
    """Return how many calls ran at once, at most; those of a killed worker ended with it."""
    running: list[tuple[str, str]] = []
    most = 0
    for line in lines:
        what, pid, text = line.split()
        if what == "begin":
            running.append((pid, text))
        elif what == "end":
            running.remove((pid, text))
        else:
            running = [each for each in running if each[0] != pid]
        most = max(most, len(running))
    return most
