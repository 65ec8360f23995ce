"""Killed workers: recorded steps stand, others run again, and `once` steps never do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lash.backend.liveness import current_owner
from lash.errors import Conflict, EffectNotRecorded, InvalidInput, ProcessFailed, StepFailed
from lash.model.effect import EffectError
from lash.model.process.process import ProcessStatus
from lash.runtime.app import App
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.processes.context import Context
from lash.runtime.processes.handle import ProcessHandle
from lash.runtime.processes.unknown_steps import record_outcome, run_again, unknown_steps
from tests.runtime.crashing_worker import OPTIONS, declare, noted
from tests.runtime.process_bench import World, records_of


def _killed_worker(world: World, directory: Path, dies: str) -> None:
    """Run a worker until it kills itself."""
    program = [sys.executable, "-m", "tests.runtime.crashing_worker", world.url, str(directory), dies]
    ended = subprocess.run(program, env=os.environ | {"PYTHONPATH": ":".join(sys.path)}, timeout=60, check=False)
    assert ended.returncode == -9, f"the worker should have died {dies}"


async def _crash(world: World, directory: Path, dies: str, *, once: bool) -> tuple[App, ProcessHandle[list[str]]]:
    """Return an application without a worker and a process whose worker was killed."""
    if not world.shared:
        pytest.skip("a database in memory has one process")
    app = await world.app(real_time=True, options=OPTIONS)
    handle = await app.start(declare(app, directory), once)
    await asyncio.to_thread(_killed_worker, world, directory, dies)
    return app, handle


async def _drain_until(app: App, done: Callable[[], Awaitable[bool]]) -> None:
    """Drain repeatedly: leases and pauses end in real time here."""
    for _ in range(200):
        await app.drain()
        if await done():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came to that")


async def _once_lapsed(call: Callable[[], Awaitable[object]]) -> None:
    """Call once the claim of the dead runner has expired; before that it counts as live."""
    for _ in range(200):
        try:
            await call()
        except Conflict as early:
            if "is running" not in str(early):
                raise
            await asyncio.sleep(0.05)
        else:
            return
    raise AssertionError("the claim never ran out")


@pytest.mark.parametrize(
    ("dies", "runs"),
    [("after the effect", 2), ("between the steps", 1), ("after the payment", 1), ("after the pause", 1)],
)
async def test_a_killed_worker_costs_at_most_one_repetition(world: World, tmp_path: Path, dies: str, runs: int) -> None:
    """A step killed between its effect and its record runs once more; recorded steps never do."""
    app, handle = await _crash(world, tmp_path, dies, once=False)
    assert await handle.status() is ProcessStatus.RUNNING

    async def ended() -> bool:
        return await handle.status() is not ProcessStatus.RUNNING

    await _drain_until(app, ended)
    assert await handle.result(timeout_s=5) == ["one", "paid", "three"]
    assert noted(tmp_path, "first") == runs
    assert noted(tmp_path, "pay") == (2 if dies == "after the payment" else 1)
    assert noted(tmp_path, "last") == 1


@pytest.mark.parametrize("known", ["happened", "failed", "did not happen"])
async def test_a_payment_whose_outcome_is_unknown_is_never_repeated(world: World, tmp_path: Path, known: str) -> None:
    """The process reports it and waits; an outcome recorded by the operator lets it continue at once."""
    dies = "before the payment" if known == "did not happen" else "after the payment"
    app, handle = await _crash(world, tmp_path, dies, once=True)

    async def told() -> bool:
        return any(event.event_type == "process.attempt_failed" for event in await handle.events())

    await _drain_until(app, told)
    for _ in range(3):
        await asyncio.sleep(0.25)
        await app.drain()
    assert await handle.status() is ProcessStatus.RUNNING
    assert noted(tmp_path, "pay") == (0 if known == "did not happen" else 1)
    [failed] = [event.payload for event in await handle.events() if event.event_type == "process.attempt_failed"]
    assert isinstance(failed, dict)
    assert failed["code"] == "OutcomeUnknown"
    [unknown] = await unknown_steps(app.storage, handle.process_id)
    assert unknown.replay_key == "pay#1"
    owner = app._require().owner
    if known == "did not happen":
        await _once_lapsed(lambda: run_again(app.storage, owner, handle.process_id, "pay#1"))
    else:
        outcome = "recorded" if known == "happened" else EffectError(code="refused", message="the bank said no")
        await _once_lapsed(lambda: record_outcome(app.storage, owner, handle.process_id, "pay#1", outcome))
        with pytest.raises(Conflict):
            await record_outcome(app.storage, owner, handle.process_id, "pay#1", "again")

    async def ended() -> bool:
        return await handle.status() is not ProcessStatus.RUNNING

    await _drain_until(app, ended)
    assert noted(tmp_path, "pay") == 1
    assert await unknown_steps(app.storage, handle.process_id) == ()
    if known == "failed":
        with pytest.raises(ProcessFailed, match="the bank said no"):
            await handle.result(timeout_s=5)
    else:
        expected = ["one", "recorded" if known == "happened" else "paid", "three"]
        assert await handle.result(timeout_s=5) == expected


async def test_nothing_is_settled_that_nobody_began(world: World) -> None:
    """No outcome can be recorded for a step that was not started or that has one."""
    app = await world.app()

    async def pay() -> str:
        return "paid"

    @app.process
    async def buyer(ctx: Context) -> None:
        await ctx.options(once=True).step(pay)
        await ctx.wait_signal("go")

    handle = await app.start(buyer)
    await app.drain()
    owner = app._require().owner
    with pytest.raises(EffectNotRecorded):
        await record_outcome(app.storage, owner, handle.process_id, "pay#2", None)
    with pytest.raises(Conflict):
        await run_again(app.storage, owner, handle.process_id, "pay#1")


async def test_a_step_that_must_not_happen_twice(world: World) -> None:
    """It runs once over all runs; its failure is recorded at once and is the same in every run."""
    app = await world.app()
    seen: list[str] = []

    async def pay() -> str:
        world.count("pay")
        return "paid"

    async def refuse() -> str:
        world.count("refuse")
        raise ValueError("no funds")

    @app.process
    async def buyer(ctx: Context) -> str:
        once = ctx.options(once=True)
        text = await once.step(pay)
        try:
            await once.step(refuse)
        except StepFailed as error:
            seen.append(f"{error.code}: {error.message}")
        await ctx.sleep(1)
        return text

    handle = await app.start(buyer)
    await app.drain()
    await world.seconds(1)
    await app.drain()
    assert await handle.result(timeout_s=5) == "paid"
    assert (world.calls["pay"], world.calls["refuse"]) == (1, 1)
    assert seen == ["ValueError: no funds"] * 2
    assert set(await records_of(app, handle)) == {"pay#1", "refuse#1", "sleep#1"}


async def test_a_step_that_must_not_happen_twice_has_no_retries(world: World) -> None:
    """`once` and retries contradict each other and are refused."""
    app = await world.app()

    @app.process(retry=NO_RETRY)
    async def buyer(ctx: Context) -> None:
        with pytest.raises(InvalidInput, match="second attempt"):
            ctx.options(once=True, retry=Retry(max_attempts=3))

    handle = await app.start(buyer)
    await app.drain()
    await handle.result(timeout_s=5)


async def test_a_cancelled_payment_is_unknown(world: World) -> None:
    """A run that is cancelled during the step leaves its outcome unknown, and no run repeats it."""
    app = await world.app(worker=True, real_time=True)
    begun = asyncio.Event()

    async def pay() -> str:
        world.count("pay")
        begun.set()
        await asyncio.Event().wait()
        return "never"

    @app.process
    async def buyer(ctx: Context) -> str:
        try:
            return await ctx.options(once=True).step(pay)
        except asyncio.CancelledError:
            await ctx.sleep(0.1)
            return "stopped"

    handle = await app.start(buyer)
    await asyncio.wait_for(begun.wait(), 10)
    await handle.cancel("stop")
    assert await handle.result(timeout_s=10) == "stopped"
    assert world.calls["pay"] == 1
    [unknown] = await unknown_steps(app.storage, handle.process_id)
    assert unknown.replay_key == "pay#1"


async def _die_with(world: World, app: App, handle: ProcessHandle[None], times: int) -> None:
    """Claim the process as a worker does that is killed afterwards."""
    for _ in range(times):
        await app.storage.process_leases.claim(handle.process_id, current_owner("doomed"), ttl_ms=1_000)
        await world.seconds(2)


async def test_a_process_that_kills_every_worker_is_given_up(world: World) -> None:
    """Crashes in a row are bounded, and use up none of the attempts that may fail."""
    app = await world.app()

    @app.process(retry=Retry(max_attempts=2, first_pause_s=0, max_crashes=3))
    async def shaky(ctx: Context) -> None:
        world.count("runs")
        await ctx.sleep(1)
        raise ValueError("flaky")

    patient = await app.start(shaky)
    await _die_with(world, app, patient, times=3)
    await app.drain()
    assert world.calls["runs"] == 1
    await world.seconds(2)
    await _die_with(world, app, patient, times=3)
    await app.drain()
    await world.seconds(1)
    await app.drain()
    with pytest.raises(ProcessFailed, match="flaky"):
        await patient.result(timeout_s=5)
    assert [note["attempt"] for note in world.heard.of("process.retried")] == [1]
    deadly = await app.start(shaky)
    await _die_with(world, app, deadly, times=4)
    await app.drain()
    with pytest.raises(ProcessFailed, match="process_crashed: 4 attempts crashed without reporting an error"):
        await deadly.result(timeout_s=5)
    assert [note["error"] for note in world.heard.of("process.failed")][1:] == [
        "RuntimeError: 4 attempts crashed without reporting an error"
    ]
