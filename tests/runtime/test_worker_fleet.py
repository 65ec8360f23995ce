"""Workers as members of a fleet: they register, beat with their polls, and leave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import pytest

import lash
from tests.runtime.worker_kit import until


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
        assert (await caller.storage.workers.holding(listed.worker_id)).session_ids == ("first",)
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
