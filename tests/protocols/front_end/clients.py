"""The official JavaScript clients, and servers and workers as processes that a test can kill.

The packages are those of ``js/package-lock.json``. They are installed once for each environment, below its directory.
Without npm the tests are skipped, and fail with ``CI=true``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import httpx
import pytest

JAVASCRIPT: Final = Path(__file__).parent / "js"
PROGRAM: Final = Path(__file__).parent / "program.py"
_START_S: Final = 60.0
_INSTALL_S: Final = 300.0

Line = dict[str, Any]


def installed() -> Path:
    """Return a directory with the packages and the scripts that use them."""
    digest = hashlib.sha256((JAVASCRIPT / "package-lock.json").read_bytes()).hexdigest()[:16]
    directory = Path(sys.prefix) / "javascript" / digest
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        # Processes of one test run must not install at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for file in JAVASCRIPT.iterdir():
            shutil.copy(file, directory)
        if not (directory / "complete").exists():
            _install(directory)
            (directory / "complete").touch()
    return directory


def _install(directory: Path) -> None:
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"]
    try:
        subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
    except (OSError, subprocess.SubprocessError) as error:
        reason = f"the JavaScript clients need npm and its registry: {error} {getattr(error, 'stderr', '') or ''}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


class Client:
    """One node process that runs clients and prints what they get."""

    def __init__(self, directory: Path, script: str, runs: list[Line]) -> None:
        command = ["node", str(directory / script), json.dumps(runs)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def lines(self) -> Iterator[Line]:
        """Yield what is printed, as it comes."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)
        assert self._process.wait() == 0, self._process.stderr and self._process.stderr.read()

    def until(self, is_wanted: Callable[[Line], bool]) -> list[Line]:
        """Return the lines up to one that is wanted."""
        found: list[Line] = []
        for line in self.lines():
            found.append(line)
            if is_wanted(line):
                return found
        raise AssertionError(f"never printed; last: {found[-3:]}")


class Programs:
    """Servers and workers on one storage, which a test starts, kills and starts again."""

    def __init__(self, url: str, folder: Path, scripts: Path) -> None:
        self._url = url
        self._folder = folder
        self._scripts = scripts
        self._running: list[subprocess.Popen[str]] = []
        self._port = _free_port()
        self.log = folder / "calls.txt"
        self._gate = folder / "gate"

    def open_gate(self) -> None:
        """Let models and tools go on that stop at the gate."""
        self._gate.touch()

    def server(self, *options: str) -> subprocess.Popen[str]:
        """Start a server, always on the same port, and return it when it answers."""
        process = self._start(["server", self._url, str(self._port), *options])
        deadline = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < deadline:
            try:
                httpx.get(f"{self.address}/agui/none")
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return process
        raise AssertionError(f"the server did not start: {self._errors()}")

    def worker(self) -> subprocess.Popen[str]:
        """Start a worker and return it when it works."""
        process = self._start(["worker", self._url])
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", self._errors()
        return process

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def client(self, script: str, runs: list[Line]) -> Client:
        return Client(self._scripts, script, runs)

    def run(self, script: str, *runs: Line) -> list[Line]:
        """Run clients to their ends, and return what they printed."""
        with self.client(script, list(runs)) as client:
            return list(client.lines())

    def calls(self, of: str) -> int:
        """Return how often a model or a tool was called, by the begin of its line."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sum(line.startswith(of) for line in lines)

    def get(self, path: str) -> Any:  # noqa: ANN401 (any JSON)
        return httpx.get(f"{self.address}{path}").raise_for_status().json()

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()

    def _start(self, arguments: list[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "LASH_TEST_LOG": str(self.log), "LASH_TEST_GATE": str(self._gate)}
        with (self._folder / f"stderr-{len(self._running)}.txt").open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._running.append(process)
        return process

    def _errors(self) -> str:
        return "\n".join(path.read_text()[-2_000:] for path in sorted(self._folder.glob("stderr-*.txt")))


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process without notice."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
