"""Processes that are killed at a point of an operation: a warm one forks a child for every kill.

This module is also the program that answers requests; `Killer` starts it and sends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
from typing import IO, NamedTuple, Self

import lash
from lash.testing.clock import ManualClock
from tests.backends import TESTS_FOLDER
from tests.proof.sweep.cases import CASES
from tests.proof.sweep.ground import steady
from tests.proof.sweep.seam import Seam, Strike, installed

SURVIVED = 3
_LENGTH = 8


class Request(NamedTuple):
    """Which process to kill, at which point, in which operation."""

    url: str
    now_ms: int
    name: str
    given: object
    strike: Strike


class Killer:
    """The client's side."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.sweep.killer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=TESTS_FOLDER.parent,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.close()
        self._program.wait(30)
        self._program.stdout.close()

    def kill(self, request: Request) -> bool:
        """Run the operation in a process, and return whether it was killed on the way; it may also survive."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        _send(self._program.stdin, pickle.dumps(request))
        status = int(self._program.stdout.readline())
        assert status in (-signal.SIGKILL, SURVIVED), f"the child ended with {status}"
        return status != SURVIVED


def serve(asking: IO[bytes], answering: IO[bytes]) -> None:
    """Fork for each request, one after the other, and answer with how the child ended."""
    while length := asking.read(_LENGTH):
        text = asking.read(int.from_bytes(length))
        child = os.fork()
        if child == 0:
            os._exit(_run(pickle.loads(text)))
        _pid, status = os.waitpid(child, 0)
        answering.write(b"%d\n" % os.waitstatus_to_exitcode(status))
        answering.flush()


def _send(pipe: IO[bytes], text: bytes) -> None:
    pipe.write(len(text).to_bytes(_LENGTH) + text)
    pipe.flush()


def _run(request: Request) -> int:
    asyncio.run(_operate(request))
    return SURVIVED


async def _operate(request: Request) -> None:
    seam = Seam(request.strike)
    with steady(), installed(seam):
        storage = await lash.open(request.url, clock=ManualClock(request.now_ms))
        seam.armed = True
        # A child that did not reach the point ends as without a fault, possibly with its own error.
        with contextlib.suppress(lash.LashError):
            await CASES[request.name].call(storage, request.given)


async def _warm_up() -> None:
    """Import everything that a storage needs; no thread of it is left when this returns."""
    with steady():
        async with await lash.open("sqlite://") as storage:
            await storage.sessions.create("s")


if __name__ == "__main__":
    __import__("lash.postgres.storage")
    asyncio.run(_warm_up())
    serve(sys.stdin.buffer, sys.stdout.buffer)
