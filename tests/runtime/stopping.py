"""Stopping a process while it holds no lock."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.raw import raw
from tests.runtime.worker_kit import PATIENCE_S

_IN_A_TRANSACTION: Final = (
    "SELECT 1 FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
)


async def stop(process: subprocess.Popen[str] | subprocess.Popen[bytes], url: str) -> None:
    """Stop a child with SIGSTOP while no process writes to the storage.

    A call returns before its writer has released the write lock. A process stopped between the two would block all
    other writers until it continues, which the tests are not about.
    """
    async with asyncio.timeout(PATIENCE_S):
        while True:
            process.send_signal(signal.SIGSTOP)
            # The kernel delivers the signal asynchronously.
            await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if await _is_idle(url):
                return
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.02)


async def _is_idle(url: str) -> bool:
    if not url.startswith("sqlite"):
        return not await raw(url, _IN_A_TRANSACTION)
    path = urlsplit(url).path.removeprefix("/")
    return all(_is_free(Path(path + suffix)) for suffix in (".turn", ".lock"))


def _is_free(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
