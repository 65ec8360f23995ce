"""Steps under a limit on concurrency: no more than it permits run at once, and steps that wait take no slot."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.errors import InvalidInput
from lash.model.limit import Limit, Rate
from lash.runtime.policy import NO_RETRY, WorkerOptions
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, take_session
from tests.runtime.worker_kit import until


class Gate:
    """A service whose calls end when the test says so; it knows how many run."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self._ends: dict[str, asyncio.Event] = {}

    async def call(self, text: str) -> str:
        """Run until `end` of this text."""
        self.running.append(text)
        self.most = max(self.most, len(self.running))
        try:
            await self._ends.setdefault(text, asyncio.Event()).wait()
        finally:
            self.running.remove(text)
        return text

    def end(self, text: str) -> None:
        self._ends.setdefault(text, asyncio.Event()).set()


async def test_turns_wait_for_a_place_without_a_slot(bench: Bench) -> None:
    """On two slots one turn runs its step, two are parked and say for what, and one without the limit is answered."""
    app = await bench.app(worker=True, options=WorkerOptions(sessions=2))
    app.limit("api", concurrency=1)
    gate = Gate()

    @app.agent
    async def clerk(turn: Turn) -> str:
        return await turn.options(limit="api").step(gate.call, turn.text)

    @app.agent
    async def free(turn: Turn) -> str:
        return turn.text

    asked = []
    for name in ("a", "b", "c"):
        asked.append(asyncio.create_task(app.session(name, agent=clerk).ask(name)))
        await until_places(app, len(asked))
    await until(lambda: gate.running == ["a"])
    for name in ("b", "c"):
        await until_parked(app, name)
    assert await app.session("d", agent=free).ask("x") == "x"
    for name, following in (("a", ["b"]), ("b", ["c"]), ("c", [])):
        gate.end(name)
        await until(lambda following=following: gate.running == following)
    assert await asyncio.gather(*asked) == ["a", "b", "c"]
    await until_places(app, 0)
    assert gate.most == 1


async def test_processes_and_keys(bench: Bench) -> None:
    """Processes wait in the same line; another key has a line of its own."""
    app = await bench.app(worker=True)
    app.limit("api", concurrency=1)
    gate = Gate()

    @app.process
    async def job(context: Context, tenant: str, text: str) -> str:
        return await context.options(limit="api", limit_key=tenant).step(gate.call, text)

    first = await app.start(job, "ann", "a")
    await until(lambda: gate.running == ["a"])
    second, third = await app.start(job, "ann", "b"), await app.start(job, "bob", "c")
    await until(lambda: gate.running == ["a", "c"])
    await until_places(app, 2, key="ann")
    gate.end("a")
    await until(lambda: gate.running == ["c", "b"])
    gate.end("b")
    gate.end("c")
    assert [await each.result() for each in (first, second, third)] == ["a", "b", "c"]


async def test_a_holder_that_died_loses_its_place_with_its_lease(bench: Bench) -> None:
    """A worker that checks what is due resumes the turn that waits, once the lease of the holder has expired."""
    app = await bench.app()
    app.limit("api", concurrency=1)
    calls: list[str] = []

    async def call(text: str) -> None:
        calls.append(text)

    @app.agent
    async def clerk(turn: Turn) -> None:
        await turn.options(limit="api").step(call, turn.text)

    await app.storage.sessions.create("dead")
    lease = await take_session(app.storage, "dead", ttl_ms=600_000)
    assert await app.storage.limits.take("api", concurrency=1, fence=lease.fence) is True
    await app.session("s", agent=clerk).send("x")
    await app.drain()
    await bench.seconds(599)
    await app.drain()
    assert calls == []
    await bench.seconds(1)
    await app.drain()
    assert calls == ["x"]
    assert await app.storage.limits.places("api") == ()


async def test_a_cancelled_turn_leaves_the_line(bench: Bench) -> None:
    """A turn that is cancelled while it waits for a place waits no longer, and the next one gets the place."""
    app = await bench.app(worker=True)
    app.limit("api", concurrency=1)
    gate = Gate()

    @app.agent
    async def clerk(turn: Turn) -> str:
        return await turn.options(limit="api").step(gate.call, turn.text)

    for count, name in enumerate(("a", "b", "c"), 1):
        await app.session(name, agent=clerk).send(name)
        await until_places(app, count)
    await until_parked(app, "b")
    await app.session("b").cancel()
    await until_places(app, 2)
    gate.end("a")
    await until(lambda: gate.running == ["c"])
    gate.end("c")
    await until_places(app, 0)


async def test_a_step_that_fails_gives_its_place_back(bench: Bench) -> None:
    """A failed step holds nothing, so the turn may go on to another step under the same limit."""
    app = await bench.app()
    app.limit("api", concurrency=1)

    async def fail() -> None:
        raise ValueError("no")

    async def call() -> str:
        return "done"

    @app.agent(retry=NO_RETRY)
    async def clerk(turn: Turn) -> str:
        limited = turn.options(limit="api", retry=NO_RETRY)
        with pytest.raises(ValueError, match="no"):
            await limited.step(fail)
        return await limited.step(call)

    chat = app.session("s", agent=clerk)
    await chat.send("x")
    await app.drain()
    assert (await chat.messages())[-1].text == "done"


@pytest.mark.parametrize("own", [True, False], ids=["branches", "tasks"])
async def test_steps_of_one_turn_share_a_limit(bench: Bench, own: bool) -> None:  # noqa: FBT001 (parametrized)
    """Branches of one turn run their steps one after the other; in tasks of other code they wait in memory."""
    app = await bench.app()
    app.limit("api", concurrency=1)
    running = most = 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    @app.agent
    async def clerk(turn: Turn) -> str:
        if own:
            steps = (turn.options(limit="api").step(call, number) for number in range(3))
            return f"{await turn.gather(*steps)}"
        keyed = (turn.options(limit="api", key=f"{number}").step(call, number) for number in range(3))
        return f"{await asyncio.gather(*(asyncio.create_task(_awaited(step)) for step in keyed))}"

    chat = app.session("s", agent=clerk)
    await chat.send("x")
    await app.drain()
    assert (await chat.messages())[-1].text == "[0, 1, 2]"
    assert most == 1


async def test_a_rate_and_a_concurrency(bench: Bench) -> None:
    """A limit may have both: a step waits for its moment first, and holds no place until then."""
    app = await bench.app()
    app.limit("api", rate="1/minute", concurrency=1)
    calls: list[str] = []

    async def call(text: str) -> None:
        calls.append(text)

    @app.agent
    async def clerk(turn: Turn) -> None:
        await turn.options(limit="api").step(call, turn.text)

    for name in ("a", "b"):
        await app.session(name, agent=clerk).send(name)
    await app.drain()
    assert len(calls) == 1
    assert await app.storage.limits.places("api") == ()
    await bench.seconds(60)
    await app.drain()
    assert sorted(calls) == ["a", "b"]


async def test_bad_declarations_are_refused(bench: Bench) -> None:
    """A limit needs a rate or a concurrency that is valid; routers bring theirs along."""
    app = await bench.app()
    with pytest.raises(InvalidInput, match="a limit needs a rate or a concurrency"):
        app.limit("api")
    with pytest.raises(InvalidInput, match="burst needs a rate"):
        app.limit("api", concurrency=1, burst=2)
    for concurrency in (0, 10_001):
        with pytest.raises(InvalidInput, match="concurrency"):
            app.limit("api", concurrency=concurrency)
    router = lash.Router()
    router.limit("api", rate="1/minute", concurrency=4)
    app.include(router)
    declared = Limit(rate=Rate(count=1, period_ms=60_000), concurrency=4)
    assert router.declared.limits == (("api", declared),)


async def until_parked(app: lash.App, session_id: str) -> None:
    """Wait until a turn of a session is parked for the limit."""

    async def is_parked() -> bool:
        parked = await app.storage.leases.parked(session_id)
        return parked is not None and parked.waiting_for == "limit api"

    await until(is_parked)


async def until_places(app: lash.App, count: int, *, key: str = "") -> None:
    """Wait until so many places are held or waited for."""

    async def has_so_many() -> bool:
        return len(await app.storage.limits.places("api", key)) == count

    await until(has_so_many)


async def _awaited(step: object) -> object:
    return await step  # type: ignore[misc]
