"""Running the command as a user would: as a program, through pipes, and on a terminal."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import pty
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.cli.fork_server import CLIENT

Ended = subprocess.CompletedProcess[str]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
_AGES = re.compile(r"(?<![\w.-])\+?\d+[ydhms](?:\d+[dhms])?(?![\w-])")
# Makes the terminal the controlling one, so that Ctrl-C is a signal, then execs the command.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
_NEUTRAL = (
    *("LASH_URL", "LASH_KEYS", "NO_COLOR", "TERM", "COLUMNS", "LINES", "LC_ALL"),
    *("_LASH_COMPLETE", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"),
)


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this environment with these variables and without variables that change the output."""
    kept = {name: value for name, value in os.environ.items() if name not in _NEUTRAL}
    kept["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    return {**kept, "LC_ALL": "C.UTF-8", **(variables or {})}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lash", *arguments]


class _Starter:
    """Has the command run by a process that has its modules loaded; see `tests.cli.fork_server`."""

    def __init__(self) -> None:
        self._asking, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking.settimeout(PATIENCE_S)
        self._directory = tempfile.TemporaryDirectory(prefix="lashcli")
        self.address = f"{self._directory.name}/socket"
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(self.address)
            listening.listen()
            files = [theirs.fileno(), listening.fileno()]
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.fork_server", *map(str, files)],
                pass_fds=files,
                env=environment(),
                cwd=ROOT,
            )
        atexit.register(self.close)

    def run(self, arguments: Sequence[str], variables: dict[str, str], given: str, directory: Path) -> Ended:
        request = {"arguments": arguments, "environment": variables, "directory": str(directory)}
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(given.encode())
            files[0].seek(0)
            socket.send_fds(self._asking, [msgspec.json.encode(request)], [file.fileno() for file in files])
            code = int(self._asking.recv(64))
            for file in files:
                file.seek(0)
            return Ended(list(arguments), code, files[1].read().decode(), files[2].read().decode())

    def close(self) -> None:
        self._asking.close()
        self._server.wait()
        self._directory.cleanup()


@functools.cache
def _starter() -> _Starter:
    return _Starter()


def run(
    *arguments: str,
    url: str | None = None,
    variables: Mapping[str, str] | None = None,
    given: str = "",
    cwd: Path | None = None,
) -> Ended:
    """Run the command without a terminal, and return how it ended."""
    named = {"LASH_URL": url} if url is not None else {}
    return _starter().run(arguments, environment({**named, **(variables or {})}), given, cwd or ROOT)


def write_program(path: Path) -> None:
    """Write a program that runs the command as `run` does, for shells to start."""
    path.write_text(CLIENT.format(python=sys.executable, address=_starter().address))
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def output(*arguments: str, url: str) -> str:
    """Return the output of a command that must succeed with nothing on standard error."""
    ended = run(*arguments, url=url)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout


def values(*arguments: str, url: str) -> list[Any]:
    """Return the JSON values of the output, one from each line."""
    return [msgspec.json.decode(line) for line in output(*arguments, "--json", url=url).splitlines()]


def ageless(text: str) -> str:
    """Return a table with every age replaced, and its padding collapsed."""
    lines = (re.sub(r" {3,}", "   ", _AGES.sub("AGE", line)).rstrip() for line in text.splitlines())
    return "\n".join(lines)


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self._process = process
        self._screen = screen
        self.text = ""

    def read_until(self, wanted: str) -> str:
        """Read until the screen shows a text; fail if the command ends first."""
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in self.text:
            assert time.monotonic() < deadline, self.text
            if not self._read() and self._process.poll() is not None and not self._read():
                raise AssertionError(f"the command ended before it printed {wanted!r}: {self.text!r}")
        return self.text

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def end(self) -> int:
        """Read until the command ends, and return its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read()
        while self._read():
            pass
        return self._process.returncode

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], 0.05)
        if not ready:
            return False
        try:
            chunk = os.read(self._screen, 65_536)
        except OSError:
            # EIO on Linux: the last program has closed the terminal.
            return False
        self.text += chunk.decode().replace("\r\n", "\n")
        return bool(chunk)


@contextlib.contextmanager
def terminal(
    *arguments: str,
    url: str,
    columns: int = 100,
    variables: Mapping[str, str] | None = None,
    program: Sequence[str] = (),
) -> Iterator[Terminal]:
    """Start the command, or a program, on a terminal of this width; kill it at the end if it still runs."""
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, *(program or command(*arguments))],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=environment({"LASH_URL": url, "TERM": "xterm-256color", **(variables or {})}),
        start_new_session=True,
    )
    os.close(inside)
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(screen)
