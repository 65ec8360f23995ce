"""Signals: each is taken once, in order, by its wait."""

from __future__ import annotations

from typing import assert_type

import msgspec
import pydantic
import pytest

from lash.errors import InvalidInput
from lash.model.process.process import SignalWait
from lash.runtime.processes.context import Context
from tests.runtime.process_bench import World, kinds_of


class Verdict(msgspec.Struct):
    approved: bool
    note: str = ""


class Answer(pydantic.BaseModel):
    text: str


async def test_the_kth_wait_gets_the_kth_signal(world: World) -> None:
    """Signals before the wait, in a burst, repeated under one key, and after it are taken once and in order."""
    app = await world.app()

    @app.process
    async def collector(ctx: Context, count: int) -> list[int]:
        return [assert_type(await ctx.wait_signal("item", of_type=int), int) for _ in range(count)]

    handle = await app.start(collector, 6)
    await handle.signal("item", 1)
    await handle.signal("other", "not this")
    await handle.signal("item", 2, key="two")
    await handle.signal("item", 2, key="two")
    await app.drain()
    assert (await handle.record()).projection.wait == SignalWait(name="item", ordinal=3)
    assert await app.storage.process_leases.holder(handle.process_id) is None
    await handle.signal("item", 3)
    await app.drain()
    for number in (4, 5, 6):
        await handle.signal("item", number)
    await app.drain()
    assert await handle.result(timeout_s=5) == [1, 2, 3, 4, 5, 6]
    assert (await kinds_of(handle)).count("process.waiting") == 2


async def test_a_signal_that_was_left_by_a_time_limit_is_for_the_next_wait(world: World) -> None:
    """A wait that times out takes no signal, in the same run and in later ones."""
    app = await world.app()

    @app.process
    async def impatient(ctx: Context) -> list[object]:
        got: list[object] = []
        for _ in range(2):
            try:
                got.append(await ctx.wait_signal("go", timeout_s=10))
            except TimeoutError as error:
                got.append(str(error))
                await ctx.step("meanwhile", signals)
        return [*got, await ctx.wait_signal("go")]

    async def signals() -> None:
        # Both arrive before the next wait of the same run.
        await handle.signal("go", "first", key="1")
        await handle.signal("go", "second", key="2")

    handle = await app.start(impatient)
    await app.drain()
    await world.seconds(10)
    await app.drain()
    assert await handle.result(timeout_s=5) == ["no signal 'go' came in time", "first", "second"]


async def test_lines_that_were_cancelled_take_no_signal(world: World) -> None:
    """A wait whose branch was cancelled leaves its signal to the next wait of the same run."""
    app = await world.app()

    async def fail() -> None:
        await handle.signal("go", "mine", key="1")
        raise ValueError("no")

    @app.process
    async def caller(ctx: Context) -> object:
        with pytest.raises(Exception, match="no"):
            await ctx.gather(ctx.wait_signal("go"), ctx.step(fail))
        return await ctx.wait_signal("go")

    handle = await app.start(caller)
    await app.drain()
    assert await handle.result(timeout_s=5) == "mine"


async def test_declared_signals(world: World) -> None:
    """Signals have their declared types; undeclared and ill-typed ones are refused and nothing is written."""
    app = await world.app()

    @app.process(signals={"verdict": Verdict, "answer": Answer, "count": int})
    async def judged(ctx: Context) -> list[str]:
        verdict, answer, count = (
            await ctx.wait_signal("verdict"),
            await ctx.wait_signal("answer"),
            await ctx.wait_signal("count"),
        )
        return [type(verdict).__name__, verdict.note, type(answer).__name__, answer.text, str(count + 1)]

    handle = await app.start(judged)
    await app.drain()
    before = len(await handle.events())
    for name, payload in (
        ("verdict", {"approved": "yes"}),
        ("verdict", {"approved": True, "more": 1}),
        ("verdict", None),
        ("answer", {"text": 5}),
        ("count", "three"),
        ("unknown", 1),
    ):
        with pytest.raises(InvalidInput):
            await handle.signal(name, payload)
    assert len(await handle.events()) == before
    await handle.signal("verdict", {"approved": True, "note": "well"})
    await handle.signal("answer", {"text": "yes"})
    await handle.signal("count", 4)
    await app.drain()
    assert await handle.result(timeout_s=5) == ["Verdict", "well", "Answer", "yes", "5"]


async def test_a_signal_between_the_look_and_the_parking_is_not_missed(world: World) -> None:
    """A signal that arrives between the check and the parking leaves the process on the work list."""
    app = await world.app()
    park = app.storage.process_leases.park

    async def late(*args: object, **kwargs: object) -> bool:
        if world.count("park") == 1:
            await handle.signal("go", 7)
        return await park(*args, **kwargs)  # type: ignore[arg-type]

    @app.process
    async def waiter(ctx: Context) -> object:
        return await ctx.wait_signal("go")

    handle = await app.start(waiter)
    app.storage.process_leases.park = late  # type: ignore[method-assign]
    assert await app.drain() == 2
    assert await handle.result(timeout_s=5) == 7


async def test_a_signal_is_not_lost_by_a_crash_before_it_was_recorded(world: World) -> None:
    """A run that crashes before it records a signal leaves the signal to the next run."""
    app = await world.app()

    @app.process
    async def waiter(ctx: Context) -> object:
        return await ctx.wait_signal("go")

    handle = await app.start(waiter)
    await app.drain()
    await handle.signal("go", "there")
    record = app.storage.effects.record

    async def crash(*args: object, **kwargs: object) -> object:
        if world.count("record") == 1:
            raise OSError("the power went")
        return await record(*args, **kwargs)  # type: ignore[arg-type]

    app.storage.effects.record = crash  # type: ignore[assignment, method-assign]
    await app.drain()
    await world.seconds(5)
    await app.drain()
    assert await handle.result(timeout_s=5) == "there"
