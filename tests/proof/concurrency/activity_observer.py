"""A process that observes session ``s`` from a cursor on and prints each value as one line of JSON.

``python -m tests.proof.concurrency.activity_observer URL CURSOR``.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

import lash
from lash.runtime.observe.stream import observe


async def main(url: str, cursor: str) -> None:
    async with await lash.open(url) as storage:
        async for observed in observe(storage, "s", cursor):
            sys.stdout.buffer.write(msgspec.json.encode(observed) + b"\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
