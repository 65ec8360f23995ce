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


async def _run_through(
    url: str, monkeypatch: pytest.MonkeyPatch, errors: list[Exception], *, lease_ttl_s: float
) -> tuple[list[int], list[str]]:
    """Run a turn whose first renewals raise these errors, until one succeeds; return its attempts and the troubles."""
    notes, renewed, attempts = Notes(), asyncio.Event(), list[int]()
    app = lash.App(url, options=lash.WorkerOptions(lease_ttl_s=lease_ttl_s), hooks=[notes])

    @app.agent
    async def waiting(turn: lash.Turn) -> str:
        attempts.append(turn.attempt)
        await renewed.wait()
        return "done"

    async with app:
        renew = app.storage.leases.renew

        async def fail(fence: LeaseFence, *, ttl_ms: int) -> Lease:
            if errors:
                raise errors.pop()
            lease = await renew(fence, ttl_ms=ttl_ms)
            renewed.set()
            return lease

        monkeypatch.setattr(app.storage.leases, "renew", fail)
        assert await app.session("s").ask("x", timeout_s=PATIENCE_S) == "done"
    return attempts, notes.troubles


async def test_an_unexpected_error_ends_no_renewal(backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that raises an error of no kind that lash knows is noted and retried; the run keeps its lease."""
    error = MemoryError("made for the test")
    attempts, troubles = await _run_through(backend_url, monkeypatch, [error], lease_ttl_s=3)
    assert attempts == [1]
    assert troubles == ["MemoryError: made for the test"]


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
    errors: list[Exception] = [lash.StoreUnavailable("made for the test") for _ in range(5)]
    attempts, _ = await _run_through(backend_url, monkeypatch, errors, lease_ttl_s=6)
    assert attempts == [1]
