"""Stopping a process where it is in nobody's way."""

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
    """Stop a child with SIGSTOP while nobody writes to the storage.

    A call is answered before its writer has let go of the database. Whoever is stopped between the two keeps all
    others out until it is woken, as any writer does that is stopped; that is not what the tests are about.
    """
    async with asyncio.timeout(PATIENCE_S):
        while True:
            process.send_signal(signal.SIGSTOP)
            # The signal is sent, and works when the kernel gets to it.
            await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if await _nobody_writes(url):
                return
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.02)


async def _nobody_writes(url: str) -> bool:
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
