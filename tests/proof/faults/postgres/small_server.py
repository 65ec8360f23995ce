"""A program that fills the disk of a server: ``unshare -m python -m tests.proof.faults.postgres.small_server``.

It mounts a small file system, in its own namespace, for the tables of a database, starts a server,
and prints the first refusal, whether all acknowledged writes are there, and whether freed space was used again.
"""

from __future__ import annotations

import asyncio
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Final

import lash
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.backends import run_sql
from tests.contract.queue_state import late

_SIZE: Final = "24m"
_BALLAST: Final = 4_000_000
_MANY: Final = 500


async def main(url: str, ballast: Path) -> None:
    """Fill the database with incompressible messages, free space, and go on."""
    async with await lash.open(url) as storage:
        await storage.sessions.create("s")
        kind, sent = await _fill(storage)
        kept = len(await storage.queue.list("s", limit=_MANY))
        await asyncio.to_thread(ballast.unlink)
        await storage.queue.enqueue(late("after", source_key="after"))
        again = len(await storage.queue.list("s", limit=_MANY))
    sys.stdout.write(f"{kind} {kept == sent} {again == sent + 1}\n")


async def _fill(storage: lash.Storage) -> tuple[str, int]:
    text = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(20_000))
    for number in range(_MANY):
        try:
            await storage.queue.enqueue(late(text[number:] + text[:number], source_key=str(number)))
        except lash.LashError as error:
            return type(error).__name__, number
    return "never", _MANY


if __name__ == "__main__":
    # A path that the server's user can reach, unlike the temporary directories of tests; the mount is private.
    target = Path("/mnt")
    server_user = pwd.getpwnam("nobody").pw_uid
    options = f"size={_SIZE},uid={server_user},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(target)], check=True)
    with PostgresServer(binaries=find_binaries()) as server:
        run_sql(server.url, f"CREATE TABLESPACE small LOCATION '{target}'", "CREATE DATABASE small TABLESPACE small")
        filler = target / "ballast"
        filler.write_bytes(bytes(_BALLAST))
        asyncio.run(main(server.url.removesuffix("/postgres") + "/small", filler))
