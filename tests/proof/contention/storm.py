"""Processes that work on one storage and are killed and stopped at random."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.runtime.worker_kit import ROOT, until

_LEAST: Final = 2
"""The minimum number of kills, and of stops."""
_AT_WORK: Final = 3
"""How many processes must be at work before another one is struck; on a busy machine starting one takes long."""
_PAUSE_S: Final = (0.1, 0.5)
_STOP_S: Final = (0.4, 3.0)
"""How long a process is stopped; leases last 0.3 or 2 seconds."""


class Storm:
    """The processes, and what was done to them. All random choices come from one seed."""

    def __init__(self, url: str, directory: Path, seed: str) -> None:
        self._url = url
        self.directory = directory
        self._seed = seed
        self._chance = random.Random(seed)
        self._names = itertools.count()
        self._alive: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped: set[str] = set()
        self.kills = 0
        self.stops = 0

    def hire(self) -> None:
        """Start one more process."""
        name = f"w{next(self._names)}"
        command = [sys.executable, "-m", "tests.proof.contention.worker", self._url, name, self._seed]
        with (self.directory / f"{name}.log").open("wb") as log:
            self._alive[name] = subprocess.Popen([*command, str(self.directory)], stderr=log, stdout=log, cwd=ROOT)

    async def rage(self, processes: int, seconds: float) -> None:
        """Keep this many processes for this long, and kill and stop working ones, at least a few of each."""
        for _ in range(processes):
            self.hire()
        await until(lambda: len(self._working()) == processes)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        async with asyncio.TaskGroup() as group:
            while loop.time() < end or min(self.kills, self.stops) < _LEAST:
                await asyncio.sleep(self._chance.uniform(*_PAUSE_S))
                names = self._working()
                if len(names) < _AT_WORK:
                    continue
                name, chance = self._chance.choice(names), self._chance.random()
                if chance < 0.5:
                    group.create_task(self._stop(name))
                elif chance < 0.9:
                    self._kill(name)
                    self.hire()
                else:
                    group.create_task(self._end(name))
                    self.hire()

    def _working(self) -> list[str]:
        """Return the processes that have started to work and are not stopped."""
        begun = {path.stem for path in self.histories() if path.stat().st_size}
        return sorted(begun & self._alive.keys() - self._stopped)

    def _kill(self, name: str) -> None:
        process = self._alive.pop(name)
        assert process.poll() is None, f"{name} ended by itself: {self.log(name)}"
        process.kill()
        process.wait()
        self.kills += 1

    async def _stop(self, name: str) -> None:
        """Stop a process for a while, wherever it is."""
        self._stopped.add(name)
        process = self._alive[name]
        process.send_signal(signal.SIGSTOP)
        self.stops += 1
        await asyncio.sleep(self._chance.uniform(*_STOP_S))
        process.send_signal(signal.SIGCONT)
        self._stopped.discard(name)

    async def end(self) -> None:
        """Let the remaining processes finish, and check that each exits cleanly."""
        (self.directory / "end").touch()
        for name, process in self._alive.items():
            await self._ended(name, process)

    async def _end(self, name: str) -> None:
        """Ask one process to end, while the others go on."""
        process = self._alive.pop(name)
        process.send_signal(signal.SIGTERM)
        await self._ended(name, process)

    async def _ended(self, name: str, process: subprocess.Popen[bytes]) -> None:
        try:
            code = await asyncio.to_thread(process.wait, 60)
        finally:
            process.kill()
        assert code == 0, f"{name} ended with {code}: {self.log(name)}"

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def histories(self) -> list[Path]:
        return sorted(self.directory.glob("*.history"))

    def kill_all(self) -> None:
        for process in self._alive.values():
            process.kill()
            process.wait()


@contextmanager
def storm(url: str, directory: Path, seed: str) -> Iterator[Storm]:
    """Give a storm; none of its processes outlives the test."""
    raging = Storm(url, directory, seed)
    try:
        yield raging
    finally:
        raging.kill_all()
