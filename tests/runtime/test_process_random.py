"""Random programs whose runs crash at random: records and results always agree."""

from __future__ import annotations

import asyncio
import random
from typing import Any, TypeAlias

import pytest

from lash.errors import StepFailed, StoreUnavailable
from lash.model.process.process import ProcessStatus
from lash.runtime.app import App
from lash.runtime.policy import Retry
from lash.runtime.processes.context import Context
from lash.runtime.processes.handle import ProcessHandle
from tests.runtime.process_bench import World, outcome_of, records_of

Program: TypeAlias = list[Any]

_SIMPLE = ("step", "step", "step", "fail", "sleep", "signal", "child", "now")


def _program(chance: random.Random, depth: int) -> Program:
    """Return operations in sequence; a gather holds programs that run concurrently."""
    operations: Program = []
    for _ in range(chance.randint(1, 4)):
        if depth and chance.random() < 0.4:
            operations.append(["gather", *(_program(chance, depth - 1) for _ in range(chance.randint(1, 3)))])
        else:
            operations.append([chance.choice(_SIMPLE)])
    return operations


def _expected(program: Program) -> list[object]:
    """Return the expected result of a program, without its random values, by rules of this test."""
    shape: list[object] = []
    for name, *parts in program:
        shape.append([_expected(part) for part in parts] if name == "gather" else name)
    return shape


class _Machine:
    """Runs programs as a process, and counts their calls."""

    def __init__(self, world: World, app: App) -> None:
        self._world = world

        async def draw(pace: int) -> int:
            await asyncio.sleep(0.001 * (pace % 3))
            return world.count("draws")

        async def fail() -> None:
            world.count("failures")
            raise ValueError("as always")

        async def child(ctx: Context) -> str:
            await ctx.sleep(1)
            return "child"

        small = app.process(child)

        async def one(ctx: Context, name: str) -> list[Any] | str:
            match name:
                case "step":
                    return ["step", await ctx.step(draw, world.calls["nothing"])]
                case "fail":
                    try:
                        await ctx.step(fail)
                    except (ValueError, StepFailed):
                        return "fail"
                case "sleep":
                    await ctx.sleep(2)
                case "signal":
                    return ["signal", await ctx.wait_signal("item")]
                case "child":
                    return await (await ctx.start(small)).result()
                case _:
                    await ctx.now()
            return name

        async def run(ctx: Context, program: Program) -> list[Any]:
            done: list[Any] = []
            for name, *parts in program:
                if name == "gather":
                    done.append(await ctx.gather(*(run(ctx, part) for part in parts)))
                else:
                    done.append(await one(ctx, name))
            return done

        async def programmed(ctx: Context, program: Program) -> list[Any]:
            return await run(ctx, program)

        self.process = app.process(retry=Retry(longest_pause_s=1))(programmed)


def _break_off(app: App, chance: random.Random, world: World) -> None:
    """Let one in seven records crash its run: half before the write, half after it."""
    record = app.storage.effects.record

    async def unreliable(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the store)
        breaks = chance.random()
        if breaks < 0.07:
            world.count("broken off")
            raise StoreUnavailable("before")
        written = await record(*args, **kwargs)
        if breaks > 0.93:
            world.count("broken off")
            raise StoreUnavailable("after")
        return written

    app.storage.effects.record = unreliable  # type: ignore[method-assign]


def _values(result: object, kind: str) -> list[Any]:
    """Return the values of steps or signals anywhere in a result."""
    if isinstance(result, list):
        if len(result) == 2 and result[0] == kind:
            return [result[1]]
        return [value for part in result for value in _values(part, kind)]
    return []


def _shape(result: object) -> object:
    if isinstance(result, list):
        return result[0] if result and result[0] in ("step", "signal") else [_shape(part) for part in result]
    return result


async def _drive(world: World, app: App, handle: ProcessHandle[Any]) -> None:
    for _ in range(400):
        await app.drain()
        if await handle.status() is not ProcessStatus.RUNNING:
            return
        await world.seconds(1)
    raise AssertionError("it never ended")


@pytest.mark.parametrize("seed", [112, 116, 117, 148, 165])
async def test_a_random_program_survives_being_broken_off(world: World, seed: int) -> None:
    """The result matches the records, signals are taken once and in order, and failures stay failures."""
    chance = random.Random(seed)
    app = await world.app()
    program = _program(chance, 2)
    signals = str(program).count("signal")
    handle = await app.start(_Machine(world, app).process, program)
    for number in range(signals // 2):
        await handle.signal("item", number)
    _break_off(app, chance, world)
    await app.drain()
    for number in range(signals // 2, signals):
        await handle.signal("item", number)
    await _drive(world, app, handle)
    assert await handle.status() is ProcessStatus.COMPLETED, await outcome_of(handle)
    result = await handle.result(timeout_s=5)
    assert _shape(result) == _expected(program)
    assert sorted(_values(result, "signal")) == list(range(signals))
    records = await records_of(app, handle)
    drawn: list[Any] = [record.outcome for key, record in records.items() if "draw#" in key.rpartition("/")[2]]
    assert sorted(_values(result, "step")) == sorted(drawn), "each step's value is the one that was recorded"
    codes = {str(event.payload) for event in await handle.events() if event.event_type == "process.attempt_failed"}
    assert all("StoreUnavailable" in code for code in codes), codes
