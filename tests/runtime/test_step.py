"""Steps: run once, recorded once, then replayed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lash.errors import InvalidInput, ProcessFailed, StepFailed
from lash.model.effect import EffectStatus
from lash.model.process.process import Failure, ProcessStatus
from lash.runtime.errors import Permanent
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.processes.context import Context
from tests.runtime.process_bench import World, kinds_of, outcome_of, records_of


async def test_a_recorded_step_is_not_run_again(world: World) -> None:
    """A step runs once over three runs of its process, and every run sees the same value."""
    app = await world.app()
    seen: list[int] = []

    async def draw() -> int:
        return world.count("draw") * 7

    @app.process
    async def patient(ctx: Context) -> list[int]:
        seen.append(await ctx.step(draw))
        await ctx.sleep(60)
        seen.append(await ctx.step("again", draw))
        await ctx.sleep(60)
        return seen[-2:]

    handle = await app.start(patient)
    for _ in range(3):
        await app.drain()
        await world.seconds(60)
    assert world.calls["draw"] == 2
    assert seen == [7, 7, 14, 7, 14]
    assert await handle.result(timeout_s=5) == [7, 14]


async def test_names_and_occurrences_make_the_keys(world: World) -> None:
    """The key is the name, by default the function's, with its number of occurrence, unless a key is given."""
    app = await world.app()

    async def fetch(number: int) -> int:
        return number

    @app.process
    async def several(ctx: Context) -> int:
        one = await ctx.step(fetch, 1)
        two = await ctx.step(fetch, number=2)
        three = await ctx.step("other", fetch, 3)
        four = await ctx.options(key="mine").step(fetch, 4)
        five = await ctx.options(key="mine").step(fetch, 4)
        return one + two + three + four + five

    handle = await app.start(several)
    await app.drain()
    assert await handle.result(timeout_s=5) == 14
    assert set(await records_of(app, handle)) == {"fetch#1", "fetch#2", "other#1", "key:mine"}


async def test_a_plain_function_runs_in_a_thread(world: World) -> None:
    """A blocking function does not block the event loop."""
    app = await world.app()
    here = threading.get_ident()

    def blocking(text: str) -> list[str]:
        world.count("blocking")
        return [text, "elsewhere" if threading.get_ident() != here else "here"]

    @app.process
    async def caller(ctx: Context) -> list[str]:
        return await ctx.step(blocking, "hello")

    handle = await app.start(caller)
    await app.drain()
    assert await handle.result(timeout_s=5) == ["hello", "elsewhere"]


async def test_a_step_needs_a_function_and_a_name(world: World) -> None:
    """Other values, and functions without a name, are refused with a remedy, and nothing is recorded."""
    app = await world.app()
    said: list[str] = []

    @app.process
    async def careless(ctx: Context) -> None:
        for call in (
            lambda: ctx.step("name only"),  # type: ignore[call-overload]
            lambda: ctx.step(lambda: 1),
            lambda: ctx.step(7),  # type: ignore[call-overload]
            lambda: ctx.step("x" * 2_000, str),
            lambda: ctx.step(" ", str),
        ):
            with pytest.raises(InvalidInput) as caught:
                call()
            said.append(str(caught.value))

    handle = await app.start(careless)
    await app.drain()
    await handle.result(timeout_s=5)
    assert "needs a function behind its name" in said[0]
    assert "step('name', function)" in said[1]
    assert "needs a function" in said[2]
    assert "characters" in said[3]
    assert "blank" in said[4]
    assert await records_of(app, handle) == {}


async def test_a_failure_that_passes_is_not_recorded(world: World) -> None:
    """The attempt fails visibly and is retried after a pause, and the step runs again."""
    app = await world.app()

    async def flaky() -> str:
        if world.count("flaky") < 3:
            raise OSError("connection lost")
        return "fine"

    @app.process(retry=Retry(max_attempts=5, first_pause_s=10, factor=2))
    async def caller(ctx: Context) -> str:
        return await ctx.step(flaky)

    handle = await app.start(caller)
    assert await app.drain() == 1
    assert await records_of(app, handle) == {}
    assert await app.drain() == 0
    await world.seconds(11)
    assert await app.drain() == 1
    await world.seconds(11)
    assert await app.drain() == 0, "the second pause is twice the first"
    await world.seconds(11)
    assert await app.drain() == 1
    assert await handle.result(timeout_s=5) == "fine"
    failed = [event.payload for event in await handle.events() if event.event_type == "process.attempt_failed"]
    told = [(payload["code"], payload["message"]) for payload in failed if isinstance(payload, dict)]
    assert told == [("OSError", "connection lost")] * 2


async def test_a_failure_from_which_the_function_goes_on_is_recorded(world: World) -> None:
    """A replay then raises StepFailed at the same place, and the step does not run again."""
    app = await world.app()
    seen: list[str] = []

    async def broken() -> str:
        world.count("broken")
        raise ValueError("no such page")

    async def fallback() -> str:
        return "from the cache"

    @app.process
    async def caller(ctx: Context) -> str:
        try:
            text = await ctx.step(broken)
        except (ValueError, StepFailed) as error:
            seen.append(type(error).__name__)
            text = await ctx.step(fallback)
        await ctx.sleep(5)
        return text

    handle = await app.start(caller)
    await app.drain()
    record = (await records_of(app, handle))["broken#1"]
    assert (record.status, record.error and record.error.message) == (EffectStatus.FAILED, "no such page")
    await world.seconds(5)
    await app.drain()
    assert await handle.result(timeout_s=5) == "from the cache"
    assert world.calls["broken"] == 1
    assert seen == ["ValueError", "StepFailed"]


@pytest.mark.parametrize("what", ["signal", "wait", "child", "start", "emit", "wake", "sleep", "now"])
async def test_going_on_by_any_means_records_the_failure(world: World, what: str) -> None:
    """Any later use of the context records the failed step before it, which does not run again."""
    app = await world.app()

    async def broken() -> None:
        world.count("broken")
        raise ValueError("no")

    @app.process
    async def child(ctx: Context) -> None:
        await ctx.sleep(1)

    @app.process
    async def caller(ctx: Context) -> None:
        started = await ctx.start(child)
        with pytest.raises((ValueError, StepFailed)):
            await ctx.step(broken)
        operations = {
            "signal": lambda: ctx.wait_signal("go"),
            "wait": lambda: ctx.wait("go"),
            "child": started.result,
            "start": lambda: ctx.start(child),
            "emit": lambda: ctx.emit("happened"),
            "wake": lambda: ctx.wake("look"),
            "sleep": lambda: ctx.sleep(1),
            "now": ctx.now,
        }
        await operations[what]()
        await ctx.wait_signal("end")

    handle = await app.start(caller)
    await app.drain()
    assert (await records_of(app, handle))["broken#1"].status is EffectStatus.FAILED
    await handle.signal("end")
    await app.drain()
    assert world.calls["broken"] == 1


async def test_a_permanent_failure_ends_the_attempts(world: World) -> None:
    """Neither the step nor, if it is uncaught, the process is retried: the process fails."""
    app = await world.app()

    class NoFunds(Permanent):
        pass

    async def pay() -> None:
        world.count("pay")
        raise NoFunds("the account is empty")

    @app.process
    async def buyer(ctx: Context) -> None:
        await ctx.options(retry=Retry(max_attempts=4, first_pause_s=0)).step(pay)

    handle = await app.start(buyer)
    assert await app.drain() == 1
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert outcome.code == "StepFailed"
    assert "the account is empty" in outcome.message
    assert world.calls["pay"] == 1
    with pytest.raises(ProcessFailed, match="the account is empty"):
        await handle.result(timeout_s=5)


async def test_retries_of_a_step(world: World) -> None:
    """A step with retries is retried within its run; the record holds its final outcome."""
    app = await world.app()

    async def flaky() -> int:
        if world.count("flaky") < 3:
            raise OSError("not yet")
        return world.calls["flaky"]

    @app.process
    async def caller(ctx: Context) -> int:
        return await ctx.options(retry=Retry(max_attempts=3, first_pause_s=0)).step(flaky)

    handle = await app.start(caller)
    assert await app.drain() == 1
    assert await handle.result(timeout_s=5) == 3
    assert "process.attempt_failed" not in await kinds_of(handle)


async def test_a_time_limit_ends_a_step(world: World) -> None:
    """A step beyond its limit fails with an error that names step and limit; its current await is cancelled."""
    app = await world.app()
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("slow")

    @app.process(retry=NO_RETRY)
    async def caller(ctx: Context) -> str:
        try:
            await ctx.options(timeout_s=0.01).step(slow)
        except TimeoutError as error:
            return str(error)
        return "fast"

    handle = await app.start(caller)
    await app.drain()
    assert await handle.result(timeout_s=5) == "step 'slow#1' took longer than 0.01 s"
    assert ended == ["slow"]


async def test_an_error_that_cannot_be_stored_is_told_as_well_as_it_can(world: World) -> None:
    """Errors with lone surrogates, NULs, megabytes of text, or a failing __str__ still end a process."""
    app = await world.app()

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    errors = [ValueError("bad \udc80 text"), ValueError("nul \0"), ValueError("x" * 2_000_000), Mute(), KeyError()]

    @app.process(retry=NO_RETRY)
    async def failing(ctx: Context, number: int) -> None:
        async def fail() -> None:
            raise errors[number]

        try:
            await ctx.step("fail", fail)
        except type(errors[number]):
            await ctx.now()
            raise

    handles = [await app.start(failing, number) for number in range(len(errors))]
    await app.drain()
    messages = [outcome.message for each in handles if isinstance(outcome := await outcome_of(each), Failure)]
    assert len(messages) == len(errors)
    assert messages[0] == "bad ? text"
    assert messages[2] == "x" * 4_000
    assert messages[4] == "KeyError"


async def test_a_step_inside_a_step_is_refused(world: World) -> None:
    """A nested step would change the keys of later runs, so it raises."""
    app = await world.app()
    said: list[str] = []

    @app.process(retry=NO_RETRY)
    async def nested(ctx: Context) -> None:
        async def inner() -> int:
            return 1

        async def outer() -> int:
            return await ctx.step(inner)

        def plain() -> None:
            ctx.step(inner)

        for function in (outer, plain):
            try:
                await ctx.step(function)
            except Exception as error:
                said.append(str(error))
                raise

    for _ in range(1):
        handle = await app.start(nested)
        await app.drain()
        assert await handle.status() is ProcessStatus.FAILED
    assert "step 'outer#1' uses the context of its run" in said[0]


async def test_two_steps_at_once_under_one_key_are_refused(world: World) -> None:
    """A key is one record; two concurrent steps under it would be two effects."""
    app = await world.app()

    async def slow() -> int:
        world.count("slow")
        await asyncio.sleep(0)
        return 1

    @app.process
    async def caller(ctx: Context) -> None:
        await ctx.gather(ctx.options(key="same").step(slow), ctx.options(key="same").step(slow))

    handle = await app.start(caller)
    await app.drain()
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    assert "under the key 'key:same'" in outcome.message
    assert world.calls["slow"] == 1


async def test_what_the_function_awaits_being_cancelled_is_no_cancellation_of_the_process(world: World) -> None:
    """A future that is cancelled inside a step is a failed attempt, not a cancellation of the process."""
    app = await world.app()

    async def unlucky() -> str:
        if world.count("unlucky") == 1:
            future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            future.cancel()
            return await future
        return "lucky"

    @app.process
    async def caller(ctx: Context) -> str:
        return await ctx.step(unlucky)

    handle = await app.start(caller)
    await app.drain()
    assert await handle.status() is ProcessStatus.RUNNING
    await world.seconds(2)
    await app.drain()
    assert await handle.result(timeout_s=5) == "lucky"
