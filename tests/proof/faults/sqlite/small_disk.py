"""A program that fills a real file system: ``unshare -rm python -m tests.proof.faults.sqlite.small_disk DIRECTORY``.

It mounts a small file system on the directory, in its own namespace, and prints the result of each step.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Final

import lash
from tests.contract.queue_state import late

_SIZE: Final = "4m"
_BALLAST: Final = 1_000_000
_MANY: Final = 1_000


async def main(directory: Path) -> None:
    """Fill the disk with messages, free space, and go on; the same with an attachment."""
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(_BALLAST))
    store = lash.FileBytes(directory / "attachments")
    url = f"sqlite:///{directory / 'lash.db'}?checkpoint_pages=50"
    async with await lash.open(url, attachment_bytes=store) as storage:
        await storage.sessions.create("s")
        sent = await _fill(storage)
        before = len(await storage.queue.list("s", limit=_MANY))
        full = await _attach(storage)
        ballast.unlink()
        await storage.queue.enqueue(late("after", source_key="after"))
        room = await _attach(storage)
    async with await lash.open(url, attachment_bytes=store) as storage:
        after = len(await storage.queue.list("s", limit=_MANY))
        clean = (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
    sys.stdout.write(f"{sent == before} {after == before + 1} {sent > 0} {full} {room} {clean}\n")


async def _fill(storage: lash.Storage) -> int:
    """Return how many messages were accepted before the disk was full."""
    for number in range(_MANY):
        try:
            await storage.queue.enqueue(late("x" * 20_000, source_key=str(number)))
        except lash.StorageFailure:
            return number
    return -1


async def _attach(storage: lash.Storage) -> str:
    try:
        ref = await storage.attachments.put("s", b"y" * 500_000, "text/plain")
    except lash.StorageFailure:
        return "refused"
    return "kept" if (await storage.attachments.get("s", ref.id)).content == b"y" * 500_000 else "lost"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", str(target)], check=True)
    asyncio.run(main(target))
