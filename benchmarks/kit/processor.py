"""Processor time of processes and of a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import asyncpg

from lash.testing.postgres_server import PostgresServer

_TICKS = os.sysconf("SC_CLK_TCK")


def process_s(pid: int) -> float:
    """Return the processor time of all living threads of a process."""
    used = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            used += int((thread / "schedstat").read_text().split()[0])
    return used / 1e9


def server_pid(server: PostgresServer) -> int:
    """Return the process above all others of the server."""
    return asyncio.run(_parent_of_backend(server.url))


def server_s(pid: int) -> float:
    """Return the processor time of all processes that a server has started, ended ones included."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    living = 0.0
    for child in children:
        with contextlib.suppress(OSError):
            living += process_s(int(child))
    ended = sum(int(ticks) for ticks in _status(pid)[13:15]) / _TICKS
    return living + ended


async def _parent_of_backend(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(_status(int(await connection.fetchval("SELECT pg_backend_pid()")))[1])
    finally:
        await connection.close()


def _status(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` from the state on, which is the third of its manual page."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
