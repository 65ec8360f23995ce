"""A process that appends one event for each line of standard input.

``python -m tests.proof.concurrency.event_appender URL PROCESS`` prints ``ready`` once the storage is open. Each
line is the type of an event to append. It prints the time of the acknowledgement, in nanoseconds of the
machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import sys
import time

import lash
from lash.model.process.event import EventDraft


async def append_each_line(url: str, process_id: str) -> None:
    """Append the event that each line names until the input ends."""
    async with await lash.open(url) as storage:
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            await storage.events.append(process_id, EventDraft(event_type=line.strip()))
            _say(str(time.monotonic_ns()))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(append_each_line(*sys.argv[1:]))
