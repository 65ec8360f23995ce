"""A process that puts or sweeps attachments until it is killed.

``python -m tests.proof.concurrency.attachment_worker put URL FILES NAME`` prints a line for each attachment that it
keeps, after its commit was acknowledged; with ``sweep`` it prints a line for each sweep. FILES is a directory
for the bytes, or ``-`` for the database.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys

import lash

ROUND = 12
"""Each process keeps one of this many puts of the same bytes; after the others the bytes become free again."""


def content_of(number: int) -> bytes:
    """Return the bytes that every process puts in this round."""
    return b"shared bytes %d " % number * 50


async def opened(url: str, files: str) -> lash.Storage:
    """Open the storage with its byte store."""
    return await lash.open(url, attachment_bytes=None if files == "-" else lash.FileBytes(files))


async def nobody_lives(entry: lash.model.AttachmentEntry) -> bool:
    """Report that the owner is gone."""
    return True


async def put_forever(url: str, files: str, name: str) -> None:
    """Put, commit, read and mostly forget the same bytes as all other processes."""
    async with await opened(url, files) as storage:
        await storage.sessions.create(name)
        for number in itertools.count():
            ref = await put_and_commit(storage, name, content_of(number // ROUND))
            found = await storage.attachments.get(name, ref.id)
            assert found.content == content_of(number // ROUND)
            if number % ROUND == ROUND - 1:
                say(f"{name} {ref.id}")
            else:
                await storage.attachments.forget(name, ref.id)


async def put_and_commit(storage: lash.Storage, name: str, content: bytes) -> lash.AttachmentRef:
    """Put until it is committed: sweeps of age zero may take the announcement before the bytes or the stamp."""
    while True:
        try:
            ref = await storage.attachments.put(name, content, "text/plain")
        except lash.StoreUnavailable:
            continue
        if await storage.attachments.commit_refs(name, [ref.id]):
            return ref


async def sweep_forever(url: str, files: str, name: str) -> None:
    """Sweep almost without pause, at age zero."""
    async with await opened(url, files) as storage:
        while True:
            report = await storage.attachments.sweep(0, nobody_lives)
            say(f"{name} {len(report.deleted)}")
            await asyncio.sleep(random.uniform(0, 0.02))


def say(line: str) -> None:
    """Print at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run({"put": put_forever, "sweep": sweep_forever}[sys.argv[1]](*sys.argv[2:]))
