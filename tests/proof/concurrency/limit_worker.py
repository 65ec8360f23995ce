"""A worker whose agent calls services under limits.

``python -m tests.proof.concurrency.limit_worker URL FILE`` appends the time of each call to the file. For a message
that begins with ``room`` it appends the begin and the end of the call; the first one for ``room:stay`` does not end.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

import lash

PER_SECOND: Final = 10
AT_ONCE: Final = 2


async def work(url: str, path: str) -> None:
    """Run turns until the process is killed."""
    app = lash.App(url)
    app.limit("service", rate=f"{PER_SECOND}/second")
    calls = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def call(text: str) -> str:
        os.write(calls, f"{time.time()}\n".encode())
        return text

    app.limit("room", concurrency=AT_ONCE)

    async def stay(text: str) -> str:
        os.write(calls, f"begin {os.getpid()} {text}\n".encode())
        if text == "room:stay" and _is_first(path):
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        os.write(calls, f"end {os.getpid()} {text}\n".encode())
        return text

    @app.agent(name="clerk")
    async def clerk(turn: lash.Turn) -> str:
        if turn.text.startswith("room"):
            return await turn.options(limit="room").step(stay, turn.text)
        return await turn.options(limit="service").step(call, turn.text)

    async with app:
        await asyncio.Event().wait()


def _is_first(path: str) -> bool:
    return Path(path).read_text().count(":stay\n") == 1


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:3]))
