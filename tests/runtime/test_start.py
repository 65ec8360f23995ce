"""Starting a process in an application that also works: one write registers and claims it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

import lash
from lash.errors import InvalidInput, RegistrationConflict
from tests.runtime.worker_kit import until

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def test_a_process_is_claimed_when_its_start_returns(backend_url: str) -> None:
    """After the start, this worker holds the lease, and no worker finds the process ready."""
    app, go = lash.App(backend_url), asyncio.Event()

    @app.process
    async def process(ctx: lash.Context) -> str:
        await go.wait()
        return "done"

    async with app:
        handle = await app.start(process)
        lease = await app.storage.process_leases.holder(handle.process_id)
        assert lease is not None
        assert (lease.owner, lease.fencing) == (app._require().owner, 1)
        assert [event.event_type for event in await handle.events()] == ["process.started"]
        go.set()
        assert await handle.result(timeout_s=60) == "done"


async def test_starting_twice_runs_once(backend_url: str) -> None:
    """A second start of an id returns, runs nothing and takes no slot; a different process under it raises."""
    runs: list[int] = []
    app = lash.App(backend_url, options=lash.WorkerOptions(processes=1))

    @app.process
    async def process(ctx: lash.Context, number: int) -> int:
        runs.append(number)
        return number

    async with app:
        for _ in range(3):
            handle = await app.starting(process_id="p").start(process, 1)
            assert await handle.result(timeout_s=60) == 1
        for _ in range(3):
            with pytest.raises(RegistrationConflict):
                await app.starting(process_id="p").start(process, 2)
        with pytest.raises(InvalidInput):
            await app.starting(process_id=" ").start(process, 2)
        # No slot was lost.
        assert await (await app.start(process, 3)).result(timeout_s=60) == 3
    assert runs == [1, 3]


async def test_a_start_that_nobody_waits_for_is_run(backend_url: str) -> None:
    """A cancelled caller leaves no process that is leased and not run."""
    done: list[int] = []
    app = lash.App(backend_url)

    @app.process
    async def process(ctx: lash.Context, number: int) -> None:
        done.append(number)

    async with app:
        for number in range(5):
            starting = asyncio.create_task(app.start(process, number))
            # Its registration has started; cancel the caller.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait({starting})
        await until(lambda: sorted(done) == list(range(5)))
        page = await app.storage.processes.list()
        assert len(page.processes) == 5


async def test_a_start_whose_run_is_ended_is_registered_all_the_same(
    backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose worker stops before running it stays registered."""
    app, entered = lash.App(backend_url), asyncio.Event()

    @app.process
    async def process(ctx: lash.Context) -> str:
        return "done"

    async def never(*_arguments: object, **_options: object) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with app:
        with monkeypatch.context() as patch:
            patch.setattr(app.storage.process_leases, "register_and_claim", never)
            starting = asyncio.create_task(app.start(process))
            await asyncio.wait_for(entered.wait(), 60)
            assert app._worker is not None
            for task in tuple(app._worker.state.tasks):
                task.cancel()
            handle = await asyncio.wait_for(starting, 60)
        assert await app.storage.processes.get(handle.process_id) is not None
        assert await handle.result(timeout_s=60) == "done"


async def test_a_start_whose_run_never_began_is_registered_all_the_same(
    backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose worker stops in the event loop iteration of its start stays registered."""
    app = lash.App(backend_url, options=lash.WorkerOptions(processes=1))

    @app.process
    async def process(ctx: lash.Context) -> str:
        return "done"

    async with app:
        worker = app._worker
        assert worker is not None
        state = worker.state
        spawn = state.spawn

        def spawn_once_in_vain(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
            monkeypatch.setattr(state, "spawn", spawn)
            task = spawn(work)
            task.cancel()
            return task

        monkeypatch.setattr(state, "spawn", spawn_once_in_vain)
        handle = await asyncio.wait_for(app.start(process), 60)
        assert await app.storage.processes.get(handle.process_id) is not None
        # Its slot is free again.
        assert await (await app.start(process)).result(timeout_s=60) == "done"
        assert await handle.result(timeout_s=60) == "done"


async def test_more_than_there_is_room_for_wait_their_turn(backend_url: str) -> None:
    """With one slot, processes that are started together all run, one at a time."""
    running, most = 0, 0
    app = lash.App(backend_url, options=lash.WorkerOptions(processes=1))

    @app.process
    async def process(ctx: lash.Context, number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    async with app:
        handles = await asyncio.gather(*(app.start(process, number) for number in range(20)))
        assert [await handle.result(timeout_s=60) for handle in handles] == list(range(20))
    assert most == 1
