"""A worker with default options: ``python -m tests.proof.contention.plain_worker URL DIRECTORY``.

Its agent answers with the message after a step of 50 ms. Warnings and errors go to a file in the directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import lash


def build(url: str) -> lash.App:
    app = lash.App(url)

    @app.agent
    async def napping(turn: lash.Turn) -> str:
        await turn.step("nap", asyncio.sleep, 0.05)
        return turn.text

    return app


async def work(url: str) -> None:
    async with build(url) as app:
        await app.run()


if __name__ == "__main__":
    logging.basicConfig(filename=Path(sys.argv[2]) / f"{os.getpid()}.log", level=logging.WARNING)
    asyncio.run(work(sys.argv[1]))
