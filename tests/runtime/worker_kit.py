"""Real worker processes for the tests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 60
"""How long a test waits for an event; a busy machine is slow."""


class Crew:
    """Workers on one storage, each in a process of its own, and the directory of their files."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self.directory = directory
        self.workers: list[subprocess.Popen[bytes]] = []

    def hire(
        self,
        *options: str,
        target: str = "tests.runtime.worker_app:app",
        within: Sequence[str] = (),
        **settings: float,
    ) -> subprocess.Popen[bytes]:
        """Start a worker with command line options, in a container if there is a command for it.

        The settings are in seconds.
        """
        environment = os.environ | {
            "LASH_TEST_URL": self._url,
            "LASH_TEST_FOLDER": str(self.directory),
            **{f"LASH_TEST_{name.upper()}": str(value) for name, value in settings.items()},
        }
        command = [*within, sys.executable, "-m", "lash", "worker", target, *options]
        with (self.directory / f"worker{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(command, stderr=log, cwd=ROOT, env=environment)
        self.workers.append(worker)
        return worker

    def log(self, worker: subprocess.Popen[bytes]) -> str:
        """Return what a worker wrote to its standard error."""
        return (self.directory / f"worker{self.workers.index(worker)}.log").read_text()

    def open_gate(self, name: str) -> None:
        (self.directory / f"{name}.go").touch()

    def lines(self, name: str) -> list[str]:
        """Return the writers of a file's lines, in order."""
        path = self.directory / name
        return path.read_text().split() if path.exists() else []

    async def began(self, name: str, times: int = 1) -> None:
        """Wait until a run is at the gate."""
        await until(lambda: len(self.lines(f"{name}.began")) >= times)

    async def ready(self, worker: subprocess.Popen[bytes]) -> None:
        """Wait until a worker is ready."""
        await until(lambda: worker.poll() is not None or "working" in self.log(worker))
        assert worker.poll() is None, self.log(worker)

    async def ended(self, worker: subprocess.Popen[bytes]) -> int:
        """Wait until a worker exits and return its exit code."""
        await until(lambda: worker.poll() is not None)
        code: int = worker.returncode
        return code


@contextmanager
def crew(url: str, directory: Path) -> Iterator[Crew]:
    """Yield workers, none of which outlives the test."""
    hired = Crew(url, directory)
    try:
        yield hired
    finally:
        for worker in hired.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()


async def until(is_so: Callable[[], bool] | Callable[[], Awaitable[bool]], patience_s: float = PATIENCE_S) -> None:
    """Poll until a condition holds."""
    async with asyncio.timeout(patience_s):
        while True:
            answer = is_so()
            if answer is True or (answer is not False and await answer):
                return
            await asyncio.sleep(0.02)
