"""The leases of a drain that takes long."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.model.lease import Lease, LeaseFence

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def test_a_long_drain_renews_its_leases(
    backend_name: str,
    backend_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An agent that runs beyond a third of the lifetime of its lease keeps the lease; no renewal outlives the drain."""
    app = lash.App(backend_url, worker=False, options=lash.WorkerOptions(lease_ttl_s=1.5))
    renewed = asyncio.Event()

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        await asyncio.wait_for(renewed.wait(), 60)
        return "ok"

    async with app:
        leases = app.storage.leases
        renew = leases.renew

        async def noted(fence: LeaseFence, *, ttl_ms: int) -> Lease:
            lease = await renew(fence, ttl_ms=ttl_ms)
            renewed.set()
            return lease

        monkeypatch.setattr(leases, "renew", noted)
        await app.session("s", agent).send("hello", key="1")
        assert await app.drain() == 1
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert "lash-worker-renewal" not in names
        assert await app.session("s", agent).ask("hello", key="1", timeout_s=60) == "ok"
