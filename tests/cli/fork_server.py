"""Runs the command many times without importing everything each time.

A process that has loaded the modules forks for every run. Each run is a process with its own files, directory and
environment, like a newly started one. `tests.cli.kit` starts the server; it exits when its socket closes.
"""

from __future__ import annotations

import io
import os
import socket
import sys
from typing import Any

import msgspec

import lash.cli.root
import lash.postgres.storage
import lash.sqlite.storage
from lash.cli.main import main

_LARGEST_REQUEST = 1 << 20
_FILES = 3


def serve(asking: socket.socket) -> None:
    """Run the command for each request, one after the other, and answer with its exit code."""
    while True:
        request, files, _flags, _address = socket.recv_fds(asking, _LARGEST_REQUEST, _FILES)
        if not request:
            return
        child = os.fork()
        if child == 0:
            asking.close()
            os._exit(_run(msgspec.json.decode(request), files))
        for file in files:
            os.close(file)
        _pid, status = os.waitpid(child, 0)
        asking.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run(request: dict[str, Any], files: list[int]) -> int:
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"), encoding=encoding)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), encoding=encoding)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb"), encoding=encoding, errors="backslashreplace", line_buffering=True)
    code = main(request["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    assert all((lash.cli.root, lash.postgres.storage, lash.sqlite.storage))
    serve(socket.socket(fileno=int(sys.argv[1])))
