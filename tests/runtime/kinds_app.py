"""The application of workers of several kinds: ``lash worker tests.runtime.kinds_app:app``.

Every reply and result is the pid of the worker.
"""

from __future__ import annotations

import os

import lash

kinds = lash.Router()


@kinds.agent
async def clerk(turn: lash.Turn) -> str:
    if turn.text == "start":
        return await (await turn.start(index)).result()
    return str(os.getpid())


@kinds.agent
async def judge(_turn: lash.Turn) -> str:
    return str(os.getpid())


@kinds.process
async def index(_ctx: lash.Context) -> str:
    return str(os.getpid())


app = lash.App(os.environ.get("LASH_TEST_URL", "sqlite://"), options=lash.WorkerOptions(poll_s=0.2))
app.include(kinds)
