"""Runs the command many times without importing everything each time.

A process that has loaded the modules forks for every run. Each run is a process with its own files, directory and
environment, like a newly started one. `tests.cli.kit` starts the server; it exits when its socket closes.

Programs connect to a socket in the file system instead, so that a shell can start the command: see `CLIENT`.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket
import sys
from typing import Any

import msgspec

import lash.cli.root
import lash.postgres.storage
import lash.sqlite.storage
from lash.cli.main import main

CLIENT = """#!{python} -IS
import json, os, socket, sys

server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
request = dict(arguments=sys.argv[1:], environment=dict(os.environ), directory=os.getcwd())
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
sys.exit(int(server.recv(64)))
"""
"""A program that has the server run the command with its arguments, environment, directory and files."""
_LARGEST_REQUEST = 1 << 20
_FILES = 3


def serve(asking: socket.socket, listening: socket.socket) -> None:
    """Run the command for each request of the test, one after the other, and for each program that connects."""
    while True:
        ready, _, _ = select.select([asking, listening], [], [])
        if listening in ready:
            _start(listening.accept()[0], asking, listening)
        if asking in ready and not _answer(asking, listening):
            return


def _answer(asking: socket.socket, listening: socket.socket) -> bool:
    """Run the command for a request, and answer with its exit code; return False if the socket was closed."""
    request, files, _flags, _address = socket.recv_fds(asking, _LARGEST_REQUEST, _FILES)
    if not request:
        return False
    child = os.fork()
    if child == 0:
        asking.close()
        listening.close()
        os._exit(_run(msgspec.json.decode(request), files))
    for file in files:
        os.close(file)
    _pid, status = os.waitpid(child, 0)
    asking.send(str(os.waitstatus_to_exitcode(status)).encode())
    return True


def _start(program: socket.socket, *others: socket.socket) -> None:
    """Run the command for a program beside others: a shell connects several by pipes."""
    if os.fork() == 0:
        for each in others:
            each.close()
        request, files, _flags, _address = socket.recv_fds(program, _LARGEST_REQUEST, _FILES)
        code = _run(msgspec.json.decode(request), files)
        program.send(str(code).encode())
        os._exit(0)
    program.close()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _run(request: dict[str, Any], files: list[int]) -> int:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
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
    serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
