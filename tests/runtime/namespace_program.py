"""Claims leases from inside a namespace: ``python -m tests.runtime.namespace_program ACTION URL``.

``hold`` claims the lease of session ``s``, prints ``held`` and waits until its input ends. ``take`` reclaims a lease
that another process holds, and prints ``acquired`` or ``busy``. With ``--pid N`` it runs as process N of its namespace.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

import lash
from lash.backend.liveness import worker_owner
from lash.model.lease import Acquired, Busy

_TTL_MS = 3_600_000


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def hold(url: str) -> None:
    async with await lash.open(url) as storage:
        claimed = await storage.leases.claim("s", worker_owner("holder"), ttl_ms=_TTL_MS)
        assert isinstance(claimed, Acquired)
        say("held")
        await asyncio.to_thread(sys.stdin.read)


async def take(url: str) -> None:
    async with await lash.open(url) as storage:
        owner = worker_owner("claimant")
        found = await storage.leases.claim("s", owner, ttl_ms=_TTL_MS)
        assert isinstance(found, Busy)
        taken = await storage.leases.reclaim("s", owner, observed=found.holder, ttl_ms=_TTL_MS)
        say("acquired" if isinstance(taken, Acquired) else "busy")


def become(pid: int) -> None:
    """Go on in a child with this pid; needs a pid namespace in which it is free."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1), encoding="ascii")
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert os.getpid() == pid


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("hold", "take"))
    parser.add_argument("url")
    parser.add_argument("--pid", type=int)
    given = parser.parse_args()
    if given.pid is not None:
        become(given.pid)
    asyncio.run(hold(given.url) if given.action == "hold" else take(given.url))


if __name__ == "__main__":
    main()
