"""Processes that emit occurrences for the tests; some kill themselves at a point that the test names."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import msgspec

import lash
from tests.factories.trigger import pressed

DELAYS: tuple[float, ...] = (0.0, 0.0005)
"""How long a statement runs, in seconds, before its process is killed during it."""


class Reaper:
    """Kills its own process with SIGKILL at the ``at``-th statement after it is armed.

    Without a delay, before the statement runs, and so after the previous one; with a delay, while it runs.
    """

    def __init__(self, at: int, delay: float | None) -> None:
        self._at = at
        self._delay = delay
        self._seen = 0
        self.armed = False

    def __call__(self, _name: str) -> None:
        if not self.armed:
            return
        self._seen += 1
        if self._seen != self._at:
            return
        if self._delay is None:
            die()
        threading.Thread(target=self._die_later).start()

    def _die_later(self) -> None:
        assert self._delay is not None
        time.sleep(self._delay)
        die()


def die() -> None:
    """End this process without cleanup."""
    os.kill(os.getpid(), signal.SIGKILL)


def emit_and_die(url: str, key: str, at: int, delay: float | None) -> None:
    """Emit one occurrence; the process is killed at the acknowledgement at the latest."""

    async def run() -> None:
        reaper = Reaper(at, delay)
        storage = await lash.open(url, on_statement=reaper)
        reaper.armed = True
        await storage.occurrences.emit(pressed(key, {"n": key}))
        die()

    asyncio.run(run())


def emit_many(url: str, name: str, count: int, barrier: Barrier, reports: Connection) -> None:
    """Emit the same occurrences as all other processes, in random order, and as many of its own."""

    async def run() -> list[bytes]:
        shared = [f"shared{number}" for number in range(count)]
        own = [f"{name}{number}" for number in range(count)]
        keys = shared + own
        random.shuffle(keys)
        async with await lash.open(url) as storage:
            barrier.wait()
            answers = await asyncio.gather(*(storage.occurrences.emit(pressed(key, {"n": key})) for key in keys))
        return [msgspec.json.encode(answer) for key, answer in sorted(zip(keys, answers, strict=True))]

    reports.send(asyncio.run(run()))
    reports.close()
