"""Starts programs of the tests as forks of a process that has lash loaded.

Many tests start processes in order to kill them, and loading lash takes longer than what most of them do. A forked
program has its own files and its own process id, and can be killed and stopped like any other. ``start`` is for
``subprocess.Popen([sys.executable, "-m", module, ...], stdin=PIPE, stdout=PIPE, text=True)``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from typing import IO, NoReturn

import msgspec

from tests.backends import TESTS_FOLDER

_LARGEST_REQUEST = 1 << 20
_FILES = 4


class Program:
    """A running program, with the part of `subprocess.Popen` that the tests need."""

    def __init__(self, stdin: IO[str], stdout: IO[str], report: IO[bytes]) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self._report = report
        self._reported = b""
        while b"\n" not in self._reported:
            self._reported += report.read(64)
        self.pid = int(self._reported.partition(b"\n")[0])
        self.returncode: int | None = None
        os.set_blocking(report.fileno(), False)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def poll(self) -> int | None:
        """Return the exit code if the program has ended."""
        if self.returncode is None:
            self._reported += self._report.read(64) or b""
            code = self._reported.partition(b"\n")[2]
            self.returncode = int(code) if code else None
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        """Wait for the end, and return the exit code."""
        limit = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > limit:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.002)
        return code

    def communicate(self, given: str = "", timeout: float = 60) -> tuple[str, None]:
        """Write and close the input; return the rest of the output once the program has ended. Idempotent."""
        if self.stdout.closed:
            return "", None
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(given)
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        rest = self.stdout.read()
        self.wait(timeout)
        self.stdout.close()
        self._report.close()
        return rest, None


def start(module: str, *arguments: str) -> Program:
    """Start a module of the tests in a process of its own."""
    return _starter().start(module, arguments)


def run(module: str, *arguments: str) -> tuple[int, str]:
    """Run a module of the tests to its end, and return its exit code and its output."""
    program = start(module, *arguments)
    output, _ = program.communicate()
    return program.wait(), output


class _Starter:
    """The connection to the process that forks."""

    def __init__(self) -> None:
        self._asking, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_programs", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=TESTS_FOLDER.parent,
            )
        atexit.register(self.close)

    def start(self, module: str, arguments: tuple[str, ...]) -> Program:
        stdin, to_program = os.pipe()
        from_program, stdout = os.pipe()
        reports, report = os.pipe()
        given = (stdin, stdout, report)
        try:
            socket.send_fds(self._asking, [msgspec.json.encode([module, *arguments])], given)
        finally:
            for file in given:
                os.close(file)
        return Program(os.fdopen(to_program, "w"), os.fdopen(from_program), os.fdopen(reports, "rb", buffering=0))

    def close(self) -> None:
        self._asking.close()
        self._server.wait()


@functools.cache
def _starter() -> _Starter:
    return _Starter()


def _serve(asking: socket.socket) -> None:
    """Fork for each request, until the other side is closed."""
    while True:
        request, files, _flags, _address = socket.recv_fds(asking, _LARGEST_REQUEST, _FILES)
        if not request:
            return
        if os.fork() == 0:
            asking.close()
            _watch(msgspec.json.decode(request, type=list[str]), *files)
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _watch(words: list[str], stdin: int, stdout: int, report: int) -> None:
    """Fork once more; the parent reports the process id and the end of the program, the child returns and runs it."""
    program = os.fork()
    if program == 0:
        os.close(report)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.close(stdin)
        os.close(stdout)
        _run(words)
    os.close(stdin)
    os.close(stdout)
    os.write(report, f"{program}\n".encode())
    _pid, status = os.waitpid(program, 0)
    # The test may have closed its end.
    with contextlib.suppress(BrokenPipeError):
        os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _run(words: list[str]) -> NoReturn:
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.argv = [*words]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    # Up through the server, to the ordinary end of an interpreter.
    raise SystemExit


if __name__ == "__main__":
    import lash.postgres.storage
    import lash.runtime.app
    import lash.sqlite.storage
    import lash.transfer

    assert all((lash.postgres.storage, lash.runtime.app, lash.sqlite.storage, lash.transfer))
    _serve(socket.socket(fileno=int(sys.argv[1])))
