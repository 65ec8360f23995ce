"""Workers as members of a fleet: they register, beat with their polls, and leave."""

from __future__ import annotations

import os

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
