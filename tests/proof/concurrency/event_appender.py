"""A process that appends one event to one process for each line it is told.

``python -m tests.proof.concurrency.event_appender URL PROCESS`` says ``ready`` when it has opened the storage. Each
line is the type of an event to append. It answers with the moment of the acknowledgement, in nanoseconds of the
machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import sys
import time

import lash
from lash.model.process.event import EventDraft


async def append_as_told(url: str, process_id: str) -> None:
    """Append what the lines name until there are no more."""
    async with await lash.open(url) as storage:
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            await storage.events.append(process_id, EventDraft(event_type=line.strip()))
            _say(str(time.monotonic_ns()))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(append_as_told(*sys.argv[1:]))
