"""A worker in trouble: a failure in one place does not affect the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import lash
from lash.model.lease import Lease, LeaseFence
from lash.model.trigger.schedule import Fired
from lash.runtime.hooks import Attributes
from tests.runtime.stage_kit import staged
from tests.runtime.worker_kit import PATIENCE_S, until


class Notes(lash.Hook):
    """Keeps the events that it receives."""

    def __init__(self) -> None:
        self.troubles: list[str] = []

    def note(self, kind: str, attributes: Attributes) -> None:
        if kind == "worker.trouble":
            self.troubles.append(str(attributes["error"]))


async def test_a_timer_that_cannot_be_fired_keeps_no_message_back(
    backend_name: str, backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns and processes continue while timers fail repeatedly, and hooks are notified."""
    notes = Notes()

    async def refuse(*, limit: int = 100) -> tuple[Fired, ...]:
        raise lash.StoreUnavailable("the schedules cannot be read")

    async with staged(backend_name, backend_url) as stage:
        app = stage.app(notes, worker=True, options=lash.WorkerOptions(poll_s=0.1))

        @app.agent
        async def answering(turn: lash.Turn) -> str:
            return f"received {turn.text}"

        @app.process
        async def ticking(ctx: lash.Context) -> str:
            return "ran"

        app.cron("* * * * *", ticking)
        async with app:
            monkeypatch.setattr(app.storage.schedules, "fire_due", refuse)
            await stage.clock.advance(3_600_000)
            await until(lambda: len(notes.troubles) >= 2)
            assert await app.session("s").ask("one", timeout_s=PATIENCE_S) == "received one"
            assert await (await app.start(ticking)).result(timeout_s=PATIENCE_S) == "ran"
    assert set(notes.troubles) == {"StoreUnavailable: the schedules cannot be read"}


async def test_a_renewal_that_hangs_costs_no_other_its_lease(backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All leases are renewed concurrently, and one that cannot be renewed in time is given up."""
    app = lash.App(backend_url, options=lash.WorkerOptions(lease_ttl_s=1.5))
    renewed: Counter[str] = Counter()
    gate = asyncio.Event()

    @app.agent
    async def waiting(turn: lash.Turn) -> str:
        await gate.wait()
        return "done"

    async with app:
        renew = app.storage.leases.renew

        async def hang(fence: LeaseFence, *, ttl_ms: int) -> Lease:
            renewed[fence.resource.id] += 1
            if fence.resource.id == "hangs":
                await asyncio.Event().wait()
            return await renew(fence, ttl_ms=ttl_ms)

        monkeypatch.setattr(app.storage.leases, "renew", hang)
        await app.session("hangs").send("x", key="1")
        asked = asyncio.create_task(app.session("lives").ask("x", key="1"))
        await until(lambda: renewed["hangs"] >= 2 and renewed["lives"] >= 4)
        gate.set()
        assert await asked == "done"


async def test_an_unexpected_error_ends_no_renewal(backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that raises an error of no kind that lash knows is noted and retried; the run keeps its lease."""
    notes = Notes()
    app = lash.App(backend_url, options=lash.WorkerOptions(lease_ttl_s=3), hooks=[notes])
    renewed, runs = asyncio.Event(), list[int]()
    tries = 0

    @app.agent
    async def waiting(turn: lash.Turn) -> str:
        runs.append(turn.attempt)
        await renewed.wait()
        return "done"

    async with app:
        renew = app.storage.leases.renew

        async def fail(fence: LeaseFence, *, ttl_ms: int) -> Lease:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise MemoryError("made for the test")
            lease = await renew(fence, ttl_ms=ttl_ms)
            renewed.set()
            return lease

        monkeypatch.setattr(app.storage.leases, "renew", fail)
        assert await app.session("s").ask("x", timeout_s=PATIENCE_S) == "done"
    assert runs == [1]
    assert notes.troubles == ["MemoryError: made for the test"]


async def test_an_unexpected_error_ends_no_maintenance(backend_url: str, tmp_path: Path) -> None:
    """A byte store that raises an error of its own is tried again in the next round, and hooks are notified."""

    class Unreliable(lash.FileBytes):
        async def sweep_stale(self) -> int:
            raise ValueError("made for the test")

    notes = Notes()
    options = lash.WorkerOptions(maintenance_s=0.05)
    async with lash.App(backend_url, options=options, hooks=[notes], attachment_bytes=Unreliable(tmp_path)):
        await until(lambda: len(notes.troubles) >= 2)
    assert set(notes.troubles) == {"ValueError: made for the test"}


async def test_a_renewal_that_fails_is_repeated_soon(backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals that fail are retried at once, not a third of a lifetime later: the run keeps its lease."""
    notes = Notes()
    app = lash.App(backend_url, options=lash.WorkerOptions(lease_ttl_s=6), hooks=[notes])
    renewed, runs = asyncio.Event(), list[int]()
    failures = 5

    @app.agent
    async def waiting(turn: lash.Turn) -> str:
        runs.append(turn.attempt)
        await renewed.wait()
        return "done"

    async with app:
        renew = app.storage.leases.renew

        async def fail(fence: LeaseFence, *, ttl_ms: int) -> Lease:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise lash.StoreUnavailable("made for the test")
            lease = await renew(fence, ttl_ms=ttl_ms)
            renewed.set()
            return lease

        monkeypatch.setattr(app.storage.leases, "renew", fail)
        assert await app.session("s").ask("x", timeout_s=PATIENCE_S) == "done"
    assert runs == [1]
