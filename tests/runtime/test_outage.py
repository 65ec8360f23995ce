"""A database that is away for a while: finished work is kept and recorded when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import lash
from lash.backend.liveness import current_owner
from lash.model.lease import Acquired
from lash.runtime.turns.handle import SessionHandle
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.backends import fresh_schema
from tests.runtime.outages import Outage, StoppedServer, locked_file
from tests.runtime.turn_bench import Bench, Notes, texts
from tests.runtime.worker_kit import PATIENCE_S, until

OPTIONS: Final = lash.WorkerOptions(poll_s=0.1, lease_ttl_s=120)
"""The lease outlasts every outage here, on the slowest machine."""
SHARED: Final = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
"""Every backend that another process can take away."""


@pytest.fixture(scope="module")
def crashing_server() -> Iterator[PostgresServer]:
    """A server that only these tests use: they stop it."""
    with PostgresServer(durable=True, binaries=find_binaries()) as server:
        yield server


@pytest.fixture
def outage(backend_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    """An empty storage that the test takes away and brings back."""
    if backend_name == "sqlite":
        with locked_file(tmp_path / "lash.db") as file:
            yield file
        return
    server: PostgresServer = request.getfixturevalue("crashing_server")
    with fresh_schema(server.url) as url:
        yield StoppedServer(server, url)
        server.start()


class Watched:
    """An application with a worker on a storage that can be away, and what its runs did."""

    def __init__(self, outage: Outage, options: lash.WorkerOptions = OPTIONS) -> None:
        self.outage = outage
        self.notes = Notes()
        self.done: Counter[str] = Counter()
        self._away = asyncio.Event()
        self.app = lash.App(outage.url, hooks=[self.notes], options=options)

        @self.app.process
        async def sleeping(ctx: lash.Context) -> str:
            await ctx.sleep(0.05)
            return "child"

        self.sleeping = sleeping

    async def act(self, what: str) -> str:
        """Do something that must not be repeated; the database goes away meanwhile."""
        self.done[what] += 1
        await self._away.wait()
        return what

    async def go_through_outage(self, runs: int) -> None:
        """Take the database away once so many runs are under way, and bring it back when one of them waits for it."""
        await until(lambda: len(self.done) == runs)
        await self.outage.begin()
        self.let_go()
        await until(lambda: bool(self.notes.of("storage.away")))
        await self.outage.end()

    def let_go(self) -> None:
        """Let everything that began end."""
        self._away.set()

    def assert_undisturbed(self) -> None:
        """Check that nothing was repeated, failed or lost, and that the outage was reported once."""
        assert set(self.done.values()) <= {1}
        for kind in ("turn.retried", "turn.buried", "process.retried", "lease.lost"):
            assert self.notes.of(kind) == []
        assert len(self.notes.of("storage.away")) == len(self.notes.of("storage.back")) == 1


async def _step(turn: lash.Turn, watched: Watched) -> str:
    return await turn.step("act", watched.act, "step")


async def _once(turn: lash.Turn, watched: Watched) -> str:
    return await turn.options(once=True).step("act", watched.act, "once")


async def _begin_once(turn: lash.Turn, watched: Watched) -> str:
    async def pay() -> str:
        return "paid"

    await watched.act("before the step")
    return await turn.options(once=True).step(pay)


async def _failing_once(turn: lash.Turn, watched: Watched) -> str:
    async def refuse() -> str:
        await watched.act("refused")
        raise ValueError("refused")

    try:
        return await turn.options(once=True).step(refuse)
    except lash.StepFailed as failed:
        return failed.message


async def _commit(turn: lash.Turn, watched: Watched) -> str:
    return await watched.act("commit")


async def _start(turn: lash.Turn, watched: Watched) -> str:
    await watched.act("start")
    await turn.child("child")
    await turn.emit("happened", {})
    return "start"


TURNS: Final[dict[str, Callable[[lash.Turn, Watched], Awaitable[str]]]] = {
    "step": _step,
    "once": _once,
    "paid": _begin_once,
    "refused": _failing_once,
    "commit": _commit,
    "start": _start,
}
"""What a turn does during the outage, by its reply."""


@SHARED
async def test_turns_survive_an_outage(outage: Outage) -> None:
    """Turns whose steps, starts, failures and commits meet an outage run once and need one attempt."""
    watched = Watched(outage)
    attempts: Counter[str] = Counter()

    @watched.app.agent
    async def talking(turn: lash.Turn) -> str:
        attempts[turn.text] += 1
        return await TURNS[turn.text](turn, watched)

    async with watched.app as app:
        for reply in TURNS:
            await app.session(reply, talking).send(reply, key="1")
        await watched.go_through_outage(len(TURNS))
        for reply in TURNS:
            session = app.session(reply, talking)
            assert await session.ask(reply, key="1", timeout_s=PATIENCE_S) == reply
            assert texts(await session.messages()) == [("user", reply), ("assistant", reply)]
        assert await app.storage.queue.dead() == ()
    assert attempts == Counter(TURNS.keys())
    watched.assert_undisturbed()


async def _process_step(ctx: lash.Context, watched: Watched) -> str:
    return await ctx.step("act", watched.act, "step")


async def _process_once(ctx: lash.Context, watched: Watched) -> str:
    return await ctx.options(once=True).step("act", watched.act, "once")


async def _end(ctx: lash.Context, watched: Watched) -> str:
    return await watched.act("end")


async def _sleep(ctx: lash.Context, watched: Watched) -> str:
    if not watched.done["sleep"]:
        await watched.act("sleep")
    await ctx.sleep(0.05)
    return "sleep"


async def _signal(ctx: lash.Context, watched: Watched) -> str:
    if not watched.done["signal"]:
        await watched.act("signal")
    return str(await ctx.wait_signal("go"))


async def _wait(ctx: lash.Context, watched: Watched) -> str:
    if not watched.done["wait"]:
        await watched.act("wait")
    try:
        await ctx.wait("never", timeout_s=0.05)
    except TimeoutError:
        return "wait"
    return "resolved"


async def _child(ctx: lash.Context, watched: Watched) -> str:
    child = await ctx.start(watched.sleeping)
    if not watched.done["child"]:
        await watched.act("child")
    return await child.result()


PROCESSES: Final[dict[str, Callable[[lash.Context, Watched], Awaitable[str]]]] = {
    "step": _process_step,
    "once": _process_once,
    "end": _end,
    "sleep": _sleep,
    "signal": _signal,
    "wait": _wait,
    "child": _child,
}
"""What a process does during the outage, by its result."""


@SHARED
async def test_processes_survive_an_outage(outage: Outage) -> None:
    """Processes whose steps, ends, sleeps, waits and children meet an outage go on when the database is back."""
    watched = Watched(outage)

    @watched.app.process
    async def working(ctx: lash.Context, what: str) -> str:
        return await PROCESSES[what](ctx, watched)

    async with watched.app as app:
        handles = {what: await app.start(working, what) for what in PROCESSES}
        await watched.go_through_outage(len(PROCESSES))
        await handles["signal"].signal("go", "signal", key="1")
        for what, handle in handles.items():
            assert await handle.result(timeout_s=PATIENCE_S) == what
    watched.assert_undisturbed()


@SHARED
async def test_an_outage_is_logged_once(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """One warning says what waits and for how long at most, and one line at info level that the database is back."""
    watched = Watched(outage)
    gate = asyncio.Event()

    @watched.app.agent
    async def talking(turn: lash.Turn) -> str:
        return await turn.step(turn.text, waiting)

    async def waiting() -> str:
        watched.done["began"] += 1
        await gate.wait()
        return "ok"

    with caplog.at_level(logging.INFO, "lash"):
        async with watched.app as app:
            for name in ("a", "b", "c"):
                await app.session(name, talking).send(name, key="1")
            await until(lambda: watched.done["began"] == 3)
            await outage.begin()
            gate.set()
            await until(lambda: bool(watched.notes.of("storage.away")))
            await outage.end()
            for name in ("a", "b", "c"):
                assert await app.session(name, talking).ask(name, key="1", timeout_s=PATIENCE_S) == "ok"
    away = [each for each in caplog.records if each.message.startswith("storage.away")]
    back = [each for each in caplog.records if each.message.startswith("storage.back")]
    assert [each.levelno for each in (*away, *back)] == [logging.WARNING, logging.INFO]
    (note,) = watched.notes.of("storage.away")
    assert note["waiting"].startswith("the outcome of step ")
    assert 100 < note["at_most_s"] <= 160
    assert watched.done["began"] == 3


@SHARED
async def test_a_worker_stops_during_an_outage(outage: Outage) -> None:
    """A worker that is stopped while a turn and a process wait for the database gives both up."""
    watched = Watched(outage, lash.WorkerOptions(poll_s=0.1, lease_ttl_s=600, grace_s=0.1))

    @watched.app.agent
    async def talking(turn: lash.Turn) -> str:
        return await turn.step("act", watched.act, "step")

    @watched.app.process
    async def working(ctx: lash.Context) -> str:
        return await watched.act("end")

    async with watched.app as app:
        await app.session("s", talking).send("hello", key="1")
        await app.start(working)
        await until(lambda: len(watched.done) == 2)
        await outage.begin()
        watched.let_go()
        await until(lambda: bool(watched.notes.of("storage.away")))
    await outage.end()
    assert len(watched.notes.of("storage.away")) == 1
    assert watched.notes.of("storage.back") == []


LOST = lash.StoreUnavailable("made for the test", outcome_unknown=True)


def answer_is_lost(store: object, method: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the first call of a method be applied and its answer be lost; return the names of the calls."""
    call, calls = getattr(store, method), list[str]()

    async def applied(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the store)
        calls.append(method)
        result = await call(*args, **kwargs)
        if len(calls) == 1:
            raise LOST
        return result

    monkeypatch.setattr(store, method, applied)
    return calls


@pytest.mark.parametrize(
    ("store", "method"),
    [("effects", "claim"), ("effects", "finish"), ("effects", "record"), ("session", "commit"), ("leases", "release")],
)
async def test_a_turn_recognises_what_was_written(
    bench: Bench, store: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write of a turn whose answer was lost is repeated and changes nothing more."""
    app = await bench.app()
    done: list[str] = []

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        if method == "release" and turn.attempt == 1:
            raise ValueError("the first attempt fails")
        return await turn.step("plain", _do, done) + await turn.options(once=True).step("once", _do, done)

    await app.session("s", agent).send("hello", key="1")
    bound = app.storage.session("s")
    if store == "session":
        monkeypatch.setattr(app.storage, "session", lambda _: bound)
    calls = answer_is_lost(bound if store == "session" else getattr(app.storage, store), method, monkeypatch)
    await app.drain()
    if method == "release":
        await bench.seconds(2)
        await app.drain()
    assert calls[:2] == [method, method]
    assert done == ["x", "x"]
    assert texts(await app.session("s").messages()) == [("user", "hello"), ("assistant", "xx")]
    assert await app.session("s").dead_letters() == ()
    assert bench.notes.of("lease.lost") == []


async def _do(done: list[str]) -> str:
    done.append("x")
    return "x"


async def test_a_dead_letter_is_buried_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Input whose burial was applied without an answer is one dead letter."""
    app = await bench.app()

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        raise lash.InvalidInput("no attempt can help")

    await app.session("s", agent).send("hello", key="1")
    calls = answer_is_lost(app.storage.queue, "bury", monkeypatch)
    await app.drain()
    assert calls == ["bury", "bury"]
    assert len(await app.session("s").dead_letters()) == 1


@pytest.mark.parametrize("method", ["complete", "park", "release"])
async def test_a_process_recognises_what_was_written(
    bench: Bench, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end, a parking or a release of a process whose answer was lost is repeated and changes nothing more."""
    app = await bench.app()

    @app.process
    async def process(ctx: lash.Context) -> str:
        await ctx.sleep(60)
        return "done"

    calls = answer_is_lost(app.storage.process_leases, method, monkeypatch)
    handle = await app.start(process)
    await app.drain()
    assert await app.storage.process_leases.holder(handle.process_id) is None
    await bench.seconds(61)
    await app.drain()
    assert await handle.result(timeout_s=PATIENCE_S) == "done"
    if method != "release":
        assert calls[:2] == [method, method]
    assert bench.notes.of("lease.lost") == bench.notes.of("process.retried") == []


def while_away(
    store: object, method: str, meanwhile: Callable[[], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the first call of a method fail, and something happen before it is repeated."""
    call, failed = getattr(store, method), list[str]()

    async def unreliable(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the store)
        if not failed:
            failed.append(method)
            await meanwhile()
            raise lash.StoreUnavailable("made for the test")
        return await call(*args, **kwargs)

    monkeypatch.setattr(store, method, unreliable)


@pytest.mark.parametrize("method", ["record", "finish", "commit"])
async def test_a_lease_that_expired_meanwhile_is_kept(
    bench: Bench, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outcome is recorded after the end of its lease, as long as no other worker took the lease."""
    app = await bench.app()
    done: list[str] = []

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return await turn.step("plain", _do, done) + await turn.options(once=True).step("once", _do, done)

    await app.session("s", agent).send("hello", key="1")
    bound = app.storage.session("s")
    monkeypatch.setattr(app.storage, "session", lambda _: bound)

    async def expire() -> None:
        await bench.seconds(120)

    while_away(bound if method == "commit" else app.storage.effects, method, expire, monkeypatch)
    await app.drain()
    assert done == ["x", "x"]
    assert texts(await app.session("s").messages()) == [("user", "hello"), ("assistant", "xx")]
    assert bench.notes.of("lease.lost") == bench.notes.of("turn.retried") == []


@pytest.mark.parametrize("method", ["complete", "park"])
async def test_a_process_whose_lease_expired_meanwhile_is_kept(
    bench: Bench, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process ends or parks after the end of its lease, as long as no other worker took the lease."""
    app = await bench.app()
    runs: list[str] = []

    @app.process
    async def process(ctx: lash.Context) -> str:
        runs.append("run")
        if method == "park":
            await ctx.sleep(600)
        return "done"

    async def expire() -> None:
        await bench.seconds(120)

    while_away(app.storage.process_leases, method, expire, monkeypatch)
    handle = await app.start(process)
    await app.drain()
    assert runs == ["run"]
    await bench.seconds(600)
    await app.drain()
    assert await handle.result(timeout_s=PATIENCE_S) == "done"
    assert bench.notes.of("lease.lost") == bench.notes.of("process.retried") == []


@SHARED
async def test_a_lease_that_was_taken_meanwhile_is_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another worker took the lease during the outage, the run stops and records nothing."""
    app = await bench.app()
    done: list[str] = []

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return await turn.step("plain", _do, done)

    await app.session("s", agent).send("hello", key="1")

    async def take_over() -> None:
        await bench.seconds(120)
        taken = await app.storage.leases.claim("s", current_owner("another"), ttl_ms=60_000)
        assert isinstance(taken, Acquired)

    while_away(app.storage.effects, "record", take_over, monkeypatch)
    await app.drain()
    assert done == ["x"]
    assert len(bench.notes.of("lease.lost")) == 1
    assert await app.session("s").messages() == []


async def test_a_claim_without_an_answer_blocks_no_session(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose claim was applied without an answer releases the lease, and the turn runs before it expires."""
    app = await bench.app(worker=True, options=lash.WorkerOptions(poll_s=0.05))

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return "ok"

    calls = answer_is_lost(app.storage.queue, "claim_turn", monkeypatch)
    # Of a sender without a worker, whose message does not begin its turn.
    assert await SessionHandle(app.storage, "s", agent=agent.name).ask("hello", timeout_s=PATIENCE_S) == "ok"
    assert len(calls) >= 2


async def test_a_message_without_an_answer_blocks_no_session(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that began its turn without an answer is reported, and its turn runs before the lease expires."""
    app = await bench.app(worker=True, options=lash.WorkerOptions(poll_s=0.05))

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        return f"re: {turn.text}"

    session = app.session("s", agent)
    assert await session.ask("first", timeout_s=PATIENCE_S) == "re: first"
    calls = answer_is_lost(app.storage.queue, "enqueue_and_claim", monkeypatch)
    with pytest.raises(lash.errors.StoreUnavailable):
        await session.send("hello", key="k")
    assert await session.ask("hello", key="k", timeout_s=PATIENCE_S) == "re: hello"
    assert [message.text for message in await session.messages()] == ["first", "re: first", "hello", "re: hello"]
    assert calls


async def test_a_claim_without_an_answer_blocks_no_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose claim was applied without an answer releases the lease, and the process runs before it expires."""
    app = await bench.app(worker=True, options=lash.WorkerOptions(poll_s=0.05))

    @app.process
    async def process(ctx: lash.Context) -> str:
        await ctx.sleep(60)
        return "done"

    calls = answer_is_lost(app.storage.process_leases, "claim", monkeypatch)
    handle = await app.start(process)

    async def is_parked() -> bool:
        return await app.storage.process_leases.holder(handle.process_id) is None

    async def has_ended() -> bool:
        await bench.seconds(0.1)
        return await handle.status() is lash.ProcessStatus.COMPLETED

    # Only a process that was parked is claimed again.
    await until(is_parked)
    await bench.seconds(60)
    await until(has_ended)
    assert len(calls) >= 2
