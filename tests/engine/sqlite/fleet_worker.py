"""A worker in a process of its own, ``python -m tests.engine.sqlite.fleet_worker URL``; it ends with its input.

It prints a line when it is registered, and for each line of its input how many statements it has run so far.
"""

from __future__ import annotations

import asyncio
import os
import sys

import lash
from tests.runtime.worker_kit import until


class Statements(lash.Hook):
    """Counts statements."""

    def __init__(self) -> None:
        self.count = 0

    def statement(self, _name: str) -> None:
        self.count += 1


def echo_app(url: str, *hooks: lash.Hook, worker: bool = True) -> lash.App:
    """Return an app whose agent answers with what it was asked; nothing is found by a poll without a hint."""
    app = lash.App(url, worker=worker, hooks=hooks, options=lash.WorkerOptions(poll_s=60))

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        return turn.text

    return app


async def _main(url: str) -> None:
    counted = Statements()
    loop = asyncio.get_running_loop()
    async with echo_app(url, counted) as app:

        async def is_registered() -> bool:
            return os.getpid() in [each.beat.pid for each in await app.storage.workers.list()]

        await until(is_registered)
        _write("ready")
        while await loop.run_in_executor(None, sys.stdin.readline):
            _write(str(counted.count))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
