"""A worker in a process of its own, which kills itself at a given point.

Called with a URL, a directory for its notes, and the name of the point where it dies (or ``nowhere``).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import lash
from lash.runtime.app import App
from lash.runtime.policy import Retry, WorkerOptions
from lash.runtime.processes.context import Context

OPTIONS = WorkerOptions(lease_ttl_s=1.0, poll_s=0.1)


def declare(app: App, directory: Path, dies: str = "nowhere") -> lash.ProcessDefinition[[bool], list[str]]:
    """Declare the process that worker and test share."""

    def die_at(place: str) -> None:
        if place == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    async def first() -> str:
        _note(directory, "first")
        die_at("after the effect")
        return "one"

    async def pay() -> str:
        die_at("before the payment")
        _note(directory, "pay")
        die_at("after the payment")
        return "paid"

    async def last() -> str:
        _note(directory, "last")
        return "three"

    async def job(ctx: Context, once: bool) -> list[str]:  # noqa: FBT001 (it is stored by name)
        one = await ctx.step(first)
        die_at("between the steps")
        two = await ctx.options(once=once).step(pay)
        await ctx.sleep(0.2)
        die_at("after the pause")
        return [one, two, await ctx.step(last)]

    return app.process(retry=Retry(longest_pause_s=0.2))(job)


def _note(directory: Path, name: str) -> None:
    with (directory / name).open("a") as file:
        file.write("x")


def noted(directory: Path, name: str) -> int:
    """Return how often something happened."""
    path = directory / name
    return len(path.read_text()) if path.exists() else 0


async def main(url: str, directory: str, dies: str) -> None:
    app = App(url, options=OPTIONS)
    declare(app, Path(directory), dies)
    async with app:
        await app.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
