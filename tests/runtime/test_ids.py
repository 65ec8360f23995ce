"""Ids that are derived from others: readable, and the same as before for what exists."""

from __future__ import annotations

from lash.base.replay_key import replay_key
from lash.model.causal import TurnCause
from lash.model.process.process import AgentScope, Provenance, SessionOriginator
from lash.runtime.policy import Retry
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.process_bench import World


async def test_ids_of_processes_can_be_read(world: World) -> None:
    """A process that a turn starts, its child and the child of that have ids without escapes."""
    app = await world.app()

    @app.process
    async def leaf(ctx: Context) -> str:
        return ctx.process_id

    @app.process
    async def middle(ctx: Context) -> str:
        return await (await ctx.start(leaf)).result()

    @app.process
    async def root(ctx: Context) -> str:
        return await (await ctx.start(middle)).result()

    @app.agent
    async def agent(turn: Turn) -> str:
        return await (await turn.start(root)).result()

    chat = app.session("ann:1", agent=agent)
    batch_id = (await chat.send("hello", key="1")).batch_id
    await app.drain()
    reply = await chat.ask("hello", key="1", timeout_s=5)
    assert reply == f"ann:1:{batch_id}:start.root#1:start.middle#1:start.leaf#1"


async def test_a_long_id_is_cut_and_stays_unique(world: World) -> None:
    """An id that would be too long ends with a hash of the whole."""
    app = await world.app()

    @app.process
    async def child(ctx: Context) -> str:
        return ctx.process_id

    @app.process
    async def parent(ctx: Context) -> list[str]:
        return [await (await ctx.start(child)).result() for _ in range(2)]

    handle = await app.starting(process_id="x" * 250).start(parent)
    await app.drain()
    first, second = await handle.result(timeout_s=5)
    assert first[:100] == second[:100] == "x" * 100
    assert len(first) == len(second) == 255
    assert first != second


async def test_a_process_that_an_earlier_version_started_is_found_again(world: World) -> None:
    """A later attempt of a turn, and a later run of a process, return what exists under the escaped id."""
    app = await world.app()

    @app.process
    async def job(ctx: Context) -> str:
        return ctx.process_id

    async def started_before(process_id: str, provenance: Provenance, session_id: str | None = None) -> None:
        core = app._require()
        await app.storage.processes.register(
            await core.registration(job, process_id, (), {}, provenance=provenance, wake_session_id=session_id)
        )

    @app.agent(retry=Retry(max_attempts=2, first_pause_s=1))
    async def agent(turn: Turn) -> str:
        if turn.attempt == 1:
            originator = SessionOriginator(scope=AgentScope(session_id=turn.session_id))
            cause = TurnCause(session_id=turn.session_id, turn_id=turn.turn_id)
            provenance = Provenance(originator=originator, caused_by=cause)
            former = replay_key(turn.session_id, turn.turn_id, "start%3Ajob#1")
            await started_before(former, provenance, turn.session_id)
            raise OSError("broken off")
        return (await turn.start(job)).process_id

    async def quick() -> None:
        pass

    @app.process(retry=Retry(max_attempts=2, first_pause_s=1))
    async def parent(ctx: Context) -> str:
        await ctx.step(quick)
        if world.count("runs") == 1:
            await started_before(replay_key(ctx.process_id, "start.job#1"), Provenance())
            raise OSError("broken off")
        return (await ctx.start(job)).process_id

    chat = app.session("s", agent=agent)
    batch_id = (await chat.send("hello", key="1")).batch_id
    handle = await app.starting(process_id="a:b").start(parent)
    await app.drain()
    await world.seconds(2)
    await app.drain()
    assert await chat.ask("hello", key="1", timeout_s=5) == f"s:turn%3A{batch_id}:start%253Ajob#1"
    assert await handle.result(timeout_s=5) == "a%3Ab:start.job#1"
