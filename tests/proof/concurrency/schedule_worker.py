"""A process that fires schedules until it is killed.

``python -m tests.proof.concurrency.schedule_worker URL`` prints the name of each statement, before it is sent.
"""

from __future__ import annotations

import asyncio
import sys

import lash


def _say(statement: str) -> None:
    sys.stdout.write(f"{statement}\n")
    sys.stdout.flush()


async def fire_forever(url: str) -> None:
    """Fire due schedules in a loop."""
    async with await lash.open(url, on_statement=_say) as storage:
        while True:
            try:
                if not await storage.schedules.fire_due():
                    await asyncio.sleep(0.02)
            except lash.StoreUnavailable:
                continue


if __name__ == "__main__":
    asyncio.run(fire_forever(sys.argv[1]))
