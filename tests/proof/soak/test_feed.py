"""The feed of process changes under a worker's own retention."""

from __future__ import annotations

import pytest

import lash
from lash.runtime.worker.maintenance import maintain
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def test_retention_bounds_the_feed_of_changes(backend_url: str) -> None:
    """A worker that removes ended processes removes old changes of them too; what is left does not add up."""
    app = lash.App(backend_url, worker=False, options=lash.WorkerOptions(keep_ended_processes_s=0))

    @app.process
    async def nothing(ctx: lash.Context) -> None:
        return None

    counts: list[int] = []
    async with app:
        for _ in range(4):
            for _ in range(5):
                await app.start(nothing)
            await app.drain()
            await maintain(app._require())
            ((count,),) = await raw(backend_url, "SELECT count(*) FROM lash_process_changes")
            counts.append(count)
    assert await raw(backend_url, "SELECT count(*) FROM lash_processes") == [(0,)]
    assert counts[-1] <= counts[1], counts
