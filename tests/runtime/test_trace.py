"""Traces of turns and processes: which steps ran, when, how often, and which attempts died."""

from __future__ import annotations

from lash.model.effect import ProcessScope, TurnScope
from lash.model.queue import turn_id_of
from lash.model.session.trace import TurnTrace
from lash.model.wait import Resolved
from lash.runtime.app import App
from lash.runtime.policy import Retry
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.test_turn_crash import Crash
from tests.runtime.turn_bench import Bench


async def _trace(app: App, turn_id: str) -> TurnTrace:
    (turn,) = (await app.storage.session("s").turns([turn_id])).values()
    assert turn.trace is not None
    return turn.trace


async def test_a_turn_keeps_the_trace_of_its_steps(bench: Bench) -> None:
    """A committed turn has its steps with tries and errors; steps of an attempt that died show their attempt."""
    app, crash = await bench.app(), Crash(bench)
    turn_ids, calls = set(), 0

    async def find() -> int:
        return 1

    async def stumble() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("not yet")
        return "found"

    async def fail() -> None:
        raise ValueError("no such order")

    @app.agent
    async def agent(turn: Turn) -> str:
        turn_ids.add(turn.turn_id)
        await turn.step(find)
        if turn.attempt == 1:
            await crash.here()
        await turn.options(retry=Retry(max_attempts=2, first_pause_s=0)).step(stumble)
        await turn.options(once=True).step("pay", find)
        try:
            await turn.step(fail)
        except ValueError:
            await turn.now()
        return "done"

    await app.session("s", agent).send("go")
    await crash.run(app, "s")
    (turn_id,) = turn_ids
    (record,) = await app.storage.effects.list(TurnScope(session_id="s", turn_id=turn_id))
    assert (record.attempt, record.tries) == (1, 1)
    assert record.began_at_ms is not None
    await app.drain()
    trace = await _trace(app, turn_id)
    assert (trace.attempts, trace.failures, trace.crashes) == (2, 0, 1)
    shown = sorted((step.name, step.attempt, step.tries, step.error) for step in trace.steps)
    assert shown == [
        ("fail#1", 2, 1, "ValueError: no such order"),
        ("find#1", 1, 1, None),
        ("pay#1", 2, 1, None),
        ("stumble#1", 2, 2, None),
    ]
    assert trace.steps[0].name == "find#1"
    assert trace.worker
    assert all(step.worker and step.took_ms >= 0 for step in trace.steps)


async def test_a_process_records_its_attempts(bench: Bench) -> None:
    """A step of a process has the attempt since the process was last parked, and its worker."""
    app = await bench.app()

    async def find() -> int:
        return 1

    @app.process
    async def job(ctx: Context) -> int:
        return await ctx.step(find)

    await app.starting(process_id="job-1").start(job)
    await app.drain()
    (record,) = await app.storage.effects.list(ProcessScope(process_id="job-1"))
    assert (record.attempt, record.tries) == (1, 1)
    assert record.worker
    assert record.began_at_ms is not None


async def test_a_wait_has_the_time_that_it_was_open(bench: Bench) -> None:
    """The record of a wait that parked its process or turn begins when the wait was opened."""
    app = await bench.app()

    @app.process
    async def job(ctx: Context) -> object:
        return await ctx.wait("approval")

    @app.agent
    async def agent(turn: Turn) -> str:
        await turn.wait("approval")
        return "done"

    handle = await app.starting(process_id="job-1").start(job)
    sent = await app.session("s", agent).send("go")
    await app.drain()
    await bench.seconds(90)
    for wait in await app.storage.waits.pending():
        await app.storage.waits.resolve_id(wait.key_id, Resolved(value=True))
    await app.drain()
    assert await handle.result(timeout_s=60) is True
    (record,) = await app.storage.effects.list(ProcessScope(process_id="job-1"))
    assert record.began_at_ms is not None
    assert 90_000 <= record.updated_at_ms - record.began_at_ms < 150_000
    (step,) = (await _trace(app, turn_id_of(sent.batch_id))).steps
    assert 90_000 <= step.took_ms < 150_000
