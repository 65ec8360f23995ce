"""A process that deletes a session and is killed while doing so.

``python -m tests.proof.concurrency.session_deleter URL SESSION STATEMENT`` kills itself before that statement,
and prints a line if it survives until the acknowledgement.
"""

from __future__ import annotations

import asyncio
import sys

import lash
from tests.proof.concurrency.trap import Trap


async def main(url: str, session_id: str, statement: int) -> None:
    trap = Trap(statement)
    async with await lash.open(url, on_statement=trap) as storage:
        trap.armed = True
        await storage.sessions.delete(session_id)
        trap.armed = False
        sys.stdout.write("deleted\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
