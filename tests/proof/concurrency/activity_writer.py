"""A process that shows numbers in session ``s`` as a turn would, and commits after every tenth.

``python -m tests.proof.concurrency.activity_writer URL COUNT``.
"""

from __future__ import annotations

import asyncio
import sys

import lash
from lash.runtime.observe.activity import ActivityWriter
from tests.factories.session import commit, node

PIECES = 10


async def main(url: str, count: int) -> None:
    async with await lash.open(url) as storage:
        session, writer = storage.session("s"), ActivityWriter(storage.activity)
        for number in range(1, count + 1):
            writer.show("s", f"turn {number // PIECES}", number)
            await asyncio.sleep(0.001)
            if number % PIECES == 0:
                await writer.flush("s")
                turn = number // PIECES
                await session.commit(commit(turn, node(f"n{turn}", "a" if turn == 1 else f"n{turn - 1}")))
        await writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
