"""A process that runs an app, its worker and some clients, and records all their calls to the storage.

``python -m tests.proof.contention.worker URL NAME SEED DIRECTORY``: the clients stop once the directory has a file
``stop``, and the process ends once it has a file ``end``. It also ends cleanly on SIGTERM.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
from pathlib import Path
from typing import Any, Final
from unittest import mock

import lash
import lash.runtime.app
from lash.stores.storage import Storage
from tests.proof.contention.client import Chain, Client
from tests.proof.contention.history import Recorder
from tests.proof.contention.recording import recorded

CLIENTS: Final = 2
OPTIONS: Final = lash.WorkerOptions(lease_ttl_s=2.0, poll_s=0.3, grace_s=5, sessions=4, processes=8, maintenance_s=1.0)


def build(url: str, name: str) -> tuple[lash.App, Chain]:
    """Return an app whose steps have a different outcome each time they run."""
    app = lash.App(url, options=OPTIONS)
    numbers = itertools.count()

    async def invent() -> str:
        return f"{name}!{next(numbers)}"

    @app.agent
    async def inventive(turn: lash.Turn) -> str:
        return await turn.step("invent", invent)

    @app.process
    async def chain(ctx: lash.Context, length: int) -> list[str]:
        links: list[str] = []
        for _ in range(length):
            links.append(await ctx.step("invent", invent))
            await ctx.sleep(0.05)
        await ctx.wake(f"{ctx.process_id} is done")
        return links

    app.on("press", chain, inputs={"length": 2})
    return app, chain


async def work(url: str, name: str, seed: str, directory: Path) -> None:
    recorder = Recorder(directory / f"{name}.history", name)
    really_open = lash.open

    async def open_recorded(url: str, **options: Any) -> Storage:  # noqa: ANN401 - as they are
        return recorded(await really_open(url, **options), recorder)

    asked_to_end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_end.set)

    def is_over(name: str) -> bool:
        return asked_to_end.is_set() or (directory / name).exists()

    with mock.patch.object(lash.runtime.app, "open_storage", open_recorded):
        app, chain = build(url, name)
        async with app, asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                client = Client(app, chain, f"{name}.{number}", random.Random(f"{seed} {name} {number}"))
                group.create_task(client.run(lambda: is_over("stop")))
            while not is_over("end"):  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
