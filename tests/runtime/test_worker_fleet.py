"""Workers as members of a fleet: they register, beat with their polls, and leave."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

import lash
from lash.runtime.worker.assignments import Assignments, idle_workers
from lash.runtime.worker.slots import Slots
from lash.stores.hints import NO_TAGS, Hint
from tests.contract.test_worker import beat
from tests.raw import raw
from tests.runtime.worker_kit import until

QUIET = lash.WorkerOptions(poll_s=60)
"""Nothing is found by a poll without a hint."""


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_is_registered_while_it_runs(backend_url: str) -> None:
    """A running worker is listed with its slots and its version; a stopped one is not."""
    async with lash.App(backend_url, worker=False) as caller:
        workers = caller.storage.workers
        options = lash.WorkerOptions(sessions=3, processes=5)
        async with lash.App(backend_url, options=options, worker_id="first"):

            async def is_listed() -> bool:
                return len(await workers.list()) == 1

            await until(is_listed)
            (listed,) = await workers.list()
            beat = listed.beat
            assert (beat.owner.owner_id, beat.pid, beat.version) == ("first", os.getpid(), lash.__version__)
            assert (beat.session_slots, beat.process_slots) == (3, 5)
            assert (beat.free_sessions, beat.free_processes) == (3, 5)
            assert (listed.status, listed.is_late) == (lash.model.WorkerStatus.ACTIVE, False)
        assert await workers.list() == ()


async def test_draining_a_script_registers_nothing(backend_url: str) -> None:
    """`App.drain` runs what is ready without becoming a member of the fleet."""
    async with lash.App(backend_url, worker=False) as app:
        assert await app.drain() == 0
        assert await app.storage.workers.list() == ()


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_drained_worker_finishes_what_it_runs_and_ends(backend_url: str) -> None:
    """It takes nothing new, its run ends undisturbed beyond the grace time, and then the worker ends."""
    began, go, draining = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Watcher(lash.Hook):
        def note(self, kind: str, _attributes: Mapping[str, object]) -> None:
            if kind == "worker.draining":
                draining.set()

    app = lash.App(backend_url, options=lash.WorkerOptions(poll_s=0.02, grace_s=0), hooks=[Watcher()])

    @app.agent
    async def slow(turn: lash.Turn) -> str:
        began.set()
        await go.wait()
        return f"reply to {turn.text}"

    async with lash.App(backend_url, worker=False) as caller, app:
        running = asyncio.create_task(app.session("first").ask("one"))
        await began.wait()
        (listed,) = await caller.storage.workers.list()
        assert (await caller.storage.workers.holding([listed.worker_id]))[listed.worker_id].session_ids == ("first",)
        assert await caller.storage.workers.drain(listed.worker_id)
        working = asyncio.create_task(app.run())
        await draining.wait()
        await caller.session("second").send("two")
        await asyncio.sleep(0.1)
        assert not working.done()
        go.set()
        assert await running == "reply to one"
        await asyncio.wait_for(working, 30)
        assert await caller.storage.workers.list() == ()
        assert await caller.storage.queue.ready_sessions(limit=10) == ("second",)


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_drained_worker_learns_of_it_at_once(backend_url: str) -> None:
    """An idle worker ends when it is drained, long before its next beat."""
    async with _app(backend_url, worker=False) as caller, _app(backend_url) as app:
        await _listens(caller, 1)
        (listed,) = await caller.storage.workers.list()
        working = asyncio.create_task(app.run())
        assert await caller.storage.workers.drain(listed.worker_id)
        await asyncio.wait_for(working, 30)
        assert await caller.storage.workers.list() == ()


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_runs_only_processes_of_the_names_that_it_serves(backend_url: str) -> None:
    """It runs its own, however they were started, and leaves the others to another worker, even if it starts them."""
    ran: list[tuple[str, str]] = []

    def declare(name: str, app: lash.App) -> tuple[Any, Any]:
        @app.process(name="index")
        async def index(_ctx: lash.Context) -> None:
            ran.append(("index", name))

        @app.process(name="report")
        async def report(_ctx: lash.Context) -> None:
            ran.append(("report", name))

        return index, report

    some = lash.App(backend_url, options=lash.WorkerOptions(process_names=("index",)))
    rest = lash.App(backend_url, worker=False)
    index, report = declare("some", some)
    declare("rest", rest)
    async with some, rest:
        left = await some.start(report)
        await (await rest.start(index)).result()
        await (await some.start(index)).result()
        assert ran == [("index", "some"), ("index", "some")]
        assert await rest.drain() == 1
        await left.result()
        assert ran[2:] == [("report", "rest")]


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_runs_only_turns_of_the_agents_that_it_serves(backend_url: str) -> None:
    """It leaves the others to another worker, also in a session that has input for both and after a hand-off."""
    ran: list[tuple[str, str, str]] = []

    def declare(name: str, app: lash.App) -> None:
        @app.agent(name="clerk")
        async def clerk(turn: lash.Turn) -> Any:  # noqa: ANN401 (a reply, or a hand-off)
            ran.append(("clerk", name, turn.text))
            return await turn.hand_off("judge") if turn.text == "appeal" else turn.text

        @app.agent(name="judge")
        async def judge(turn: lash.Turn) -> str:
            ran.append(("judge", name, turn.text))
            return turn.text

    clerks, judges = (
        lash.App(backend_url, options=lash.WorkerOptions(agents=(name,), poll_s=0.1)) for name in ("clerk", "judge")
    )
    declare("clerks", clerks)
    declare("judges", judges)
    async with clerks, judges:
        assert await judges.session("s", "clerk").ask("one") == "one"
        assert await clerks.session("s").ask("appeal") == "appeal"
        assert await clerks.session("s").ask("verdict") == "verdict"
        await clerks.session("t", "judge").send("two")
        assert await judges.session("t", "clerk").ask("three") == "three"
        (listed, _) = await clerks.storage.workers.list()
        assert listed.beat.served.agents in (("clerk",), ("judge",))
    expected = {("clerk", "clerks", "one"), ("clerk", "clerks", "appeal"), ("judge", "clerks", "appeal")}
    assert set(ran) == expected | {
        ("judge", "judges", "verdict"), ("judge", "judges", "two"), ("clerk", "clerks", "three"),
    }  # fmt: skip


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_runs_only_sessions_of_the_labels_that_it_serves(backend_url: str) -> None:
    """It runs their turns and processes, and leaves others to another worker, even if its own program starts them.

    Nothing is found by a poll without a hint.
    """
    ran: list[tuple[str, str, str]] = []

    def declare(region: str) -> tuple[lash.App, Any]:
        app = lash.App(backend_url, options=lash.WorkerOptions(labels={"region": region}, poll_s=60))

        @app.agent(name="clerk")
        async def clerk(turn: lash.Turn) -> str:
            ran.append(("turn", region, turn.text))
            if turn.text == "last":
                await (await turn.start(index, turn.session_id)).result()
            return turn.text

        @app.process(name="index")
        async def index(_ctx: lash.Context, session_id: str) -> None:
            ran.append(("process", region, session_id))

        return app, index

    (eu, index), (us, _) = declare("eu"), declare("us")
    async with eu, us:
        await _listens(eu, 2)
        for region in ("eu", "us"):
            await eu.storage.sessions.create(f"in-{region}", labels={"region": region, "tier": "1"})
        assert await us.session("in-eu", "clerk").ask("first") == "first"
        assert await us.session("in-us", "clerk").ask("first") == "first"
        await eu.session("in-us").messages()
        assert await eu.session("in-us", "clerk").ask("last") == "last"
        await (await eu.starting(wake="in-us").start(index, "other")).result()
        await eu.session("plain", "clerk").send("never")
        assert {each.beat.served.labels["region"] for each in await eu.storage.workers.list()} == {"eu", "us"}  # type: ignore[index]
    assert set(ran) == {
        ("turn", "eu", "first"),
        ("turn", "us", "first"),
        ("turn", "us", "last"),
        ("process", "us", "in-us"),
        ("process", "us", "other"),
    }


def _app(url: str, *, worker: bool = True) -> lash.App:
    app = lash.App(url, worker=worker, options=QUIET)

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        return turn.text

    return app


async def _listens(app: lash.App, count: int) -> None:
    async def enough() -> bool:
        return sum(each.beat.channel is not None for each in await app.storage.workers.list()) == count

    await until(enough)


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_dead_addressee_costs_a_fraction_of_a_second(backend_url: str) -> None:
    """Work that was assigned to a worker that does not answer is found by the duty worker, without its poll interval.

    The worker that did not take it is then assigned nothing more.
    """
    async with (
        _app(backend_url) as living,
        _app(backend_url, worker=False) as caller,
        await lash.open(backend_url) as deaf,
    ):
        await _listens(living, 1)
        deaf.hints.listen()
        nowhere = deaf.hints.channel or "lash_nowhere"
        for name in "xyz":
            dead = beat(name, boot="elsewhere", beat_ms=3_600_000, channel=nowhere)
            await caller.storage.work.poll(sessions=0, processes=0, owner=dead.owner, beat=dead)
        caller.storage.hints.greet()
        await asyncio.sleep(0.3)
        async with asyncio.timeout(30):
            for number in range(8):
                assert await caller.session(f"s{number}").ask("hello") == "hello"
        free = await raw(backend_url, f"SELECT min(free_sessions) FROM lash_workers WHERE channel = '{nowhere}'")
        assert free == [(0,)]


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_the_next_worker_takes_over_at_once(backend_url: str) -> None:
    """When the duty worker stops, the next one learns of it by a notification and wakes for timers."""
    async with _app(backend_url, worker=False) as caller:
        async with _app(backend_url) as first:
            await _listens(first, 1)
            second = _app(backend_url)
            await second.open()
            await _listens(first, 2)
        try:

            async def has_taken_over() -> bool:
                assert second._worker is not None
                return second._worker._membership.is_first

            await until(has_taken_over, patience_s=20)
            assert await caller.session("s").ask("hello") == "hello"
        finally:
            await second.stop()


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_full_worker_is_assigned_no_more(backend_url: str) -> None:
    """It passes on what it has no slot for, without a poll; when its slot is free again, it runs all that waits."""
    statements: Counter[str] = Counter()

    class Statements(lash.Hook):
        def statement(self, name: str) -> None:
            statements[name] += 1

    began, go = asyncio.Event(), asyncio.Event()
    options = lash.WorkerOptions(poll_s=60, sessions=1)
    app = lash.App(backend_url, options=options, hooks=[Statements()])

    @app.agent
    async def held(turn: lash.Turn) -> str:
        began.set()
        await go.wait()
        return turn.text

    async with app, _app(backend_url, worker=False) as caller:
        await _listens(caller, 1)
        asked = [asyncio.create_task(caller.session("s0").ask("0"))]
        await began.wait()
        await asyncio.sleep(0.3)
        statements.clear()
        asked += [asyncio.create_task(caller.session(f"s{number}").ask(f"{number}")) for number in range(1, 6)]

        async def is_full() -> bool:
            return [each.beat.free_sessions for each in await caller.storage.workers.list()] == [0]

        await until(is_full)
        await asyncio.sleep(0.5)
        assert statements["work_poll"] + statements["work_beat"] == 0, statements
        go.set()
        assert await asyncio.wait_for(asyncio.gather(*asked), 30) == [f"{number}" for number in range(6)]

        async def is_free() -> bool:
            return not await is_full()

        await until(is_free)


def test_a_full_worker_stays_full_after_a_poll() -> None:
    """A poll without a free slot does not hide that nothing was assigned until a slot is free."""
    slots: Slots[None] = Slots(1, longest_pause_s=1)
    assert not slots.take_ran_full()
    slots.take("s")
    assert [slots.take_ran_full() for _ in range(2)] == [True, True]
    slots.leave("s", in_vain=False)
    assert [slots.take_ran_full() for _ in range(2)] == [True, False]


def test_a_sign_ends_the_watch() -> None:
    """A commit of the session and a change of the process are signs; what shows none is due after the delay."""
    now = 0.0
    watch = Assignments(lambda: now)
    watch.note(Hint(dispatched=frozenset({"saaaa:w1", "paaaa:w2", "sbbbb:w1", "pbbbb:w3"})), 0.25)
    watch.note(Hint(changed=frozenset({"aaaa"}), processes=NO_TAGS), 0.25)
    watch.note(Hint(process=True, processes=frozenset({"bbbb"})), 0.25)
    assert watch.due_s == 0.25
    assert watch.take_due() == frozenset()
    now = 0.25
    assert watch.take_due() == {"paaaa:w2", "sbbbb:w1"}
    assert watch.due_s == float("inf")


def test_only_duty_workers_watch() -> None:
    """A worker that loses its duty forgets what it watched."""
    watch = Assignments(lambda: 0.0)
    watch.note(Hint(dispatched=frozenset({"saaaa:w1"})), 1.0)
    watch.note(Hint(), None)
    assert watch.due_s == float("inf")


def test_the_worker_of_unclaimed_work_is_idle() -> None:
    """Only workers whose assigned work is still on the work list are suspected."""
    # The first four hexadecimal digits of SHA-256 of "s" and of "p".
    due = frozenset({"s043a:w1", "p148d:w2", "sffff:w3"})
    assert idle_workers(due, ["s"], ["p"]) == {"w1", "w2"}
    assert idle_workers(due, [], ["p"]) == {"w2"}
