"""Workers whose storage fails at a bad moment."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import lash
from lash.model.lease import LeaseFence
from lash.model.process.process import Outcome, ProcessRecord
from tests.runtime.turn_bench import Bench, texts
from tests.runtime.worker_kit import until


def fails(times: int, then: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a method that raises StoreUnavailable this many times."""
    left = times

    async def unreliable(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the store)
        nonlocal left
        if left > 0:
            left -= 1
            raise lash.StoreUnavailable("made for the test")
        return await then(*args, **kwargs)

    return unreliable


HURRIED = lash.WorkerOptions(poll_s=0.05, lease_ttl_s=0.3)
"""Calls of a run are given up soon; by the clock of the test the lease never expires."""


async def test_a_turn_that_could_not_be_given_back_does_not_wait_for_its_lease(bench: Bench) -> None:
    """The worker retries the release: the turn runs again before its lease expires."""
    app = await bench.app(worker=True, options=HURRIED)
    attempts: list[int] = []

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        attempts.append(turn.attempt)
        if len(attempts) == 1:
            raise lash.StoreUnavailable("made for the test")
        return "ok"

    queue, leases = app.storage.queue, app.storage.leases
    queue.abandon = fails(1_000, queue.abandon)  # type: ignore[method-assign]
    leases.release = fails(2, leases.release)  # type: ignore[method-assign]
    assert await app.session("s", agent).ask("hello", timeout_s=60) == "ok"
    assert texts(await app.session("s").messages()) == [("user", "hello"), ("assistant", "ok")]
    assert len(attempts) == 2


async def test_a_process_that_could_not_be_parked_does_not_wait_for_its_lease(bench: Bench) -> None:
    """The worker retries the release: the process runs again before its lease expires."""
    app = await bench.app(worker=True, options=HURRIED)
    leases = app.storage.process_leases
    complete, release = leases.complete, leases.release
    runs: list[str] = []

    @app.process
    async def process(ctx: lash.Context) -> str:
        runs.append("run")
        return "done"

    async def complete_later(fence: LeaseFence, outcome: Outcome) -> ProcessRecord:
        if len(runs) == 1:
            raise lash.StoreUnavailable("made for the test")
        return await complete(fence, outcome)

    leases.complete = complete_later  # type: ignore[method-assign]
    leases.release = fails(2, release)  # type: ignore[method-assign]
    handle = await app.start(process)

    async def ended() -> bool:
        return await handle.status() is lash.ProcessStatus.COMPLETED

    await until(ended)
