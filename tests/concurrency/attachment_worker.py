"""A process that puts or sweeps attachments until it is killed.

``python -m tests.concurrency.attachment_worker put URL FILES NAME`` prints a line for each attachment that is
committed, after the acknowledgement; with ``sweep`` it prints a line for each sweep. FILES is a folder for the bytes,
or ``-`` for the database.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys

import lash

DIGESTS = 5
"""Few, so that puts and sweeps meet on the same ones all the time."""


def content_of(number: int) -> bytes:
    """Return the bytes of one of the digests."""
    return b"shared bytes %d " % number * 50


async def opened(url: str, files: str) -> lash.Storage:
    """Open the storage with its byte store."""
    return await lash.open(url, attachment_bytes=None if files == "-" else lash.FileBytes(files))


async def nobody_lives(entry: lash.AttachmentEntry) -> bool:
    """Answer that the owner is gone."""
    return True


async def put_forever(url: str, files: str, name: str) -> None:
    """Put into ever new sessions; most are committed, some are left for the sweepers."""
    chance = random.Random(name)
    async with await opened(url, files) as storage:
        for number in itertools.count():
            session_id = f"{name}-{number}"
            await storage.sessions.create(session_id)
            which = chance.randrange(DIGESTS)
            stamped: tuple[str, ...] = ()
            while not stamped and chance.random() < 0.9:
                # A sweep of age zero may take the announcement before the stamp: then it is put again.
                ref = await storage.attachments.put(session_id, content_of(which), "text/plain")
                stamped = await storage.attachments.commit_refs(session_id, [ref.id])
            if stamped:
                say(f"{session_id} {which}")
            if number % 3 == 0:
                # Forgetting what was committed makes the digest free again, so that sweeps really delete.
                for entry in range(max(0, number - 10), number - 2):
                    await storage.attachments.forget(f"{name}-{entry}", lash_id(content_of(which)))


def lash_id(content: bytes) -> str:
    """Return the id of bytes."""
    import hashlib

    return hashlib.sha256(content).hexdigest()


async def sweep_forever(url: str, files: str, name: str) -> None:
    """Sweep without pause, and with no mercy for age."""
    async with await opened(url, files) as storage:
        while True:
            report = await storage.attachments.sweep(0, nobody_lives)
            say(f"{name} {len(report.swept)} {len(report.deleted)}")


def say(line: str) -> None:
    """Print at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run({"put": put_forever, "sweep": sweep_forever}[sys.argv[1]](*sys.argv[2:]))
