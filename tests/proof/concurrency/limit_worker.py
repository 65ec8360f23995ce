"""A worker whose agent calls a service under a limit.

``python -m tests.proof.concurrency.limit_worker URL FILE`` appends the time of each call to the file.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Final

import lash

PER_SECOND: Final = 10


async def work(url: str, path: str) -> None:
    """Run turns until the process is killed."""
    app = lash.App(url)
    app.limit("service", rate=f"{PER_SECOND}/second")
    calls = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def call(text: str) -> str:
        os.write(calls, f"{time.time()}\n".encode())
        return text

    @app.agent(name="clerk")
    async def clerk(turn: lash.Turn) -> str:
        return await turn.options(limit="service").step(call, turn.text)

    async with app:
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:3]))
