"""Programs of contenders, each in its own environment, including lash's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.adapter_environment import Environment

ROOT = Path(__file__).resolve().parents[2]
_PEERS = ROOT / "benchmarks" / "peers"


_LIMIT_S = 60.0
_OWN = ("lash", "bare")
"""Programs that run in the environment of the benchmarks."""
_ADAPTER = "_adapter"
"""How the names of programs end that run in the environment of an adapter, with lash and the framework."""


class PeerMissing(Exception):
    """The environment of a peer is missing; the message says how to install it."""


class PeerFailed(Exception):
    """A program returned an error, or no answer."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """One implementation of a workload: program, variant and database."""

    program: str
    variant: str = ""
    backend: str = "sqlite"

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.program, self.variant) if part)


class Program:
    """A running program that answers requests."""

    def __init__(self, name: str, environment: dict[str, str] | None = None) -> None:
        self.name = name
        variables = {**os.environ, "PYTHONPATH": _search_path(name), **(environment or {})}
        self._process = subprocess.Popen(
            [_interpreter(name), _PEERS / name / "program.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if not os.environ.get("LASH_BENCH_VERBOSE") else None,
            text=True,
            env=variables,
            cwd=ROOT,
        )
        if self._process.stderr is not None:
            # A full pipe without a reader would block the program.
            self._drain = subprocess.Popen(["cat"], stdin=self._process.stderr, stdout=subprocess.DEVNULL)
        try:
            self.versions: dict[str, str] = self.ask({"do": "hello"})["versions"]
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, question: dict[str, Any]) -> None:
        """Send a request without waiting for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Return the answer to the last request; a program that takes too long is killed."""
        assert self._process.stdout is not None
        alarm = threading.Timer(_LIMIT_S, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        alarm.cancel()
        if not line:
            raise PeerFailed(f"the program of {self.name} ended (status {self._process.wait()}); LASH_BENCH_VERBOSE=1")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"{self.name}: {answer['error']}")
        return answer

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self.tell(question)
        return self.hear()

    def kill(self) -> None:
        """Kill the program."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def close(self) -> None:
        """Let the program exit, and kill it if it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stderr is not None:
            self._process.stderr.close()
            self._drain.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def programs(*names: str) -> Iterator[dict[str, Program]]:
    """Run these programs, one of each, while the block runs."""
    with contextlib.ExitStack() as stack:
        running: dict[str, Program] = {}
        for name in dict.fromkeys(names):
            running[name] = Program(name)
            stack.callback(running[name].close)
        yield running


def is_installed(name: str) -> bool:
    """Return whether the environment of a peer is complete; lash's own programs need none."""
    if name in _OWN:
        return True
    if name.endswith(_ADAPTER):
        return _of_adapter(name).is_installed()
    installed, wanted = _PEERS / ".venvs" / name / ".installed", _PEERS / name / "requirements.txt"
    return installed.exists() and installed.read_text() == wanted.read_text()


def require(*names: str) -> None:
    """Raise PeerMissing with the names of all peers that are not installed."""
    missing = [name for name in dict.fromkeys(names) if not is_installed(name)]
    if missing:
        target = "adapters-install" if missing[0].endswith(_ADAPTER) else "peers"
        raise PeerMissing(f"{', '.join(missing)} not installed (as pinned): run `make {target}` first")


def _of_adapter(name: str) -> Environment:
    return Environment(name.removesuffix(_ADAPTER), is_latest=False)


def _interpreter(name: str) -> str:
    require(name)
    if name.endswith(_ADAPTER):
        return str(_of_adapter(name).python)
    return sys.executable if name in _OWN else str(_PEERS / ".venvs" / name / "bin" / "python")


def _search_path(name: str) -> str:
    return f"{ROOT / 'src'}{os.pathsep}{ROOT}" if name in _OWN or name.endswith(_ADAPTER) else str(ROOT)
