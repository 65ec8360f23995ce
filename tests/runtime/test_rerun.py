"""Reruns: a process that ended is started again with the same input."""

from __future__ import annotations

import pytest

from lash.errors import ProcessNotFound, RegistrationConflict
from lash.model.process.process import Success
from lash.runtime.policy import NO_RETRY
from lash.runtime.processes.context import Context
from tests.runtime.process_bench import World, outcome_of


async def test_a_failed_process_is_run_again_with_its_input(world: World) -> None:
    """The rerun runs every step again, has its own outcome and names the first; the first stays as it was."""
    app = await world.app()

    async def charge() -> int:
        return world.count("charge")

    @app.process(retry=NO_RETRY)
    async def task(ctx: Context, number: int) -> int:
        await ctx.step(charge)
        if world.calls["charge"] == 1:
            raise RuntimeError("not yet")
        return number + 1

    first = await app.starting(process_id="p").start(task, 4)
    await app.drain()
    failed = await outcome_of(first)
    again = await app.handle("p").rerun("q")
    assert (await app.handle("p").rerun("q")).process_id == again.process_id == "q"
    await app.drain()
    assert await outcome_of(again) == Success(value=5)
    assert world.calls["charge"] == 2
    assert await outcome_of(first) == failed
    provenance = (await again.record()).registration.provenance
    assert (provenance.rerun_of, provenance.caused_by) == ("p", None)


async def test_an_id_is_generated_or_free(world: World) -> None:
    """Without an id each call starts another process; the id of another process is a conflict."""
    app = await world.app()

    @app.process
    async def task(ctx: Context, number: int) -> int:
        return number

    await app.starting(process_id="p").start(task, 1)
    await app.starting(process_id="other").start(task, 2)
    handles = [await app.handle("p").rerun() for _ in range(2)]
    assert len({"p", *(handle.process_id for handle in handles)}) == 3
    with pytest.raises(RegistrationConflict):
        await app.handle("p").rerun("other")
    with pytest.raises(ProcessNotFound):
        await app.handle("unknown").rerun()
