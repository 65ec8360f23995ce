"""Real outages of a database: a server that is stopped, a file whose write lock another process holds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from lash.testing.postgres_server import PostgresServer

_HOLD: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""
_PATIENCE_MS: Final = 20
"""How long lash waits for the lock of the other process: much shorter than the outage."""


class Outage(Protocol):
    """A database that can be taken away."""

    url: str

    async def begin(self) -> None:
        """Take the database away; writes fail from now on."""
        ...

    async def end(self) -> None:
        """Bring it back, with everything that it acknowledged."""
        ...


class StoppedServer:
    """A PostgreSQL server that is stopped as by a crash, and started again."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self.url = url

    async def begin(self) -> None:
        await asyncio.to_thread(self._server.stop, immediate=True)

    async def end(self) -> None:
        await asyncio.to_thread(self._server.start)


class LockedFile:
    """A SQLite file whose write lock another process holds, beyond the patience of lash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}?busy_timeout_ms={_PATIENCE_MS}"
        self._holder: subprocess.Popen[bytes] | None = None

    async def begin(self) -> None:
        await asyncio.to_thread(self._hold)

    async def end(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            await asyncio.to_thread(holder.communicate)
            assert holder.returncode == 0

    def _hold(self) -> None:
        command = [sys.executable, "-S", "-c", _HOLD, str(self._path)]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"held\n"

    def kill(self) -> None:
        """End the other process, whatever the test did."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()


@contextmanager
def locked_file(path: Path) -> Iterator[LockedFile]:
    """Yield a file whose lock is free after the test."""
    file = LockedFile(path)
    try:
        yield file
    finally:
        file.kill()
